"""Several weighted tiers against brute force, and by hand."""

import tracemalloc

import numpy as np
import pytest

from models.placement.arnold.budget import Budget
from models.placement.arnold.exact.search import solve_exactly
from models.placement.arnold.search_answer import SearchAnswer
from models.placement.arnold.tiers import search
from models.placement.arnold.tiers.by_spreads import Found
from models.placement.arnold.tiers.instance import TierInstance, WeightedTier
from models.placement.arnold.tiers.model import tier_model, tier_point
from models.placement.arnold.tiers.search import solve_tiers, tree_order, whole_counts
from solver.compilers.pyomo import compile_pyomo
from solver.feasibility import violations
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import Limit
from solver.solve import solve
from stowplan.arrays import IntMatrix
from tests.models.placement.arnold.exact.scenes import ALPHAS, best_eq4, best_tiers, budget, ignore, seeded


def tiers(
    num_groups: int, size: int, pods: list[list[int]], alpha: float, weights: tuple[float, float] = (1.0, 0.5)
) -> TierInstance:
    """Free nodes of the leaves of each pod."""
    free = np.array([nodes for pod in pods for nodes in pod], dtype=np.int64)
    pod_of_leaf = np.array([p for p, pod in enumerate(pods) for _ in pod], dtype=np.int64)
    return TierInstance(
        num_groups=num_groups,
        group_size=size,
        free_nodes=free,
        tiers=(
            WeightedTier(name="pod", weight=weights[0], unit=pod_of_leaf),
            WeightedTier(name="leaf", weight=weights[1], unit=np.arange(free.size)),
        ),
        minipod_weight=alpha,
        spread_weight=1 - alpha,
    )


def random_tiers(rng: np.random.Generator) -> TierInstance:
    pods = [rng.integers(0, 4, rng.integers(1, 3)).tolist() for _ in range(int(rng.integers(1, 3)))]
    weights = float(rng.choice([0.5, 1, 2])), float(rng.choice([0.1, 0.5, 1]))
    return tiers(int(rng.integers(1, 4)), int(rng.integers(1, 4)), pods, float(rng.choice(ALPHAS)), weights)


CASES = [data for rng in seeded(31, 900) if (data := random_tiers(rng)).has_room]


def searched(data: TierInstance, *, may_solve: bool = True) -> SearchAnswer:
    answer = solve_tiers(data, budget(may_solve=may_solve), ignore)
    assert answer.solution is not None
    assert (answer.solution.sum(axis=1) == data.group_size).all()
    assert (answer.solution.sum(axis=0) <= data.free_nodes).all()
    assert answer.objective == pytest.approx(data.objective(answer.solution))
    return answer


@pytest.mark.slow
def test_small_trees_reach_the_optimum() -> None:
    assert len(CASES) > 300
    for data in CASES:
        answer = searched(data, may_solve=False)
        assert answer.proven, data
        assert answer.objective == pytest.approx(best_tiers(data)), data


def test_small_trees_need_no_model() -> None:
    for data in CASES[:100]:
        answer = searched(data, may_solve=False)
        assert answer.proven, data
        assert answer.objective == pytest.approx(best_tiers(data)), data


@pytest.mark.parametrize("solver", ["highs", "scip"])
def test_the_declared_model_has_the_same_optimum(solver: str) -> None:
    for data in CASES[:20]:
        problem = compile_pyomo(tier_model(data)).problem
        result = solve(problem, SolveOptions(solver=solver, relative_gap=0.0))
        assert result.objective == pytest.approx(best_tiers(data), abs=1e-6)
        assert result.incumbent is not None
        assert result.objective is not None
        counts = whole_counts(data, result.incumbent)
        assert data.objective(counts) <= result.objective + 1e-6


def test_a_solution_is_a_point_of_the_model() -> None:
    data = tiers(3, 3, [[3, 2], [4, 1]], 0.3)
    answer = searched(data)
    assert answer.solution is not None
    problem = compile_pyomo(tier_model(data)).problem
    point = tier_point(data, answer.solution)
    assert violations(problem, point) == ()
    assert problem.value(point) == pytest.approx(answer.objective)
    assert (whole_counts(data, point) == answer.solution).all()


