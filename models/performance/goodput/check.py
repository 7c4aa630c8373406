"""What can be wrong with a job's `performance`. `evaluate` and `fit` rely on input that passed here."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import assert_never

from models.performance.goodput.listed import Layout, listed
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputObservations,
    GoodputTable,
    GradientStatistics,
    Observation,
    Performance,
    TableEntry,
    ThroughputParameters,
    ThroughputTable,
    TypeProfile,
)
from models.wording import counted
from stowplan.errors import Issue, Severity
from stowplan.living import OfLiving

_GAMMA_MAX = 10.0
# Counts are exact in float64 up to here.
_COUNT_MAX = 2**53
_entry_key = attrgetter("gpu_type", "num_gpus", "num_nodes")
_TIMES = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n")
_times_of = attrgetter(*_TIMES)
# Performances without fault, with the GPU types that there were: jobs of a round are those of the one before.
_sound: OfLiving[GoodputModel | GoodputObservations, frozenset[str]] = OfLiving()


def performance_issues(performance: Performance, pointer: str, gpu_types: Collection[str]) -> list[Issue]:
    """Every fault of one job's performance.

    `pointer` is the JSON pointer of the performance itself (`/jobs/3/performance`); `gpu_types` are the names that
    the cluster knows. Any other name is an error: a misspelt type would silently exclude the job from it.
    """
    names = frozenset(gpu_types)
    if isinstance(performance, ThroughputTable | GoodputTable):
        # What they list is kept anyway.
        return [] if _is_sound_table(performance, names) else list(_table_issues(performance, pointer, names))
    if _sound.get(performance) == names:
        return []
    issues = list(_issues(performance, pointer, names))
    if not issues:
        _sound.put(performance, names)
    return issues


def _issues(
    performance: GoodputModel | GoodputObservations, pointer: str, gpu_types: frozenset[str]
) -> Iterator[Issue]:
    match performance:
        case GoodputModel():
            return _model_issues(performance, pointer, gpu_types)
        case GoodputObservations():
            return _observations_issues(performance, pointer, gpu_types)
    assert_never(performance)


def _model_issues(model: GoodputModel, pointer: str, gpu_types: Collection[str]) -> Iterator[Issue]:
    yield from _batch_issues(model.batch, f"{pointer}/batch")
    yield from _gradient_issues(model.gradient, f"{pointer}/gradient")
    yield from _empty_issues(model.profiles, f"{pointer}/profiles")
    # Snapshots hold thousands of profiles; nearly all are sound.
    if all(name in gpu_types and _is_sound_profile(profile) for name, profile in model.profiles.items()):
        return
    for name, profile in model.profiles.items():
        where = f"{pointer}/profiles/{_escaped(name)}"
        yield from _type_issues(name, where, gpu_types)
        yield from _profile_issues(profile, where)
        yield from _parameter_issues(profile.parameters, f"{where}/parameters")


def _is_sound_profile(profile: TypeProfile) -> bool:
    """Whether `_profile_issues` and `_parameter_issues` have nothing to say about the profile."""
    parameters = profile.parameters
    return (
        1 <= profile.min_local_batch <= profile.max_local_batch <= _COUNT_MAX
        and 1 <= profile.gpus_per_replica <= _COUNT_MAX
        and all(0 <= seconds < math.inf for seconds in _times_of(parameters))
        and parameters.alpha_c + parameters.beta_c > 0
        and 1 <= parameters.gamma <= _GAMMA_MAX
    )


def _profile_issues(profile: TypeProfile, pointer: str) -> Iterator[Issue]:
    for field in ("min_local_batch", "max_local_batch", "gpus_per_replica"):
        yield from _count_issues(getattr(profile, field), f"{pointer}/{field}")
    if profile.max_local_batch < profile.min_local_batch:
        yield Issue(
            code="min_above_max",
            pointer=f"{pointer}/max_local_batch",
            detail=f"min_local_batch {profile.min_local_batch} is above max_local_batch {profile.max_local_batch}",
        )


def _parameter_issues(parameters: ThroughputParameters, pointer: str) -> Iterator[Issue]:
    for field in _TIMES:
        yield from _not_negative(getattr(parameters, field), f"{pointer}/{field}")
    if parameters.alpha_c == 0 and parameters.beta_c == 0:
        yield Issue(
            code="not_positive",
            pointer=f"{pointer}/alpha_c",
            detail="alpha_c and beta_c are both 0, so a step takes no time; one must be above 0",
        )
    if not 1 <= parameters.gamma <= _GAMMA_MAX:
        yield Issue(
            code="out_of_range",
            pointer=f"{pointer}/gamma",
            detail=f"is {parameters.gamma}; must be between 1 (no overlap) and {_GAMMA_MAX:g} (full overlap)",
        )


def _observations_issues(job: GoodputObservations, pointer: str, gpu_types: Collection[str]) -> Iterator[Issue]:
    yield from _batch_issues(job.batch, f"{pointer}/batch")
    yield from _gradient_issues(job.gradient, f"{pointer}/gradient")
    if job.shared_with is None:
        yield from _empty_issues(job.observations, f"{pointer}/observations")
    for k, observation in enumerate(job.observations):
        yield from _observation_issues(
            observation,
            f"{pointer}/observations/{k}",
            gpu_types,
            job.gpus_per_replica.get(observation.gpu_type, 1),
        )
    observed = {observation.gpu_type for observation in job.observations}
    for field, counts in (("max_local_batch", job.max_local_batch), ("gpus_per_replica", job.gpus_per_replica)):
        for name, count in counts.items():
            where = f"{pointer}/{field}/{_escaped(name)}"
            yield from _type_issues(name, where, gpu_types)
            yield from _count_issues(count, where)
            if name in gpu_types and name not in observed and job.shared_with is None:
                yield Issue(
                    code="not_observed",
                    pointer=where,
                    detail=f"there are no observations on {name!r}, so the job is not planned there",
                    severity=Severity.WARNING,
                )


def _observation_issues(
    observation: Observation, pointer: str, gpu_types: Collection[str], gpus_per_replica: int
) -> Iterator[Issue]:
    yield from _type_issues(observation.gpu_type, f"{pointer}/gpu_type", gpu_types)
    for field in ("num_nodes", "num_replicas", "local_batch"):
        yield from _count_issues(getattr(observation, field), f"{pointer}/{field}")
    if observation.num_nodes > observation.num_replicas * gpus_per_replica:
        yield Issue(
            code="more_nodes_than_gpus",
            pointer=f"{pointer}/num_nodes",
            detail=f"{observation.num_nodes} nodes for {counted(observation.num_replicas * gpus_per_replica, 'GPU')}; "
            "every node of a job holds at least one",
        )
    yield from _positive(observation.step_time_s, f"{pointer}/step_time_s")
    yield from _not_negative(observation.sync_time_s, f"{pointer}/sync_time_s")
    if not 0 < observation.bandwidth_fraction <= 1:
        yield Issue(
            code="out_of_range",
            pointer=f"{pointer}/bandwidth_fraction",
            detail=f"is {observation.bandwidth_fraction}; must be above 0 and at most 1",
        )
    if observation.sync_time_s >= observation.step_time_s > 0:
        yield Issue(
            code="sync_above_step",
            pointer=f"{pointer}/sync_time_s",
            detail=f"sync_time_s {observation.sync_time_s} is a part of step_time_s {observation.step_time_s}; "
            "it must be smaller",
        )


def _table_issues(table: ThroughputTable | GoodputTable, pointer: str, gpu_types: Collection[str]) -> Iterator[Issue]:
    if isinstance(table, ThroughputTable) and table.batch_size is not None:
        yield from _count_issues(table.batch_size, f"{pointer}/batch_size")
    yield from _empty_issues(table.entries, f"{pointer}/entries")
    counts = Counter(map(_entry_key, table.entries))
    for k, entry in enumerate(table.entries):
        where = f"{pointer}/entries/{k}"
        yield from _entry_issues(entry, where, gpu_types)
        times = counts[entry.gpu_type, entry.num_gpus, entry.num_nodes]
        if times > 1:
            yield Issue(
                code="duplicate_entry",
                pointer=where,
                detail=f"{counted(entry.num_gpus, 'GPU')} of {entry.gpu_type!r} on {_nodes_text(entry.num_nodes)}: "
                f"listed {times} times; give one value",
            )


def _is_sound_table(table: ThroughputTable | GoodputTable, gpu_types: frozenset[str]) -> bool:
    """Whether `_table_issues` has nothing to say about the table: nearly all are sound."""
    if isinstance(table, ThroughputTable) and not (table.batch_size is None or 1 <= table.batch_size <= _COUNT_MAX):
        return False
    found = listed(table)
    named = _named_types(found.layout)
    # A sum is below infinity only where every value is a number.
    return named is not None and named <= gpu_types and min(found.values) > 0 and sum(found.values) < math.inf


@lru_cache(maxsize=64)
def _named_types(layout: Layout) -> frozenset[str] | None:
    """GPU types that are listed; None where there are none, a count is wrong, or something is listed twice."""
    are_sound = all(
        1 <= num_gpus <= _COUNT_MAX and (num_nodes is None or 1 <= num_nodes <= num_gpus)
        for _, num_gpus, num_nodes in layout.shapes
    )
    if not layout.shapes or not are_sound or len(set(layout.shapes)) < len(layout.shapes):
        return None
    return frozenset(gpu_type for gpu_type, _, _ in layout.shapes)


def _entry_issues(entry: TableEntry, pointer: str, gpu_types: Collection[str]) -> Iterator[Issue]:
    yield from _type_issues(entry.gpu_type, f"{pointer}/gpu_type", gpu_types)
    yield from _count_issues(entry.num_gpus, f"{pointer}/num_gpus")
    yield from _positive(entry.value, f"{pointer}/value")
    if entry.num_nodes is None:
        return
    yield from _count_issues(entry.num_nodes, f"{pointer}/num_nodes")
    if entry.num_nodes > entry.num_gpus:
        yield Issue(
            code="more_nodes_than_gpus",
            pointer=f"{pointer}/num_nodes",
            detail=f"{entry.num_nodes} nodes for {counted(entry.num_gpus, 'GPU')}; every node of a job holds at least "
            "one",
        )


def _batch_issues(batch: BatchRange, pointer: str) -> Iterator[Issue]:
    yield from _count_issues(batch.initial, f"{pointer}/initial")
    yield from _count_issues(batch.maximum, f"{pointer}/maximum")
    if not batch.maximum >= batch.initial:
        yield Issue(
            code="min_above_max",
            pointer=f"{pointer}/maximum",
            detail=f"initial {batch.initial} is above maximum {batch.maximum}",
        )


def _gradient_issues(gradient: GradientStatistics, pointer: str) -> Iterator[Issue]:
    for field in ("squared_norm", "variance"):
        yield from _not_negative(getattr(gradient, field), f"{pointer}/{field}")
    if gradient.squared_norm == 0 and gradient.variance == 0:
        yield Issue(
            code="not_positive",
            pointer=f"{pointer}/variance",
            detail="squared_norm and variance are both 0, so no batch size makes progress; one must be above 0",
        )


def _type_issues(name: str, pointer: str, gpu_types: Collection[str]) -> Iterator[Issue]:
    if name not in gpu_types:
        yield Issue(
            code="unknown_gpu_type",
            pointer=pointer,
            detail=f"no GPU type is called {name!r}; the cluster knows {sorted(gpu_types)}",
        )


def _empty_issues(collection: Collection[object] | Mapping[str, object], pointer: str) -> Iterator[Issue]:
    if not collection:
        yield Issue(code="empty", pointer=pointer, detail="is empty; give at least one entry, or no performance at all")


def _count_issues(value: int, pointer: str) -> Iterator[Issue]:
    if not value >= 1:
        yield Issue(code="not_positive", pointer=pointer, detail=f"is {value}; must be at least 1")
    elif value > _COUNT_MAX:
        yield Issue(code="out_of_range", pointer=pointer, detail=f"is {value}; must be at most {_COUNT_MAX}")


def _positive(value: float, pointer: str) -> Iterator[Issue]:
    if not (math.isfinite(value) and value > 0):
        yield Issue(code="not_positive", pointer=pointer, detail=f"is {value}; must be finite and above 0")


def _not_negative(value: float, pointer: str) -> Iterator[Issue]:
    if not (math.isfinite(value) and value >= 0):
        yield Issue(code="negative", pointer=pointer, detail=f"is {value}; must be finite and at least 0")


def _nodes_text(num_nodes: int | None) -> str:
    return "any number of nodes" if num_nodes is None else counted(num_nodes, "node")


def _escaped(name: str) -> str:
    """`name` as one reference token of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")
