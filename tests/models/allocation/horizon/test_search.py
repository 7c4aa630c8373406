"""The search has an answer whenever it ends, tells of what is better alone, and closes the gap of times."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.workloads.generators import SiaSize, sia_snapshot
from models.allocation.horizon import search
from models.allocation.horizon.assembly import relaxation, value
from models.allocation.horizon.formulation import HorizonFormulation, formulate_horizon
from models.allocation.horizon.instance import HorizonInstance, horizon_instance
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.horizon.search import Search
from models.clock import PhaseClock
from models.plan import PlanRequest
from models.planning import plan
from models.workload import Reservation, Snapshot
from solver.decomposition import sifting
from solver.decomposition.sifting import Sifted, sift
from solver.decomposition.structure import ChoiceProblem
from solver.feasibility import violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, TerminationReason
from solver.solve import solve
from stowplan.arrays import FloatVector
from stowplan.errors import BackendError, InputError
from tests.models.allocation.horizon.scenes import instance_of, random_parameters, timed_snapshot
from tests.models.allocation.horizon.test_check import PARAMETERS, job, queue
from tests.models.allocation.horizon.tiered import tiered_snapshot
from tests.models.placement.scenes import SEEDS, cluster, dice, node, on
from topology.calendar import CalendarEntry, EntryKind


def _formulated(snapshot: Snapshot) -> HorizonFormulation:
    formulation = formulate_horizon(snapshot, PARAMETERS, PhaseClock())
    assert isinstance(formulation, HorizonFormulation)
    return formulation


def _random(seed: int, **asked: Any) -> HorizonFormulation:
    """With tiers or without, whatever is asked for."""
    rng = dice(seed)
    parameters = replace(random_parameters(rng), **asked)
    snapshot = rng.choice((tiered_snapshot, timed_snapshot))(rng)
    return HorizonFormulation(horizon_instance(snapshot, parameters, PhaseClock()))


def _recorded(monkeypatch: pytest.MonkeyPatch, *, worse: bool = False) -> list[tuple[MatrixProblem, SolveOptions]]:
    """What the search asks of the solver, which with `worse` first finds points that are worse than any known."""
    asked: list[tuple[MatrixProblem, SolveOptions]] = []

    def recording(problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        asked.append((problem, options))
        if worse:
            point = np.zeros(problem.num_columns)
            monitor.on_progress(Progress(elapsed_s=0.0, objective=1e9, incumbent=point))
        return solve(problem, options, monitor)

    monkeypatch.setattr(search, "solve", recording)
    return asked


@pytest.mark.parametrize("is_canceled", [True, False])
def test_a_limit_before_anything_is_solved_leaves_who_runs_where_it_is(is_canceled: bool) -> None:
    """`short` runs and stays, `long` waits until the horizon: there is that plan, and it is checked."""
    told: list[Progress] = []
    formulation, monitor = _formulated(queue()), SolveMonitor(on_progress=told.append)
    if is_canceled:
        monitor.canceled.set()
    result = formulation.solve(SolveOptions(solver="auto", time_limit_s=60.0 if is_canceled else 1e-9), monitor)
    assert result.termination is TerminationReason.FEASIBLE
    assert result.limit is (Limit.INTERRUPTED if is_canceled else Limit.TIME)
    assert result.objective == pytest.approx((30 + 960 + 10 + 1000) / 2)
    assert result.bound is not None
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert [item.job_id for item in plan.allocations] == ["short"]
    # Without prices nobody knows what a start takes from others.
    assert ["cost others" in item.detail or "others_lose_s" in item.counts for item in plan.unplaced] == [False]
    assert [item.reason for item in plan.unplaced] == ["not_decided"]
    assert plan.unplaced[0].detail.startswith("the solve ended at a limit before it was decided whether it starts now")
    assert formulation.violations(plan, result.objective or 0.0) == []
    assert [progress.objective for progress in told] == [result.objective]


def test_a_limit_before_anything_is_solved_starts_the_least_work_by_weight() -> None:
    """Two GPUs are left beside who runs: for 100 s at weight 1 and 300 s at weight 6, not for 200 s at weight 1."""
    runs = job("runs", 500.0, {1: 1.0}, remaining_s=500.0, current=on({"n": (0,)}))
    waiting = [
        replace(job(name, left_s, {1: 1.0}, remaining_s=left_s), weight=weight)
        for name, left_s, weight in (("long", 200.0, 1.0), ("short", 100.0, 1.0), ("dear", 300.0, 6.0))
    ]
    formulation = _formulated(Snapshot(cluster=cluster(node("n", 3)), jobs=(*waiting, runs)))
    result = formulation.solve(SolveOptions(solver="auto", time_limit_s=1e-9), SolveMonitor())
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert {item.job_id for item in plan.allocations} == {"runs", "short", "dear"}
    assert formulation.violations(plan, result.objective or 0.0) == []


@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_a_limit_before_anything_is_solved_leaves_a_plan_that_is_checked(seed: int) -> None:
    """With tiers or without, whatever is asked for."""
    formulation = _random(seed)
    result = formulation.solve(SolveOptions(solver="auto", time_limit_s=1e-9), SolveMonitor())
    if result.incumbent is None or result.objective is None:
        assert solve(formulation.problem, SolveOptions()).termination is TerminationReason.INFEASIBLE
        return
    assert not violations(formulation.problem, result.incumbent)
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []


@pytest.mark.parametrize("tail", [0.0, 0.5])
@pytest.mark.parametrize("speed", [1.1, 7.5])
def test_a_limit_before_anything_is_solved_leaves_the_best_that_is_known(speed: float, tail: float) -> None:
    """A job starts with the least GPU seconds, on one GPU, unless it ends earlier on eight behind the horizon."""
    waiting = job("x", 10_000.0, {1: 1.0, 8: speed}, remaining_s=10_000.0)
    parameters = replace(PARAMETERS, tail=tail)
    it = instance_of(Snapshot(cluster=cluster(node("n", 8)), jobs=(waiting,)), parameters)
    result = HorizonFormulation(it).solve(SolveOptions(solver="auto", time_limit_s=1e-9), SolveMonitor())
    known = Search(it, SolveOptions(), SolveMonitor())._starts()
    assert result.objective == min(value(it, point) for point in known)
    assert result.objective == pytest.approx(min(10 + 10_000, 960 + 10 + 10_000 / speed))


def test_what_is_known_first_keeps_to_the_calendar() -> None:
    """The node of a running job closes after a minute and a half: it is planned there until then at most."""
    running = job("x", 500.0, {1: 1.0}, remaining_s=500.0, age_s=900.0, current=on({"n": (0,)}))
    closes = CalendarEntry(name="m", kind=EntryKind.MAINTENANCE, from_s=90.0, until_s=900.0, nodes=("n",))
    snapshot = Snapshot(cluster=cluster(node("n", 1)), jobs=(running,), calendar=(closes,))
    without = replace(snapshot, calendar=())
    monitor = SolveMonitor()
    monitor.canceled.set()
    objectives = []
    for calendar in (without, snapshot):
        formulation = HorizonFormulation(horizon_instance(without, PARAMETERS, PhaseClock(), calendar))
        result = formulation.solve(SolveOptions(solver="auto"), monitor)
        assert result.incumbent is not None
        assert not violations(formulation.problem, result.incumbent)
        objectives.append(result.objective)
    # 60 s of 500 are done, the rest is for after the horizon.
    assert objectives == pytest.approx([500.0, 960 + 10 + 440])


@pytest.mark.parametrize(("seed", "optimum"), [(756, 273.0952380952381), (20434, 103.91804944124621)])
def test_highs_presolves_what_it_takes_for_worse_than_it_is(seed: int, optimum: float) -> None:
    """With all its rules HiGHS claims 285 and 112.6, which are feasible, and proven by nothing but its presolve."""
    for solver in ("highs", "scip", "auto"):
        result = _random(seed, quotas={}).solve(SolveOptions(solver=solver, relative_gap=0.0), SolveMonitor())
        assert result.termination is TerminationReason.OPTIMAL
        assert result.objective == pytest.approx(optimum)


def _far_apart(seed: int) -> HorizonInstance:
    """Six jobs whose weights differ by up to 1e12, of which the last to end count for more."""
    rng = dice(seed)
    snapshot = timed_snapshot(rng, num_jobs=6)
    parameters = replace(random_parameters(rng), tail=rng.choice((0.3, 1.0)))
    jobs = tuple(replace(one, weight=10.0 ** rng.uniform(-6, 6)) for one in snapshot.jobs)
    return instance_of(replace(snapshot, jobs=jobs), parameters)


@pytest.mark.parametrize("seed", [90, 143, 188, 225])
def test_the_tail_of_weights_that_are_far_apart_is_solved(seed: int) -> None:
    """With one unit for all columns HiGHS refuses one of these, calls two infeasible, and ends 3e-6 below one."""
    instance = _far_apart(seed)
    relaxed = relaxation(instance)
    assert np.abs(relaxed.coupling.data).max() <= 2.0**10
    found = sift(relaxed, 0.0, np.zeros(relaxed.limit.size))
    assert found.objective == pytest.approx(found.reduced.bound, rel=1e-6)
    assert (relaxed.coupling.T @ found.point <= relaxed.limit + 1e-5 * np.maximum(1.0, np.abs(relaxed.limit))).all()
    result = HorizonFormulation(instance).solve(SolveOptions(solver="auto"), SolveMonitor())
    assert result.termination is TerminationReason.OPTIMAL


def test_what_solvers_refuse_leaves_the_plan_that_is_known_and_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise BackendError("too far apart")

    formulation = _formulated(queue())
    best = formulation.solve(SolveOptions(solver="auto"), SolveMonitor())
    monkeypatch.setattr(search, "solve", refuse)
    monkeypatch.setattr(sifting, "load", refuse)
    result = formulation.solve(SolveOptions(solver="auto"), SolveMonitor())
    assert (result.termination, result.limit) == (TerminationReason.FEASIBLE, Limit.OTHER)
    assert result.message.endswith("too far apart")
    assert result.objective is not None
    assert result.bound is not None
    assert best.objective is not None
    assert 0 < result.bound <= best.objective < result.objective
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []


def test_progress_gets_better(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Progress] = []
    _recorded(monkeypatch, worse=True)
    # One of the two that run must stop for the short one, so that what is known first is not the best.
    running = [job(name, 2000.0, {1: 1.0}, current=on({name: (0,)})) for name in ("n", "m")]
    waiting = job("short", 20.0, {1: 1.0})
    formulation = _formulated(Snapshot(cluster=cluster(node("n", 1), node("m", 1)), jobs=(*running, waiting)))
    result = formulation.solve(SolveOptions(solver="auto"), SolveMonitor(on_progress=told.append))
    incumbents = [progress for progress in told if progress.incumbent is not None]
    objectives = [progress.objective for progress in incumbents if progress.objective is not None]
    assert len(objectives) > 1
    assert objectives == sorted(objectives, reverse=True)
    assert objectives[-1] == pytest.approx(result.objective)
    assert all(progress.objective is None or progress.objective < 1e9 for progress in told)
    for progress in incumbents:
        assert progress.incumbent is not None
        assert not violations(formulation.problem, progress.incumbent)


def _without_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relaxation finds no point that splits nothing."""

    def sifted(*asked: Any) -> Sifted:
        return replace(sift(*asked), rounded=None)

    monkeypatch.setattr(search, "sift", sifted)