def test_the_leaf_tier_decides_where_minipods_do_not_care() -> None:
    """Both pods hold the two groups of 4. Only pod 1 has leaves of 4, so that no group is cut: 1 + 1/2 (0.3 x 2 + 0.7).

    pod 0: leaves 3 3 3        pod 1: leaves 4 4
    """
    data = tiers(2, 4, [[3, 3, 3], [4, 4]], 0.3)
    answer = searched(data, may_solve=False)
    assert answer.proven
    assert answer.solution is not None
    assert answer.solution[:, :3].sum() == 0
    assert answer.objective == pytest.approx(0.3 + 0.7 + 0.5 * (0.3 * 2 + 0.7))
    assert "pod alone" in answer.certificate
    assert "leaf alone" in answer.certificate


def test_one_weighted_tier_is_eq_4() -> None:
    for data in CASES[:100]:
        pods = TierInstance(
            num_groups=data.num_groups,
            group_size=data.group_size,
            free_nodes=data.free_nodes,
            tiers=(WeightedTier(name="leaf", weight=1.0, unit=np.arange(data.num_bins)),),
            minipod_weight=data.minipod_weight,
            spread_weight=data.spread_weight,
        )
        assert searched(pods).objective == pytest.approx(best_eq4(pods.alone(pods.tiers[0])))


def test_the_tree_is_walked_unit_by_unit() -> None:
    """Larger pods first, larger leaves first; leaves without free nodes are left out."""
    data = tiers(1, 1, [[1, 0, 2], [5], [2, 2]], 0.3)
    assert tree_order(data).tolist() == [3, 4, 5, 2, 0]


def test_too_few_nodes_are_a_proof() -> None:
    answer = solve_tiers(tiers(2, 3, [[3], [2]], 0.3), budget(), ignore)
    assert (answer.solution, answer.objective, answer.proven) == (None, None, True)


def test_tiers_are_bounded_by_what_their_units_hold_together() -> None:
    """Two groups of 4. The two largest leaves are in two pods, so that 2 leaves hold only one group in a pod: either
    3 leaves of one pod, or both pods; each alone would have cost one unit less.

    pod 0: leaves 4 2 2        pod 1: leaves 4 2
    """
    data = tiers(2, 4, [[4, 2, 2], [4, 2]], 0.9, (1.0, 1.0))
    alone = [solve_exactly(data.alone(tier), budget(may_solve=False), ignore).bound or 0.0 for tier in data.tiers]
    assert sum(alone) == pytest.approx(0.9 * 3 + 0.1 * 2)
    answer = searched(data, may_solve=False)
    assert answer.proven
    assert answer.objective == pytest.approx(best_tiers(data))
    assert answer.objective == pytest.approx(0.9 * 4 + 0.1 * 2)


def test_minipods_may_be_finer_than_all_weighted_tiers() -> None:
    """Pods and blocks, on which all candidates miss the optimum that `search_by_spreads` finds."""
    data = TierInstance(
        num_groups=5,
        group_size=6,
        free_nodes=np.array([3, 4, 5, 5, 5, 5, 4, 5, 0, 0, 4]),
        tiers=(
            WeightedTier(name="pod", weight=1.0, unit=np.repeat([0, 1], [5, 6])),
            WeightedTier(name="block", weight=0.5, unit=np.array([0, 0, 0, 1, 2, 3, 3, 3, 4, 4, 4])),
        ),
        minipod_weight=0.9,
        spread_weight=0.1,
    )
    assert searched(data, may_solve=False).proven


@pytest.mark.parametrize("scale", [0, -1, 100])
def test_what_is_no_solution_is_withheld(monkeypatch: pytest.MonkeyPatch, scale: int) -> None:
    """Whatever `search_by_spreads` hands back: no nodes, nodes below 0 and more than are free."""
    data = tiers(2, 4, [[4, 2, 2], [4, 2]], 0.9, (1.0, 1.0))
    wrong = np.array([[4, 0, 0, 0, 0], [scale, 4 - scale, 0, 0, 0]])
    monkeypatch.setattr(search, "search_by_spreads", lambda *_: Found(counts=wrong, bound=0.0))
    assert searched(data, may_solve=False).objective == pytest.approx(best_tiers(data))


