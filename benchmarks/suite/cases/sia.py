"""Cases of Sia: recorded policy inputs, a fitted moment of a published trace, generated snapshots."""

from collections.abc import Iterator
from functools import partial

from benchmarks.suite.case import Case
from benchmarks.workloads.generators import SiaSize, sia_snapshot
from benchmarks.workloads.published.sia_instances import instance_names, load_instance
from benchmarks.workloads.published.sia_traces import DATA, fitted_snapshot
from models.allocation.sia.descriptor import SIA
from models.allocation.sia.parameters import SiaParameters
from models.plan import PlanRequest

TINY = SiaSize(num_gpus=64, num_jobs=20, num_types=3)

# Jobs that wait: the scale series. 29 to 40 configurations in the published inputs, 33 here on three types.
_WAITING = (
    TINY,
    SiaSize(num_gpus=256, num_jobs=100, num_types=3),
    SiaSize(num_gpus=1_024, num_jobs=400, num_types=3),
    SiaSize(num_gpus=2_048, num_jobs=1_000, num_types=3),
    SiaSize(num_gpus=10_240, num_jobs=3_000, num_types=3),
    SiaSize(num_gpus=10_240, num_jobs=3_000, num_types=6),
    SiaSize(num_gpus=32_768, num_jobs=6_000, num_types=6),
    SiaSize(num_gpus=100_000, num_jobs=10_000, num_types=6),
    SiaSize(num_gpus=1_000_000, num_jobs=100_000, num_types=10),
)
# More jobs than GPUs.
_CROWDED = (
    SiaSize(num_gpus=256, num_jobs=400, num_types=3),
    SiaSize(num_gpus=2_048, num_jobs=3_000, num_types=3),
    SiaSize(num_gpus=10_240, num_jobs=12_000, num_types=3),
)
# Seven of ten jobs run: restart factors, and moves when the allocation is placed.
_RUNNING = (
    SiaSize(num_gpus=256, num_jobs=100, num_types=3, running=0.7),
    SiaSize(num_gpus=2_048, num_jobs=1_000, num_types=3, running=0.7),
    SiaSize(num_gpus=10_240, num_jobs=3_000, num_types=6, running=0.7),
    SiaSize(num_gpus=100_000, num_jobs=10_000, num_types=6, running=0.7),
)
# Nodes in part taken, drained or down: up to five coupling rows per GPU type instead of one.
_WORN = (
    SiaSize(num_gpus=256, num_jobs=100, num_types=3, running=0.7, wear=0.05),
    SiaSize(num_gpus=2_048, num_jobs=1_000, num_types=3, running=0.7, wear=0.05),
    SiaSize(num_gpus=10_240, num_jobs=3_000, num_types=6, running=0.7, wear=0.05),
)
_FITTED_GPUS = (64, 512, 2_048)
# Target of the performance matrix: so many jobs.
MATRIX_JOBS = 560


def sia_cases() -> Iterator[Case]:
    """All cases of Sia; those from published data only where the data lie beside the checkout."""
    for name in instance_names():
        num_gpus = int(name.partition("_")[0].lstrip("abcdefghijklmnopqrstuvwxyz"))
        yield Case(
            name=f"sia/recorded/{name}",
            problem=SIA.name,
            series="sia recorded",
            scale=num_gpus,
            size={"gpus": num_gpus},
            source="input of the released policy, recorded in its simulator; costs are given",
            make=partial(_recorded, name),
            seeded=False,
        )
    if DATA.is_dir():
        for num_gpus in _FITTED_GPUS:
            yield Case(
                name=f"sia/fitted/{num_gpus}",
                problem=SIA.name,
                series="sia fitted",
                scale=num_gpus,
                size={"gpus": num_gpus},
                source="busy moment of Helios trace 1, jobs with goodput models fitted to the published profiles, at "
                f"most {MATRIX_JOBS} of them",
                make=partial(_fitted, num_gpus),
                seeded=False,
            )
    for series, sizes in (("waiting", _WAITING), ("crowded", _CROWDED), ("running", _RUNNING), ("worn", _WORN)):
        for size in sizes:
            yield _generated(series, size)


def _generated(series: str, size: SiaSize) -> Case:
    shares = f"{size.running:.0%} of the jobs run, {size.wear:.0%} of the nodes are drained, down or in part in use"
    return Case(
        name=f"sia/{series}/{size.num_gpus}x{size.num_jobs}x{size.num_types}",
        problem=SIA.name,
        series=f"sia {series}, {size.num_types} GPU types",
        scale=size.num_gpus,
        size={"gpus": size.num_gpus, "jobs": size.num_jobs, "types": size.num_types},
        source=f"generated (benchmarks/workloads/generators.py): {shares}, at most {size.ceiling} GPUs a job",
        make=partial(_snapshot_of, size),
    )


def _recorded(name: str, _: int) -> PlanRequest:
    recorded = load_instance(name)
    return PlanRequest(snapshot=recorded.snapshot, parameters=recorded.parameters)


def _fitted(num_gpus: int, _: int) -> PlanRequest:
    return PlanRequest(snapshot=fitted_snapshot(num_gpus, MATRIX_JOBS), parameters=SiaParameters())


def _snapshot_of(size: SiaSize, seed: int) -> PlanRequest:
    return PlanRequest(snapshot=sia_snapshot(size, seed), parameters=SiaParameters())
