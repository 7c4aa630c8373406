"""What can be wrong with measured applications that did not come from a folder; pointers into what was given."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from stowplan.errors import Issue, pointer_of
from workloads.profiles import ApplicationProfile, StepTime, TypeSteps, Validation


def profile_issues(profiles: Sequence[ApplicationProfile]) -> Iterator[Issue]:
    """Every fault beyond the range of single values."""
    yield from _repeated([profile.application for profile in profiles], "", "application")
    for k, profile in enumerate(profiles):
        where = pointer_of(k)
        yield from _repeated([measured.gpu_type for measured in profile.types], f"{where}/types", "gpu_type")
        for t, measured in enumerate(profile.types):
            yield from _type_issues(measured, f"{where}{pointer_of('types', t)}")
        yield from _validation_issues(profile.validations, f"{where}/validations")


def _repeated(names: Sequence[object], where: str, field: str) -> Iterator[Issue]:
    seen: set[object] = set()
    for k, name in enumerate(names):
        if name in seen:
            yield Issue(
                code="listed_twice",
                pointer=where + pointer_of(k, field),
                detail=f"{name!r} is listed before; list it once",
            )
        seen.add(name)


def _type_issues(measured: TypeSteps, where: str) -> Iterator[Issue]:
    if measured.max_local_batch < measured.min_local_batch:
        detail = f"is {measured.max_local_batch}; must be at least min_local_batch, which is {measured.min_local_batch}"
        yield _invalid(f"{where}/max_local_batch", detail)
    if all(step.gpus is None for step in measured.steps):
        yield _invalid(f"{where}/steps", "has none with `gpus`; give the steps of at least one placement")
    for k, step in enumerate(measured.steps):
        yield from _step_issues(step, where + pointer_of("steps", k))


def _step_issues(step: StepTime, where: str) -> Iterator[Issue]:
    if step.sync_time_s >= step.step_time_s:
        detail = f"is {step.sync_time_s}; must be below step_time_s, which is {step.step_time_s}"
        yield _invalid(f"{where}/sync_time_s", detail)
    placed = None if step.gpus is None else (len(step.gpus), sum(step.gpus))
    if placed is not None and placed != (step.num_nodes, step.num_replicas):
        detail = (
            f"are {placed[1]} on {placed[0]} nodes; num_replicas is {step.num_replicas}, num_nodes {step.num_nodes}"
        )
        yield _invalid(f"{where}/gpus", detail)
    if step.num_replicas < step.num_nodes:
        detail = f"is {step.num_replicas}; must be at least num_nodes, which is {step.num_nodes}"
        yield _invalid(f"{where}/num_replicas", detail)


def _validation_issues(validations: Sequence[Validation], where: str) -> Iterator[Issue]:
    """Batches rise, and epochs are as many for each: a training may change its batch in between."""
    for k, (earlier, later) in enumerate(pairwise(validations), start=1):
        if later.batch <= earlier.batch:
            detail = f"is {later.batch}; must be above that of the one before, {earlier.batch}"
            yield _invalid(where + pointer_of(k, "batch"), detail)
    for k, validation in enumerate(validations):
        num_epochs, first = len(validation.epochs), len(validations[0].epochs)
        if num_epochs != first:
            yield _invalid(where + pointer_of(k, "epochs"), f"has {num_epochs} epochs, the first validation {first}")
        progress = [epoch.progress for epoch in validation.epochs]
        for e, (before, after) in enumerate(pairwise(progress), start=1):
            if after <= before:
                detail = f"is {after}; must be above that of the epoch before, {before}"
                yield _invalid(where + pointer_of(k, "epochs", e, "progress"), detail)


def _invalid(pointer: str, detail: str) -> Issue:
    return Issue(code="invalid_entry", pointer=pointer, detail=detail)
