"""A program that is too large for its limit is not declared."""

from dataclasses import replace

import pytest

from models.clock import PhaseClock
from models.placement.ahead import declaration
from models.placement.ahead.formulation import AheadFormulation, formulate_ahead
from models.placement.ahead.parameters import AheadParameters
from models.placement.ahead.size import num_terms
from models.plan import PlanRequest
from models.planning import plan
from models.workload import Job, Snapshot
from solver.options import SolveOptions
from solver.registry import EXACT
from solver.solve import solve
from tests.models.placement.ahead.scenes import DAY_S, cluster, on, over, wanted

_PRICES = AheadParameters(alpha=0.3, eviction_price_per_node=1.0, restart_price_per_gpu_hour=0.01)


def scene(num_minipods: int) -> Snapshot:
    """Minipods of eight nodes, of which every other one is in use by a job that may be moved; two jobs to plan."""
    kind = cluster(*[8] * num_minipods)
    running = (
        Job(id=f"j{k}", current=on(node.id), lasting=over(p50=1 + k % 3, p90=5), restart_cost_s=60.0)
        for k, node in enumerate(kind.nodes)
        if k % 2
    )
    big = (wanted(name, rows=3, columns=2, latest_start_s=3 * DAY_S) for name in ("one", "two"))
    return Snapshot(cluster=kind, jobs=(*big, *running))


@pytest.mark.parametrize(("num_minipods", "num_starts"), [(2, 4), (6, 8), (6, 2)])
def test_the_terms_of_the_program_are_known_before_it_is_declared(num_minipods: int, num_starts: int) -> None:
    found = formulate_ahead(scene(num_minipods), replace(_PRICES, num_starts=num_starts), PhaseClock())
    assert isinstance(found, AheadFormulation)
    problem = found.problem
    num = problem.matrix.nnz + int((problem.objective != 0).sum())
    assert num / 1.3 <= num_terms(found.instance) <= 1.3 * num


def test_a_program_that_is_too_large_is_answered_by_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(declaration, "ahead_model", never)
    options = SolveOptions(solver="highs", time_limit_s=0.02)
    outcome = plan(PlanRequest(snapshot=scene(6), parameters=_PRICES, options=options))
    assert outcome.solver == EXACT
    assert outcome.plan is not None
    assert outcome.objective is not None
    (warning,) = (issue for issue in outcome.warnings if issue.code == "not_declared")
    assert "too much of the limit of 0.02 s" in warning.detail


def test_declaring_counts_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def solved(problem: object, options: SolveOptions, monitor: object) -> object:
        seen.append(options.time_limit_s)
        return solve(problem, options, monitor)  # type: ignore[arg-type]

    monkeypatch.setattr("models.placement.ahead.formulation.solve", solved)
    options = SolveOptions(solver="highs", time_limit_s=30.0)
    outcome = plan(PlanRequest(snapshot=scene(1), parameters=replace(_PRICES, num_starts=2), options=options))
    assert outcome.solver == "highs"
    assert len(seen) == 1
    assert 0.0 < seen[0] < 30.0
