"""What Slurm's records have in common, as text and as JSON: GPUs in trackable resources, ids of jobs."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_GPUS = re.compile(r"gres/gpu(?::([^=,]+))?=(\d+)")
RESOURCES = "trackable resources such as cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1"


class Gpus(NamedTuple):
    """GPUs of a job: how many, of which types."""

    num: int
    types: str | None


def gpus_in(resources: str) -> Gpus:
    """GPUs in `billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4`: the typed ones are among those without a type.

    Raises
    ------
    ValueError
        When these are no trackable resources.
    """
    if resources and "=" not in resources:
        raise ValueError(resources)
    return gpus_among((kind or None, int(count)) for kind, count in _GPUS.findall(resources))


def gpus_among(counts: Iterable[tuple[str | None, int]]) -> Gpus:
    """GPUs of (type or None for all, count)."""
    total = 0
    types: dict[str, int] = {}
    for kind, count in counts:
        if kind is None:
            total = count
        elif count:
            types[kind] = count
    return Gpus(max(total, sum(types.values())), "|".join(types) or None)


def told_apart(ids: Sequence[str]) -> list[str]:
    """Ids of jobs, of which Slurm gives out the same again after years: the second `17` becomes `17#2`."""
    seen: Counter[str] = Counter()
    names = []
    for job_id in ids:
        seen[job_id] += 1
        names.append(job_id if seen[job_id] == 1 else f"{job_id}#{seen[job_id]}")
    return names