def test_what_is_worse_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    data = tiers(2, 4, [[4, 2, 2], [4, 2]], 0.9, (1.0, 1.0))
    best = searched(data, may_solve=False)
    worse = np.array([[3, 1, 0, 0, 0], [0, 0, 1, 1, 2]])
    assert data.holds(worse)
    monkeypatch.setattr(search, "search_by_spreads", lambda *_: Found(counts=worse, bound=0.0))
    assert searched(data, may_solve=False).objective == pytest.approx(best.objective)


class EndsAfter(Budget):
    """Ends when it was asked `asks_left` times."""

    asks_left = 0

    @property
    def ended_by(self) -> Limit | None:
        """The time limit."""
        self.asks_left -= 1
        return Limit.TIME if self.asks_left < 0 else None


def ending_after(num_asks: int) -> EndsAfter:
    ends = EndsAfter(options=SolveOptions(), monitor=SolveMonitor(), may_solve=False)
    ends.asks_left = num_asks
    return ends


def test_wherever_it_ends_there_is_a_solution_with_a_bound() -> None:
    data = tiers(2, 4, [[4, 2, 2], [4, 2]], 0.9, (1.0, 1.0))
    best = best_tiers(data)
    for num_asks in range(80):
        answer = solve_tiers(data, ending_after(num_asks), ignore)
        assert answer.solution is not None
        assert answer.objective is not None
        assert answer.bound is not None
        assert data.holds(answer.solution)
        assert answer.bound <= best + 1e-9 <= answer.objective + 2e-9


def test_pieces_are_carried_down_until_the_budget_ends() -> None:
    """Asked once per piece: three pieces of one group each."""
    data = tiers(3, 3, [[3, 3], [2, 1]], 0.3)
    pieces = np.array([[3, 0], [3, 0], [0, 3]])
    carried = [search._carried_down(data, data.tiers[0], pieces, tree_order(data), ending_after(n)) for n in (2, 3)]
    assert carried[0] is None
    assert carried[1] is not None
    assert data.holds(carried[1])


def test_candidates_are_made_until_the_budget_ends() -> None:
    data = tiers(3, 3, [[3, 2], [4, 1]], 0.3)
    made = [len(list(search._on(data, tree_order(data), ending_after(num_asks)))) for num_asks in range(4)]
    assert made == [0, 1, 2, 3]


def test_each_candidate_is_valued_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that are carried down, and three each on the pods that suffice."""
    data = tiers(3, 3, [[3, 2], [4, 1]], 0.3)
    valued = []
    first = TierInstance.objective

    def counted(self: TierInstance, counts: IntMatrix) -> float:
        valued.append(counts)
        return first(self, counts)

    monkeypatch.setattr(TierInstance, "objective", counted)
    monkeypatch.setattr(search, "search_by_spreads", lambda *_: Found(counts=None, bound=0.0))
    solve_tiers(data, budget(may_solve=False), ignore)
    assert len(valued) == 5


def test_the_objective_takes_memory_by_pieces_not_by_pairs() -> None:
    """Of 400 groups and 4,000 leaves nearly all pairs are empty: less than a hundredth of the matrix."""
    data = tiers(400, 8, [[8] * 40] * 100, 0.3)
    counts = np.zeros((400, 4_000), dtype=np.int64)
    counts[np.arange(400), np.arange(400)] = 8
    tracemalloc.start()
    try:
        assert data.objective(counts) == pytest.approx(0.3 * 10 + 0.7 + 0.5 * (0.3 * 400 + 0.7))
        assert tracemalloc.get_traced_memory()[1] < counts.nbytes / 100
    finally:
        tracemalloc.stop()


def test_a_search_that_has_ended_makes_no_more_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_on", None)
    answer = solve_tiers(tiers(3, 3, [[3, 2], [4, 1]], 0.3), budget(canceled=True), ignore)
    assert answer.solution is not None
    assert answer.bound is not None
    with pytest.raises(TypeError):
        solve_tiers(tiers(3, 3, [[3, 2], [4, 1]], 0.3), budget(), ignore)
