"""Cases of the horizon: jobs that run and wait, of most of which it is known how much they have left."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from benchmarks.suite.case import Case
from benchmarks.workloads.generators import SiaSize, sia_snapshot
from models.allocation.horizon.descriptor import HORIZON
from models.allocation.horizon.parameters import HorizonParameters
from models.plan import PlanRequest

# Targets: 20 ms, 0.5 s, 5 s CPU.
_SIZES = (
    SiaSize(num_gpus=64, num_jobs=20, num_types=3, running=0.7),
    SiaSize(num_gpus=2_048, num_jobs=560, num_types=3, running=0.7),
    SiaSize(num_gpus=10_240, num_jobs=3_000, num_types=3, running=0.7),
)
_KNOWN = 0.9
_MEDIAN_ITERATIONS = 3_000.0


def horizon_cases() -> Iterator[Case]:
    """All cases of the horizon."""
    for size in _SIZES:
        yield Case(
            name=f"horizon/running/{size.num_gpus}x{size.num_jobs}",
            problem=HORIZON.name,
            series="horizon running",
            scale=size.num_gpus,
            size={"gpus": size.num_gpus, "jobs": size.num_jobs},
            source="generated (benchmarks/workloads/generators.py): seven of ten run, nine of ten say what is left",
            make=partial(horizon_request, size),
        )


def horizon_request(size: SiaSize, seed: int) -> PlanRequest:
    """Jobs that run and wait, nine of ten of which say what is left."""
    snapshot = sia_snapshot(size, seed)
    rng = random.Random(seed)  # noqa: S311 - reproducible instances, no secret
    jobs = tuple(
        replace(job, remaining_iterations=_MEDIAN_ITERATIONS * rng.lognormvariate(0.0, 1.5))
        if rng.random() < _KNOWN
        else job
        for job in snapshot.jobs
    )
    return PlanRequest(snapshot=replace(snapshot, jobs=jobs), parameters=HorizonParameters())
