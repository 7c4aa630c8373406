"""Applications as they were measured: step times by placement and local batch, gradient noise by epoch and batch.

The layout of the profiles published with Sia (SOSP'23). A folder for each application has

    placements-TYPE.csv    placement (digits: GPUs on each node), local_bsz, step_time, sync_time (s)
    scalability-TYPE.csv   num_nodes, num_replicas, local_bsz, step_time, sync_time (s), for what was not placed so
    validation-BATCH.csv   an epoch a row: progress, grad_sqr, grad_var, when trained with that global batch

Progress counts steps of the smallest of these batches, at which a sample is worth most (efficiency 1).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from stowplan.errors import FileFormatError
from stowplan.files import read_text
from workloads.readers.table import (
    NUMBER,
    POSITIVE,
    POSITIVE_COUNT,
    Table,
    number,
    positive,
    positive_count,
    read_table,
)
from workloads.trace import TraceJob

_PLACEMENT = "GPUs on each node, a digit for each: 44"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Mean times of one training step without accumulation; `gpus` on each node, None where only sums are known.

    sync_time_s: the part of the step that waits for gradients; without it the step is one of accumulation.
    """

    num_nodes: int
    num_replicas: int
    local_batch: int
    step_time_s: float
    sync_time_s: float
    gpus: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Progress at its end, and the gradient in it: squared norm of the mean, and variance (same unit)."""

    progress: float
    squared_norm: float
    variance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """The epochs of a training with one global batch."""

    batch: int
    epochs: tuple[Epoch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeSteps:
    """What was measured on one GPU type; the smallest local batch, and what memory allows."""

    gpu_type: str
    steps: tuple[StepTime, ...]
    min_local_batch: int
    max_local_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationProfile:
    """An application; `validations` by batch, from the initial one to the largest.

    restart_s: how long it does no work after it got GPUs, planned_restart_s: what policies are told of that (None: as
    long as is true). slowdown: how many times longer than measured all steps take, of which policies know nothing.
    """

    application: str
    types: tuple[TypeSteps, ...]
    validations: tuple[Validation, ...]
    restart_s: float | None = None
    planned_restart_s: float | None = None
    slowdown: float = 1.0


def read_profiles(
    folder: Path, applications: Iterable[str], gpu_types: Collection[str]
) -> tuple[ApplicationProfile, ...]:
    """Read what a folder has of some applications on some GPU types; those of which it has nothing are left out.

    Raises
    ------
    FileFormatError
        Names file, line, column and what is wrong; also when the folder has nothing of them.
    """
    wanted = sorted(set(applications))
    found = {folder / name: _measured_types(folder / name, gpu_types) for name in wanted}
    profiles = tuple(_profile(own, types) for own, types in found.items() if types)
    if not profiles:
        what = f"placements of {', '.join(wanted)} on {', '.join(sorted(set(gpu_types)))}"
        raise FileFormatError.at(
            str(folder), None, f"has no {what}; there should be files APPLICATION/placements-TYPE.csv"
        )
    return profiles


def measured_in(folder: Path) -> tuple[list[str], list[str]]:
    """Which applications a folder has, and on which GPU types any of them was measured."""
    placed = list(folder.glob("*/placements-*.csv"))
    return sorted({path.parent.name for path in placed}), sorted(
        {path.stem.removeprefix("placements-") for path in placed}
    )


def covers(profiles: Iterable[ApplicationProfile], gpu_types: Collection[str]) -> Callable[[TraceJob], bool]:
    """Of which jobs it is known how fast they train: those whose application was measured on one of the types."""
    known = {profile.application for profile in profiles if any(kind.gpu_type in gpu_types for kind in profile.types)}
    return lambda job: job.num_gpus > 0 and job.application in known


def _measured_types(folder: Path, gpu_types: Iterable[str]) -> list[str]:
    """On which of the types an application was placed."""
    return [name for name in gpu_types if (folder / f"placements-{name}.csv").is_file()]


def _profile(folder: Path, gpu_types: Iterable[str]) -> ApplicationProfile:
    """The folder of one application."""
    types = tuple(_type_steps(folder, name) for name in gpu_types)
    return ApplicationProfile(application=folder.name, types=types, validations=_validations(folder))


def _type_steps(folder: Path, gpu_type: str) -> TypeSteps:
    placed = tuple(_placed(_table(folder / f"placements-{gpu_type}.csv")))
    if not placed:
        raise FileFormatError.at(str(folder / f"placements-{gpu_type}.csv"), None, "there are no steps in the file")
    others = folder / f"scalability-{gpu_type}.csv"
    more = tuple(_unplaced(_table(others))) if others.is_file() else ()
    batches = [step.local_batch for step in placed]
    return TypeSteps(
        gpu_type=gpu_type, steps=(*placed, *more), min_local_batch=min(batches), max_local_batch=max(batches)
    )


def _placed(table: Table) -> Iterator[StepTime]:
    placements = table.required("placement", _digits, _PLACEMENT)
    for gpus, (local_batch, step_s, sync_s) in zip(placements, _times(table), strict=True):
        yield StepTime(
            num_nodes=len(gpus),
            num_replicas=sum(gpus),
            local_batch=local_batch,
            step_time_s=step_s,
            sync_time_s=sync_s,
            gpus=gpus,
        )


def _unplaced(table: Table) -> Iterator[StepTime]:
    nodes, replicas = (table.required(name, positive_count, POSITIVE_COUNT) for name in ("num_nodes", "num_replicas"))
    for num_nodes, num_replicas, (local_batch, step_s, sync_s) in zip(nodes, replicas, _times(table), strict=True):
        yield StepTime(
            num_nodes=num_nodes,
            num_replicas=num_replicas,
            local_batch=local_batch,
            step_time_s=step_s,
            sync_time_s=sync_s,
        )


def _times(table: Table) -> list[tuple[int, float, float]]:
    steps_s = table.required("step_time", positive, POSITIVE)
    syncs_s = table.required("sync_time", number, NUMBER)
    for k, (step_s, sync_s) in enumerate(zip(steps_s, syncs_s, strict=True)):
        if sync_s >= step_s:
            raise table.fault(k, "sync_time", f"is {sync_s}; must be below step_time, which is {step_s}")
    return list(zip(table.required("local_bsz", positive_count, POSITIVE_COUNT), steps_s, syncs_s, strict=True))


def _validations(folder: Path) -> tuple[Validation, ...]:
    """By batch. Epochs must be as many for each: a training may change its batch in between."""
    found = sorted((_batch_of(path), path) for path in folder.glob("validation-*.csv"))
    if not found:
        raise FileFormatError.at(str(folder), None, "has no validation-BATCH.csv, which tells how long a training is")
    validations = tuple(Validation(batch=batch, epochs=_epochs(path)) for batch, path in found)
    for validation, (_, path) in zip(validations, found, strict=True):
        if len(validation.epochs) != len(validations[0].epochs):
            raise FileFormatError.at(
                str(path), None, f"has {len(validation.epochs)} epochs, {found[0][1].name} {len(validations[0].epochs)}"
            )
    return validations


def _batch_of(path: Path) -> int:
    batch = path.stem.removeprefix("validation-")
    if not batch.isdecimal() or not int(batch):
        raise FileFormatError.at(str(path), None, f"is named after batch {batch!r}; must be {POSITIVE_COUNT}")
    return int(batch)


def _epochs(path: Path) -> tuple[Epoch, ...]:
    table = _table(path)
    progress = table.required("progress", positive, POSITIVE)
    for k, (earlier, later) in enumerate(pairwise(progress), start=1):
        if later <= earlier:
            raise table.fault(k, "progress", f"is {later}; must be above that of the epoch before, {earlier}")
    if not progress:
        raise FileFormatError.at(str(path), None, "there are no epochs in the file")
    norms = table.required("grad_sqr", number, NUMBER)
    variances = table.required("grad_var", positive, POSITIVE)
    return tuple(
        Epoch(progress=done, squared_norm=squared_norm, variance=variance)
        for done, squared_norm, variance in zip(progress, norms, variances, strict=True)
    )


def _table(path: Path) -> Table:
    return read_table(read_text(path), str(path))


def _digits(cell: str) -> tuple[int, ...]:
    gpus = tuple(map(int, cell)) if cell.isdecimal() else ()
    if not gpus or 0 in gpus:
        raise ValueError(cell)
    return gpus
