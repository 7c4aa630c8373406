"""Small allocation problems that the tests of this folder share."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from models.allocation.sia.formulation import SiaFormulation, formulate_sia
from models.allocation.sia.instance import SiaInstance
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.clock import PhaseClock
from models.configurations import enumerate_configurations
from models.performance.goodput.spec import GoodputTable, TableEntry
from models.plan import Plan
from models.workload import Adaptivity, Job, Reservation, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult
from tests.models.placement.scenes import random_scene

Table = Mapping[tuple[str, int], float]


def table(goodput: Table) -> GoodputTable:
    """Goodput per (GPU type, count)."""
    return GoodputTable(
        entries=tuple(
            TableEntry(gpu_type=kind, num_gpus=count, value=value) for (kind, count), value in goodput.items()
        )
    )


def solve(formulation: SiaFormulation, solver: str = "highs") -> SolveResult:
    return formulation.solve(SolveOptions(solver=solver, relative_gap=0.0, time_limit_s=20.0), SolveMonitor())


def plan_of(snapshot: Snapshot, parameters: SiaParameters) -> tuple[Plan, float]:
    """The optimal plan, checked, and its objective."""
    formulation = formulate_sia(snapshot, parameters, PhaseClock())
    result = solve(formulation)
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    return plan, result.objective


def given(plan: Plan) -> dict[str, tuple[str, int]]:
    """Job id -> GPU type and count."""
    return {item.job_id: (item.gpu_type, item.num_gpus) for item in plan.allocations}


def random_snapshot(rng: Random, *, num_nodes: int = 3, num_jobs: int = 4) -> Snapshot:
    """Nodes of mixed sizes, some drained, down or in use; jobs of every kind with sparse goodput tables."""
    snapshot = random_scene(rng, num_nodes=num_nodes, num_jobs=num_jobs).snapshot
    configurations = enumerate_configurations(snapshot.cluster)
    shapes = [
        (configurations.gpu_types[t], int(n))
        for t, n in zip(configurations.type_index, configurations.num_gpus, strict=True)
    ]
    jobs = []
    for job in snapshot.jobs:
        known = {shape: rng.uniform(0.5, 3.0) * shape[1] ** 0.7 for shape in shapes if rng.random() < 0.5}
        jobs.append(_decorated(rng, job, known))
    return Snapshot(cluster=snapshot.cluster, jobs=tuple(jobs))


def _decorated(rng: Random, job: Job, known: Table) -> Job:
    reservation = None
    counts = [count for _, count in known]
    smallest = rng.choice((1, 1, 1, 2, 3))
    if known and rng.random() < 0.15:
        kind, count = rng.choice(list(known))
        reservation, smallest = Reservation(gpu_type=kind, num_gpus=count), 1
    rigid = reservation is None and bool(known) and rng.random() < 0.2
    if rigid:
        smallest = rng.choice(counts)
    return replace(
        job,
        performance=table(known or {("a", 1000): 1.0}),
        min_gpus=smallest,
        max_gpus=None if rigid or reservation or rng.random() < 0.6 else smallest + rng.randint(0, 8),
        adaptivity=Adaptivity.RIGID if rigid else Adaptivity.ELASTIC,
        reservation=None if not job.preemptible else reservation,
        weight=rng.choice((0.5, 1.0, 1.0, 3.0)),
        age_s=rng.choice((0.0, 60.0, 3600.0)),
        num_restarts=rng.randint(0, 3),
        restart_cost_s=rng.choice((0.0, 30.0, 250.0)),
    )


def random_parameters(rng: Random) -> SiaParameters:
    return SiaParameters(
        fairness_power=rng.choice((-1.0, -0.5, 0.5, 1.0)),
        queue_penalty=rng.choice((0.0, 0.5, 1.1, 4.0)),
        double_at_most=rng.random() < 0.3,
        restart_price=rng.choice((0.0, 1.0, 1.0, 3.0)),
        price_suspension=rng.random() < 0.3,
        objective=rng.choice((SiaObjective.GOODPUT, SiaObjective.GOODPUT, SiaObjective.GIVEN_COSTS)),
    )


def options_of(instance: SiaInstance, job: int) -> list[int]:
    """Configurations that a planned job may be given."""
    return [int(c) for i, c in zip(instance.pair_jobs, instance.pair_configurations, strict=True) if i == job]