def test_what_the_relaxation_decides_asks_no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _recorded(monkeypatch)
    told: list[Progress] = []
    formulation = _formulated(queue())
    result = formulation.solve(SolveOptions(solver="auto"), SolveMonitor(on_progress=told.append))
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective == pytest.approx(solve(formulation.problem, SolveOptions(relative_gap=0.0)).objective)
    assert told[-1].objective == pytest.approx(result.objective)
    assert asked == []


@pytest.mark.parametrize(("seed", "gap", "num_asked"), [(14, 1e-2, 0), (24, 1e-2, 0), (14, 1e-6, 1), (24, 1e-6, 1)])
def test_a_point_of_whole_choices_is_enough_or_leaves_little(
    monkeypatch: pytest.MonkeyPatch, seed: int, gap: float, num_asked: int
) -> None:
    """Jobs that the relaxation splits: no solver is asked where that closes the gap, and else once, for what is left of
    all schedules."""
    rng = dice(seed)
    it = instance_of(timed_snapshot(rng, num_jobs=8), replace(random_parameters(rng), quotas={}))
    formulation = HorizonFormulation(it)
    best = solve(formulation.problem, SolveOptions(relative_gap=0.0)).objective
    asked = _recorded(monkeypatch)
    result = formulation.solve(SolveOptions(solver="auto", relative_gap=gap), SolveMonitor())
    assert result.termination is TerminationReason.OPTIMAL
    assert best is not None
    assert result.objective is not None
    assert result.bound is not None
    assert result.bound <= best * (1 + 1e-9) <= result.objective * (1 + 2e-9)
    assert result.objective <= best * (1 + gap)
    assert len(asked) == num_asked
    assert all(problem.num_columns < formulation.problem.num_columns for problem, _ in asked)


