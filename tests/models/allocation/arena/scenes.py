"""Small problems that the tests of this folder share."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from models.allocation.arena.formulation import ArenaIlpFormulation
from models.allocation.arena.parameters import ArenaAnswer, ArenaMethod, ArenaObjective, ArenaParameters
from models.allocation.arena.policy import formulate_arena
from models.allocation.buddy_blocks import buddy_blocks
from models.clock import PhaseClock
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.plan import Plan
from models.workload import Adaptivity, Job, Reservation, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult
from tests.models.placement.scenes import random_scene

# Algorithm 1 itself, whatever the integer program beside it finds.
HEURISTIC = ArenaParameters(method=ArenaMethod.HEURISTIC, answer=ArenaAnswer.ALGORITHM)
ILP = ArenaParameters(method=ArenaMethod.ILP)


def table(samples_per_s: Mapping[tuple[str, int], float], batch_size: int | None = 100) -> ThroughputTable:
    """Throughput per (GPU type, count), on any number of nodes."""
    entries = (TableEntry(gpu_type=kind, num_gpus=n, value=value) for (kind, n), value in samples_per_s.items())
    return ThroughputTable(entries=tuple(entries), batch_size=batch_size)


def formulation_of(snapshot: Snapshot, parameters: ArenaParameters) -> ArenaIlpFormulation:
    formulation = formulate_arena(snapshot, parameters, PhaseClock())
    assert isinstance(formulation, ArenaIlpFormulation)
    return formulation


def solved(formulation: ArenaIlpFormulation, solver: str = "highs") -> SolveResult:
    return formulation.solve(SolveOptions(solver=solver, relative_gap=0.0, time_limit_s=20.0), SolveMonitor())


def plan_of(snapshot: Snapshot, parameters: ArenaParameters) -> tuple[Plan, SolveResult]:
    """The plan, checked, and the result behind it."""
    formulation = formulation_of(snapshot, parameters)
    result = solved(formulation)
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    return plan, result


def given(plan: Plan) -> dict[str, tuple[str, int]]:
    """Job id -> GPU type and count."""
    return {item.job_id: (item.gpu_type, item.num_gpus) for item in plan.allocations}


def reasons(plan: Plan) -> dict[str, str]:
    """Job id -> why it gets nothing."""
    return {item.job_id: item.reason for item in plan.unplaced}


def random_snapshot(rng: Random, *, num_nodes: int = 3, num_jobs: int = 4) -> Snapshot:
    """Nodes of mixed sizes, some drained, down or in use; jobs of every kind with sparse throughput tables."""
    snapshot = random_scene(rng, num_nodes=num_nodes, num_jobs=num_jobs).snapshot
    blocks = buddy_blocks(snapshot.cluster)
    shapes = [(blocks.gpu_types[t], int(n)) for t, n in zip(blocks.type_index, blocks.num_gpus, strict=True)]
    jobs = []
    for job in snapshot.jobs:
        speed = rng.uniform(0.5, 5.0)
        known = {shape: speed * rng.uniform(0.5, 1.0) * shape[1] ** 0.7 for shape in shapes if rng.random() < 0.6}
        jobs.append(_decorated(rng, job, known))
    return Snapshot(cluster=snapshot.cluster, jobs=tuple(jobs))


def _decorated(rng: Random, job: Job, known: Mapping[tuple[str, int], float]) -> Job:
    reservation = None
    smallest = rng.choice((1, 1, 1, 2, 3))
    if known and job.preemptible and rng.random() < 0.1:
        kind, count = rng.choice(list(known))
        reservation, smallest = Reservation(gpu_type=kind, num_gpus=count), 1
    rigid = reservation is None and bool(known) and rng.random() < 0.2
    if rigid:
        smallest = rng.choice([count for _, count in known])
    return replace(
        job,
        performance=table(known or {("a", 1000): 1.0}, batch_size=rng.choice((32, 256))),
        min_gpus=smallest,
        max_gpus=None if rigid or reservation or rng.random() < 0.6 else smallest + rng.randint(0, 8),
        adaptivity=Adaptivity.RIGID if rigid else Adaptivity.ELASTIC,
        reservation=reservation,
        weight=rng.choice((0.5, 1.0, 1.0, 3.0)),
        age_s=rng.choice((0.0, 60.0, 4000.0)),
        restart_cost_s=rng.choice((0.0, 30.0, 900.0)),
        priority=rng.choice((1, 1, 2, 3)),
        remaining_iterations=rng.choice((10.0, 100.0, 1000.0)),
        deadline_s=rng.choice((None, 300.0, 3000.0, 30000.0)),
    )


def random_parameters(rng: Random, method: ArenaMethod) -> ArenaParameters:
    return ArenaParameters(
        method=method,
        answer=rng.choice(list(ArenaAnswer)),
        objective=rng.choice(list(ArenaObjective)),
        normalise=rng.random() < 0.6,
        priority_ratio=rng.choice((1.0, 2.0)),
        search_depth=rng.choice((0, 1, 3)),
        horizon_s=rng.choice((600.0, 3600.0)),
        mean_weight=rng.choice((0.01, 0.1, 1.0)),
        urgency=rng.choice((0.0, 0.5, 1.0)),
        longest_wait_s=rng.choice((None, 3600.0)),
        counts=rng.choice((None, None, (1, 2, 8))),
    )
