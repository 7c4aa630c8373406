"""Plans of the policy: checked by themselves, no worse than all schedules, and those of Sia where it looks at Sia's
present alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.allocation.horizon.extraction import settled
from models.allocation.horizon.formulation import formulate_horizon
from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.horizon.validation import policy_issues
from models.allocation.sia.formulation import formulate_sia
from models.allocation.sia.parameters import SiaParameters
from models.clock import PhaseClock
from models.plan import Plan
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult, TerminationReason
from tests.models.allocation.horizon.scenes import random_parameters, timed_snapshot
from tests.models.allocation.horizon.test_check import queue, solved
from tests.models.placement.scenes import SEEDS, dice


def planned(
    snapshot: Snapshot, parameters: HorizonParameters, solver: str = "auto", gap: float = 0.0
) -> tuple[SolveResult, Plan | None]:
    """The result, and the plan where there is one, checked."""
    formulation = formulate_horizon(snapshot, parameters, PhaseClock())
    options = SolveOptions(solver=solver, relative_gap=gap, time_limit_s=20.0)
    result = formulation.solve(options, SolveMonitor())
    if result.incumbent is None or result.objective is None:
        return result, None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    return result, plan


@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_the_search_is_as_good_as_the_whole_program(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = timed_snapshot(rng, num_jobs=5), random_parameters(rng)
    result, _ = planned(snapshot, parameters)
    whole, _ = planned(snapshot, parameters, "highs")
    assert result.termination is whole.termination
    if whole.objective is not None:
        assert result.objective == pytest.approx(whole.objective, rel=1e-6)
        assert result.bound == pytest.approx(whole.objective, rel=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=SEEDS, price=st.sampled_from((1.0, 2.0)))
def test_one_interval_with_the_objective_of_sia_is_sia(seed: int, price: float) -> None:
    snapshot = timed_snapshot(dice(seed))
    parameters = HorizonParameters(objective=HorizonObjective.GOODPUT, num_intervals=1, restart_price=price)
    result, plan = planned(snapshot, parameters)
    formulation = formulate_sia(snapshot, SiaParameters(restart_price=price), PhaseClock())
    sia = formulation.solve(SolveOptions(relative_gap=0.0), SolveMonitor())
    assert result.termination is sia.termination
    if plan is not None and sia.incumbent is not None:
        assert result.objective == pytest.approx(sia.objective, rel=1e-9)
        theirs = formulation.extract(sia.incumbent, PhaseClock())
        assert sum(term.value for term in plan.score) == pytest.approx(sum(term.value for term in theirs.score))
        assert result.termination is TerminationReason.OPTIMAL


def test_what_a_solver_leaves_of_other_choices_is_no_part_of_the_plan() -> None:
    """A point within the tolerance of integers: the running job has 2e-6 of what begins with nothing."""
    formulation, _, objective = solved(queue())
    it = formulation.instance
    result = formulation.solve(SolveOptions(solver="auto"), SolveMonitor())
    assert result.incumbent is not None
    runs = int(np.flatnonzero(it.work.current >= 0)[0])
    waits = int(np.flatnonzero((it.schedules.job == runs) & (it.schedules.now < 0))[0])
    has = int(np.flatnonzero((it.schedules.job == runs) & (result.incumbent[: len(it.schedules)] > 0.5))[0])
    point = result.incumbent.copy()
    point[[waits, has]] += [2e-6, -2e-6]
    point[len(it.schedules) + it.schedules.pair[has]] -= 2e-6
    plan = formulation.extract(point, PhaseClock())
    assert formulation.violations(plan, objective) == []
    np.testing.assert_allclose(settled(it, point), result.incumbent, atol=1e-12)


def test_what_a_job_lacks_is_said_of_this_policy() -> None:
    snapshot = timed_snapshot(dice(0), num_jobs=1)
    without = replace(snapshot, jobs=(replace(snapshot.jobs[0], performance=None),))
    said = [
        issue.detail for issue in policy_issues(without, HorizonParameters()) if issue.code == "missing_performance"
    ]
    assert ["horizon needs one" in detail for detail in said] == [True]
