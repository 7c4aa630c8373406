"""Jobs, snapshots and plans that the tests of this folder share."""

from dataclasses import replace
from random import Random
from typing import Any

from models.allocation.elasticflow.formulation import ElasticFlowFormulation, formulate_elasticflow
from models.allocation.elasticflow.parameters import ElasticFlowMethod, ElasticFlowParameters
from models.allocation.elasticflow.validation import policy_issues
from models.clock import PhaseClock
from models.plan import Plan
from models.workload import Job, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult
from tests.models.allocation.gavel.scenes import table
from tests.models.placement.scenes import random_scene

# Samples/s on 1, 2 and 4 GPUs of type a: concave.
CONCAVE = {("a", 1): 1.0, ("a", 2): 1.5, ("a", 4): 2.0}
LINEAR = {("a", 1): 1.0, ("a", 2): 2.0, ("a", 4): 4.0}


def job(name: str, work: float, deadline_s: float | None, speeds: Any = None, **also: Any) -> Job:
    """`work` samples until a deadline; as fast as LINEAR."""
    performance = table(LINEAR if speeds is None else speeds)
    return Job(id=name, remaining_iterations=work, deadline_s=deadline_s, performance=performance, **also)


def formulation_of(snapshot: Snapshot, **parameters: Any) -> ElasticFlowFormulation:
    return formulate_elasticflow(snapshot, ElasticFlowParameters(**parameters), PhaseClock())


def solved(formulation: ElasticFlowFormulation, solver: str = "highs") -> SolveResult:
    return formulation.solve(SolveOptions(solver=solver, relative_gap=0.0, time_limit_s=20.0), SolveMonitor())


def planned(snapshot: Snapshot, **parameters: Any) -> tuple[Plan, SolveResult]:
    """The checked plan."""
    assert policy_issues(snapshot, ElasticFlowParameters(**parameters)) == []
    formulation = formulation_of(snapshot, **parameters)
    result = solved(formulation)
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    found = formulation.violations(plan, result.objective)
    assert found == [], found
    return plan, result


def given(plan: Plan) -> dict[str, int]:
    """Job -> GPUs."""
    return {item.job_id: item.num_gpus for item in plan.allocations}


def guaranteed(plan: Plan) -> set[str]:
    """Jobs whose deadline is guaranteed."""
    return {term.job_id or "" for term in plan.score if term.term == "deadline_met"}


def random_snapshot(rng: Random, *, num_nodes: int = 2, num_jobs: int = 4) -> Snapshot:
    """Nodes of mixed sizes, some drained, down or in use; jobs that run and wait, with sparse tables."""
    scene = random_scene(rng, num_nodes=num_nodes, num_jobs=num_jobs).snapshot
    types = [kind.name for kind in scene.cluster.gpu_types]
    jobs = []
    for one in scene.jobs:
        speeds = {(name, n): rng.choice((1.0, 2.0)) * n**0.7 for name in types for n in (1, 2, 4) if rng.random() < 0.7}
        jobs.append(
            replace(
                one,
                min_gpus=1,
                max_gpus=None,
                gpu_types=None if one.current or rng.random() < 0.8 else (rng.choice(types),),
                reservation=None,
                weight=rng.choice((1.0, 1.0, 2.0)),
                attained_gpu_s=rng.choice((0.0, 0.0, 9.0)),
                restart_cost_s=rng.choice((0.0, 20.0)),
                performance=table(speeds or {(types[0], 1): 1.0}),
                remaining_iterations=rng.choice((50.0, 200.0, 600.0)),
                deadline_s=rng.choice((None, 50.0, 150.0, 300.0)),
            )
        )
    return Snapshot(cluster=scene.cluster, jobs=tuple(jobs))


def random_parameters(rng: Random, method: ElasticFlowMethod = ElasticFlowMethod.HEURISTIC) -> dict[str, Any]:
    return {
        "method": method,
        "slot_s": rng.choice((60.0, 100.0)),
        "max_slots": rng.choice((2, 3, 12)),
        "best_effort": rng.random() < 0.5,
    }
