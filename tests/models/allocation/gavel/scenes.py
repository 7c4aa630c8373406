"""Clusters, jobs and plans that the tests of this folder share."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from models.allocation.gavel.formulation import GavelFormulation, formulate_gavel
from models.allocation.gavel.parameters import GavelMethod, GavelObjective, GavelParameters
from models.allocation.gavel.validation import policy_issues
from models.clock import PhaseClock
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.plan import Plan
from models.workload import Job, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult
from tests.models.placement.scenes import cluster, node, random_scene

# Steps/s on a V100 and on a K80 (Gavel section 4.1).
PAPER = {"j0": (4.0, 1.0), "j1": (3.0, 1.0), "j2": (2.0, 1.0)}


def table(speeds: Mapping[tuple[str, int], float], batch_size: int | None = 1) -> ThroughputTable:
    """Samples/s per (GPU type, count)."""
    return ThroughputTable(
        entries=tuple(TableEntry(gpu_type=kind, num_gpus=n, value=value) for (kind, n), value in speeds.items()),
        batch_size=batch_size,
    )


def paper(**also: Any) -> Snapshot:
    """Three jobs of one GPU, on one V100 and one K80."""
    jobs = tuple(
        Job(id=name, performance=table({("v100", 1): v100, ("k80", 1): k80}), **also)
        for name, (v100, k80) in PAPER.items()
    )
    return Snapshot(cluster=cluster(node("v", 1, "v100"), node("k", 1, "k80")), jobs=jobs)


def formulation_of(snapshot: Snapshot, **parameters: Any) -> GavelFormulation:
    return formulate_gavel(snapshot, GavelParameters(**parameters), PhaseClock())


def shares_of(snapshot: Snapshot, **parameters: Any) -> dict[str, dict[str, float]]:
    """Job -> GPU type -> share of its time, those that are not 0."""
    formulation = formulation_of(snapshot, **parameters)
    types = formulation.instance.configurations.gpu_types
    rows = formulation.shares.of_time.tolist()
    return {
        job.id: {name: share for name, share in zip(types, row, strict=True) if share > 0}
        for job, row in zip(snapshot.jobs, rows, strict=True)
    }


def solved(formulation: GavelFormulation, solver: str = "highs") -> SolveResult:
    return formulation.solve(SolveOptions(solver=solver, relative_gap=0.0, time_limit_s=20.0), SolveMonitor())


def planned(snapshot: Snapshot, **parameters: Any) -> tuple[Plan, SolveResult]:
    """The checked plan."""
    assert policy_issues(snapshot, GavelParameters(**parameters)) == []
    formulation = formulation_of(snapshot, **parameters)
    result = solved(formulation)
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    return plan, result


def given(plan: Plan) -> dict[str, str]:
    """Job -> GPU type."""
    return {item.job_id: item.gpu_type for item in plan.allocations}


def random_snapshot(rng: Random, *, num_nodes: int = 3, num_jobs: int = 5) -> Snapshot:
    """Nodes of mixed sizes, some drained, down or in use; jobs that run and wait, with sparse tables or none."""
    scene = random_scene(rng, num_nodes=num_nodes, num_jobs=num_jobs).snapshot
    types = [kind.name for kind in scene.cluster.gpu_types]
    jobs = []
    for job in scene.jobs:
        held = sum(len(part.gpus) for part in job.current or ())
        size = held or rng.choice((1, 1, 2, 3, 4, 8))
        speeds = {(name, size): rng.choice((1.0, 2.0, 5.0)) for name in types if rng.random() < 0.8}
        jobs.append(
            replace(
                job,
                min_gpus=size,
                max_gpus=None,
                gpu_types=None if held or rng.random() < 0.8 else (rng.choice(types),),
                reservation=None,
                weight=rng.choice((1.0, 1.0, 2.0)),
                age_s=rng.choice((0.0, 360.0, 5000.0)),
                performance=table(speeds) if speeds and rng.random() < 0.8 else None,
                remaining_iterations=rng.choice((10.0, 2000.0)),
                remaining_s=rng.choice((0.0, 100.0, 4000.0)),
                attained_s={name: rng.choice((0.0, 360.0, 1000.0)) for name in types if rng.random() < 0.5},
            )
        )
    return Snapshot(cluster=scene.cluster, jobs=tuple(jobs))


def random_parameters(rng: Random, method: GavelMethod = GavelMethod.HEURISTIC) -> dict[str, Any]:
    return {"method": method, "objective": rng.choice(list(GavelObjective)), "round_s": rng.choice((60.0, 360.0))}