def test_what_the_relaxation_decides_is_kept_where_the_time_ends_then(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = SolveMonitor()

    def canceling(*asked: Any) -> Sifted:
        sifted = sift(*asked)
        monitor.canceled.set()
        return sifted

    formulation = _formulated(queue())
    best = formulation.solve(SolveOptions(solver="auto"), SolveMonitor()).objective
    monkeypatch.setattr(search, "sift", canceling)
    result = formulation.solve(SolveOptions(solver="auto"), monitor)
    assert best is not None
    assert best < (30 + 960 + 10 + 1000) / 2
    assert result.objective == pytest.approx(best)
    assert result.incumbent is not None
    assert not violations(formulation.problem, result.incumbent)


@pytest.mark.parametrize(("seed", "is_packed"), [(0, True), (15, False)])
def test_no_more_is_asked_where_the_time_ends_as_units_are_found(
    monkeypatch: pytest.MonkeyPatch, seed: int, is_packed: bool
) -> None:
    """With units or without: more programs would follow, as they do where there is time."""
    formulation = HorizonFormulation(instance_of(tiered_snapshot(dice(seed), num_jobs=6), PARAMETERS))
    options, monitor, results = SolveOptions(solver="auto", relative_gap=0.0), SolveMonitor(), list[SolveResult]()
    asked = _recorded(monkeypatch)
    formulation.solve(options, SolveMonitor())
    assert len(asked) > 1

    def canceling(*args: Any) -> SolveResult:
        results.append(solve(*args))
        monitor.canceled.set()
        return results[-1]

    monkeypatch.setattr(search, "solve", canceling)
    result = formulation.solve(options, monitor)
    assert [found.incumbent is not None for found in results] == [is_packed]
    assert result.termination is TerminationReason.FEASIBLE
    assert result.limit is Limit.INTERRUPTED
    assert result.incumbent is not None
    assert not violations(formulation.problem, result.incumbent)


def test_who_has_a_reservation_and_can_run_nowhere_has_no_plan() -> None:
    """Two GPUs are reserved for a job that is known on one alone: nothing that is known first is a plan."""
    stuck = job("x", 100.0, {1: 1.0}, min_gpus=2, max_gpus=2, reservation=Reservation(gpu_type="a", num_gpus=2))
    snapshot = Snapshot(cluster=cluster(node("n", 4)), jobs=(stuck, job("y", 100.0, {1: 1.0})))
    result = _formulated(snapshot).solve(SolveOptions(solver="auto"), SolveMonitor())
    assert result.termination is TerminationReason.INFEASIBLE
    assert result.incumbent is None


@pytest.mark.parametrize(("num_jobs", "seed"), [(100, 3), (200, 0)])
def test_who_plans_again_with_nothing_changed_moves_nobody(num_jobs: int, seed: int) -> None:
    """Where a tenth of a percent is left open, in which there are plans with restarts that are no better."""
    snapshot = sia_snapshot(SiaSize(num_gpus=256, num_jobs=num_jobs, num_types=3, ceiling=64, running=0.8), seed)
    for before in (False, True):
        asked = PlanRequest(
            snapshot=snapshot, parameters=HorizonParameters(), options=SolveOptions(solver="auto", relative_gap=1e-2)
        )
        given = plan(asked).plan
        assert given is not None
        has = {item.job_id: item for item in given.allocations}
        restarted = [item.job_id for item in has.values() if item.change.value not in ("kept", "started")]
        assert not before or restarted == []
        gets = {name: item.gpus for name, item in has.items()}
        snapshot = replace(snapshot, jobs=tuple(replace(one, current=gets.get(one.id)) for one in snapshot.jobs))


def test_the_solver_begins_with_the_best_point_that_its_columns_have(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = _recorded(monkeypatch)
    _without_rounding(monkeypatch)
    formulation = _formulated(queue())
    formulation.solve(SolveOptions(solver="auto"), SolveMonitor())
    problem, options = asked[0]
    assert options.warm_start is not None
    assert not violations(problem, options.warm_start)
    # As in the first test.
    assert problem.value(options.warm_start) == pytest.approx((30 + 960 + 10 + 1000) / 2)


def test_the_gap_is_one_of_times_where_jobs_wait_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty old jobs and one GPU: what nineteen pay is most of the objective, whatever is planned."""
    asked = _recorded(monkeypatch)
    old = tuple(job(f"j{k}", 50.0 + 10 * k, {1: 1.0}, age_s=30_000.0) for k in range(20))
    formulation = _formulated(Snapshot(cluster=cluster(node("n", 1)), jobs=old))
    result = formulation.solve(SolveOptions(solver="auto", relative_gap=1e-2), SolveMonitor())
    assert result.incumbent is not None
    assert result.objective is not None
    assert result.bound is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    times = sum(term.value for term in plan.score if term.term == "completion_time")
    assert times < 0.1 * result.objective
    assert all(options.relative_gap <= 1.01e-4 * times / result.objective for _, options in asked)
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective - result.bound <= 1.01e-2 * times


@pytest.mark.parametrize("tail", [0.0, 0.4])
def test_a_search_begins_at_the_prices_of_the_plan_before(monkeypatch: pytest.MonkeyPatch, tail: float) -> None:
    """Those of rows that there are no more are left out, and where there is none of these the search begins anew."""
    firsts: list[FloatVector | None] = []

    def recording(problem: ChoiceProblem, tolerance: float, prices: FloatVector | None, *rest: Any) -> Sifted:
        firsts.append(prices)
        return sift(problem, tolerance, prices, *rest)

    snapshot = timed_snapshot(dice(0), num_jobs=12)
    parameters = replace(PARAMETERS, tail=tail)
    monkeypatch.setattr(search, "sift", recording)

    def planned(prices: Mapping[str, float]) -> tuple[SolveResult, HorizonFormulation]:
        formulation = HorizonFormulation(instance_of(snapshot, parameters.started_from(prices)))
        return formulation.solve(SolveOptions(solver="auto", relative_gap=1e-9), SolveMonitor()), formulation

    cold, formulation = planned({})
    prices = formulation.prices(cold)
    assert {name.partition("[")[0] for name in prices} >= {"capacity", "blocks"}
    warm, _ = planned({**prices, "capacity[gone]@1": 7.0})
    other, _ = planned({"capacity[gone]@1": 7.0})
    without, first, gone, *_ = firsts
    assert first is not None
    assert sorted(first[first > 0]) == pytest.approx(sorted(prices.values()))
    for none in (without, gone):
        assert none is None if tail == 0 else not np.any(none)
    assert cold.objective is not None
    assert warm.objective == pytest.approx(cold.objective)
    assert other.objective == pytest.approx(cold.objective)
    # Beyond all costs prices would be taken for a proof that there is no plan.
    dear, _ = planned(dict.fromkeys(prices, 1e300))
    assert dear.termination is TerminationReason.OPTIMAL
    assert dear.objective == pytest.approx(cold.objective)
    with pytest.raises(InputError, match=r"the price of capacity\[a\] is -1; must be finite and at least 0"):
        HorizonParameters(prices={"capacity[a]": -1})
