import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import solver.backends.decomposition as module
from benchmarks.workloads.choice_problems import drawn_choice_problem
from solver.backends.highs import HighsBackend
from solver.decomposition import core, pricing
from solver.decomposition.dual import DualPoint, best_choice, maximise_dual
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, TerminationReason
from solver.sense import Sense
from solver.solve import solve
from stowplan.errors import InputError
from tests.solver.decomposition.choices import choice_problem
from tests.solver.instances import INF, market_split, problem

WHOLE = choice_problem(7, num_blocks=150, num_options=6, num_resources=3)
EXACT = SolveOptions(solver="decomposition", relative_gap=0.0, time_limit_s=20.0)


@pytest.fixture
def _always_price(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also small problems go through pricing and narrow cores, so that widening happens."""
    monkeypatch.setattr(pricing, "_LINEAR", 0)
    for name in ("_FEW_BLOCKS", "_FEW_COLUMNS"):
        monkeypatch.setattr(module, name, 0)
    monkeypatch.setattr(module, "_FIRST_EXTRA", 2)


@pytest.mark.slow
@pytest.mark.usefixtures("_always_price")
@given(
    seed=st.integers(0, 100_000),
    num_blocks=st.integers(1, 25),
    num_resources=st.integers(1, 4),
    num_clones=st.sampled_from([1, 1, 4]),
    tightness=st.sampled_from([0.1, 0.4, 0.8, 2.0]),
    required_share=st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    integral=st.booleans(),
    sense=st.sampled_from(Sense),
)
@settings(max_examples=30, deadline=None)
def test_it_equals_branch_and_bound(
    seed: int,
    num_blocks: int,
    num_resources: int,
    num_clones: int,
    tightness: float,
    required_share: float,
    integral: bool,
    sense: Sense,
) -> None:
    whole = choice_problem(
        seed,
        num_blocks=num_blocks,
        num_resources=num_resources,
        num_clones=num_clones,
        tightness=tightness,
        required_share=required_share,
        integral=integral,
        sense=sense,
    )
    ours = solve(whole, EXACT)
    theirs = solve(whole, replace(EXACT, solver="highs"))
    assert ours.termination is theirs.termination
    if theirs.objective is not None:
        assert ours.objective == pytest.approx(theirs.objective, abs=1e-6)
        assert ours.bound == pytest.approx(theirs.objective, abs=1e-5)


def test_other_problems_go_to_highs_whole() -> None:
    knapsack = problem([[2, 3, 4]], [-INF], [7], [-3, -4, -6], upper=3)
    result = solve(knapsack, EXACT)
    assert result.objective == solve(knapsack, replace(EXACT, solver="highs")).objective
    assert result.solver == "highs"


def test_auto_takes_what_has_the_structure() -> None:
    assert solve(WHOLE, replace(EXACT, solver="auto", relative_gap=1e-3)).solver == "decomposition"
    assert solve(choice_problem(0), replace(EXACT, solver="auto")).solver == "decomposition", "few columns, few states"
    few = choice_problem(0, num_blocks=30, num_options=6)
    assert solve(few, replace(EXACT, solver="auto")).solver == "highs", "few columns, many states"
    assert (
        solve(problem([[2, 3, 4]], [-INF], [7], [-3, -4, -6], upper=3), replace(EXACT, solver="auto")).solver == "highs"
    )


@pytest.fixture(scope="module")
def optimum() -> tuple[SolveResult, list[Progress]]:
    """What becomes of WHOLE, and what is told until then."""
    seen: list[Progress] = []
    return solve(WHOLE, EXACT, SolveMonitor(on_progress=seen.append)), seen


def test_the_gap_that_was_asked_for_is_proved(optimum: tuple[SolveResult, list[Progress]]) -> None:
    result = solve(WHOLE, replace(EXACT, relative_gap=1e-3))
    assert result.termination is TerminationReason.OPTIMAL
    assert result.relative_gap is not None
    assert result.relative_gap <= 1e-3
    exact, _ = optimum
    assert exact.objective is not None
    assert result.bound is not None
    assert result.bound <= exact.objective + 1e-9


def _refused(*_: object, **__: object) -> SolveResult:
    raise AssertionError("HiGHS was asked")


@pytest.mark.usefixtures("_always_price")
def test_prices_prove_that_there_is_no_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """All 150 blocks must choose, and what there is suffices for few of them."""
    whole = choice_problem(3, num_blocks=150, num_resources=3, tightness=0.1, required_share=1.0)
    assert solve(whole, replace(EXACT, solver="highs")).termination is TerminationReason.INFEASIBLE
    monkeypatch.setattr(HighsBackend, "solve", _refused)
    result = solve(whole, EXACT)
    assert (result.termination, result.bound) == (TerminationReason.INFEASIBLE, None)
    assert result.prices is not None


def test_no_incumbent_in_time_is_no_answer() -> None:
    split = market_split()
    result = solve(split, replace(EXACT, time_limit_s=0.3))
    assert result.termination is TerminationReason.NO_SOLUTION_FOUND
    assert (result.limit, result.incumbent) == (Limit.TIME, None)


def test_a_warm_start_survives_cancellation() -> None:
    canceled = threading.Event()
    canceled.set()
    start = np.zeros(WHOLE.num_columns)
    result = solve(WHOLE, replace(EXACT, warm_start=start), SolveMonitor(canceled=canceled))
    assert (result.termination, result.limit) == (TerminationReason.FEASIBLE, Limit.INTERRUPTED)
    assert result.objective == WHOLE.offset


@pytest.mark.parametrize(
    ("seed", "has_point"),
    [(253, False), (126, True)],
    ids=["few choose, and many of them are split", "a point that is far off"],
)
def test_what_pricing_leaves_nearly_whole_is_solved_as_it_was_given(
    seed: int, has_point: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No equal blocks, and far more than three quarters of the columns still matter: HiGHS goes its own way, from the
    point that is known."""
    whole = drawn_choice_problem(seed, 10, 300)
    options = SolveOptions(solver="decomposition", relative_gap=1e-4)
    expected = solve(whole, replace(options, solver="highs"))
    asked: list[MatrixProblem] = []
    of_highs = HighsBackend.solve

    def watched(
        self: HighsBackend, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor, **target: float
    ) -> SolveResult:
        assert (options.warm_start is not None) is has_point
        asked.append(problem)
        return of_highs(self, problem, options, monitor, **target)

    monkeypatch.setattr(HighsBackend, "solve", watched)
    result = solve(whole, options)
    assert [(problem.num_columns, problem.num_rows) for problem in asked] == [(whole.num_columns, whole.num_rows)]
    assert result.termination is TerminationReason.OPTIMAL
    assert result.prices is not None
    assert result.objective == expected.objective


def test_progress_tells_of_incumbents_of_the_whole_problem(optimum: tuple[SolveResult, list[Progress]]) -> None:
    result, seen = optimum
    incumbents = [p for p in seen if p.incumbent is not None]
    assert incumbents
    assert all(p.incumbent is not None and p.incumbent.shape == (WHOLE.num_columns,) for p in incumbents)
    assert incumbents[-1].objective == pytest.approx(result.objective)


def test_the_same_input_gives_the_same_point() -> None:
    whole = choice_problem(11, num_blocks=100, num_options=6, num_resources=3, num_clones=2)
    first, second = solve(whole, EXACT), solve(whole, EXACT)
    assert first.incumbent is not None
    assert second.incumbent is not None
    assert (first.incumbent == second.incumbent).all()


def test_beside_a_point_prices_come_before_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what they leave is enumerated, for which no program is written."""
    whole = choice_problem(7, num_blocks=25, num_options=6, num_resources=3)
    first = solve(whole, EXACT)
    priced = solve(whole, replace(EXACT, warm_start=first.incumbent))
    assert priced.prices is not None

    def refused(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(module, "solve_by_table", refused)
    monkeypatch.setattr(core, "_mip", refused)
    again = solve(whole, replace(EXACT, warm_start=first.incumbent, prices=priced.prices))
    assert again.termination is TerminationReason.OPTIMAL
    assert again.objective == pytest.approx(first.objective)
    assert again.bound == pytest.approx(first.objective)
    with pytest.raises(AssertionError):
        solve(whole, replace(EXACT, warm_start=first.incumbent))


@pytest.mark.slow
@pytest.mark.usefixtures("_always_price")
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_prices_of_one_round_start_the_next(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices come back in the problem's own units, whatever the solver was given."""
    whole = choice_problem(7, num_blocks=100, num_options=6, num_resources=3)
    whole = replace(whole, objective=whole.objective * scale, offset=whole.offset * scale)
    first = solve(whole, replace(EXACT, relative_gap=1e-3))
    assert first.prices is not None
    assert (first.prices[:-3] == 0).all()
    assert (first.prices[-3:] > 0).any()
    evaluations: list[int] = []

    def counted(*arguments: Any, **named: Any) -> DualPoint:
        found = maximise_dual(*arguments, **named)
        evaluations.append(found.num_evaluations)
        return found

    monkeypatch.setattr(pricing, "maximise_dual", counted)
    cold = solve(whole, replace(EXACT, relative_gap=1e-3))
    from_nothing = sum(evaluations)
    warm = solve(whole, replace(EXACT, relative_gap=1e-3, prices=first.prices))
    assert warm.objective == pytest.approx(cold.objective, rel=1e-3)
    assert sum(evaluations) - from_nothing < from_nothing
    with pytest.raises(InputError, match=r"prices have shape \(1,\)"):
        solve(whole, replace(EXACT, prices=np.ones(1)))


@pytest.mark.usefixtures("_always_price")
@pytest.mark.parametrize("largest", [0.0, 1e-3, 1.0, 30.0, 1e9])
def test_answers_are_proven_whatever_the_prices_are_said_to_be(largest: float) -> None:
    """They only say where to begin."""
    for seed in range(3):
        whole = choice_problem(seed, num_blocks=20, num_resources=3, tightness=0.3, required_share=0.1 * seed)
        prices = largest * np.random.default_rng(seed).random(whole.num_rows)
        ours = solve(whole, replace(EXACT, prices=prices))
        theirs = solve(whole, replace(EXACT, solver="highs"))
        assert ours.termination is theirs.termination
        if theirs.objective is not None:
            assert ours.objective == pytest.approx(theirs.objective, abs=1e-6)
            assert ours.bound == pytest.approx(theirs.objective, abs=1e-5)


@pytest.mark.usefixtures("_always_price")
def test_prices_that_still_hold_are_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = choice_problem(7, num_blocks=300, num_options=6, num_resources=3)
    options = replace(EXACT, relative_gap=1e-2)
    first = solve(whole, options)
    monkeypatch.setattr(pricing, "maximise_dual", None)
    again = solve(whole, replace(options, prices=first.prices))
    assert again.termination is TerminationReason.OPTIMAL
    assert again.relative_gap is not None
    assert again.relative_gap <= 1e-2


def test_prices_that_still_hold_need_no_relaxation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many blocks they prove a rounded point, of few the point that is known; other answers would be no better."""
    for num_blocks, gap in ((300, 1e-2), (40, 0.0)):
        whole = choice_problem(7, num_blocks=num_blocks, num_options=6, num_resources=3)
        options = replace(EXACT, relative_gap=gap, warm_start=solve(whole, replace(EXACT, solver="highs")).incumbent)
        first = solve(whole, options)
        assert first.prices is not None
        with monkeypatch.context() as patch:
            patch.setattr(pricing, "solve_relaxation", None)
            again = solve(whole, replace(options, prices=first.prices))
        assert again.termination is TerminationReason.OPTIMAL
        assert again.objective == pytest.approx(first.objective, rel=gap or 1e-9)


def test_of_few_blocks_little_is_searched_beside_a_good_point(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = choice_problem(7, num_blocks=40, num_options=6, num_resources=3)
    best = solve(whole, replace(EXACT, solver="highs"))
    sizes: list[int] = []
    searched = HighsBackend.solve

    def counted(self: HighsBackend, problem: MatrixProblem, *arguments: Any, **named: Any) -> SolveResult:
        sizes.append(problem.num_columns)
        return searched(self, problem, *arguments, **named)

    monkeypatch.setattr(HighsBackend, "solve", counted)
    found = solve(whole, replace(EXACT, warm_start=best.incumbent))
    assert found.objective == pytest.approx(best.objective)
    assert found.bound == pytest.approx(best.objective)
    assert max(sizes, default=0) < whole.num_columns / 2


@pytest.mark.parametrize("tightness", [0.5, 20.0], ids=["scarce", "plenty"])
def test_prices_that_prove_more_than_none_do_say_that_something_is_scarce(
    tightness: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then what all blocks like best need not be tried."""
    whole = choice_problem(7, num_blocks=40, num_options=6, num_resources=3, tightness=tightness)
    first = solve(whole, replace(EXACT, solver="highs"))
    prices = solve(whole, replace(EXACT, warm_start=first.incumbent)).prices
    if tightness > 1:
        prices = np.full(whole.num_rows, 1e-3)
    tried: list[object] = []

    def watched(*arguments: Any) -> Any:
        tried.append(arguments)
        return best_choice(*arguments)

    monkeypatch.setattr(pricing, "best_choice", watched)
    again = solve(whole, replace(EXACT, warm_start=first.incumbent, prices=prices))
    assert again.objective == pytest.approx(first.objective)
    assert again.bound == pytest.approx(first.objective)
    assert again.prices is not None
    assert bool(tried) == (tightness > 1) == (not again.prices.any())
