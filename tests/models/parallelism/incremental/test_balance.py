"""The min-max problem of appendix B: greedy against enumeration, the heap greedy of the paper, and a MIP."""

import heapq
from itertools import combinations, product

import numpy as np
import pyomo.environ as pyo
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.incremental.balance import split_chain, split_rows
from solver.compilers.pyomo import compile_pyomo
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.solve import solve

EXAMPLES = settings(max_examples=20, deadline=None)
prices = st.floats(0.1, 5.0)
bins = st.lists(st.tuples(prices, st.floats(0.0, 5.0), st.integers(0, 5)), min_size=1, max_size=4)


def split_one(total: int, problem: list[tuple[float, float, int]]) -> list[int] | None:
    cost, offset, upper = (np.array([column]) for column in zip(*problem, strict=True))
    items, solvable = split_rows(total, cost, offset, upper)
    return items[0].tolist() if solvable[0] else None


def worst(problem: list[tuple[float, float, int]], items: list[int]) -> float:
    return max(offset + a * cost for (cost, offset, _), a in zip(problem, items, strict=True))


def by_enumeration(total: int, problem: list[tuple[float, float, int]]) -> float | None:
    ranges = [range(1, upper + 1) for _, _, upper in problem]
    return min((worst(problem, list(items)) for items in product(*ranges) if sum(items) == total), default=None)


def by_heap(total: int, problem: list[tuple[float, float, int]]) -> list[int] | None:
    """The greedy as the paper has it: O(n log m)."""
    items = [1] * len(problem)
    if any(upper < 1 for _, _, upper in problem) or total < len(problem):
        return None
    heap = [(offset + 2 * cost, i) for i, (cost, offset, _) in enumerate(problem)]
    heapq.heapify(heap)
    for _ in range(total - len(problem)):
        while heap and items[heap[0][1]] == problem[heap[0][1]][2]:
            heapq.heappop(heap)
        if not heap:
            return None
        _, i = heap[0]
        items[i] += 1
        heapq.heapreplace(heap, (problem[i][1] + (items[i] + 1) * problem[i][0], i))
    return items


@EXAMPLES
@given(st.integers(1, 12), bins)
def test_greedy_equals_enumeration(total: int, problem: list[tuple[float, float, int]]) -> None:
    best = by_enumeration(total, problem)
    items = split_one(total, problem)
    assert (items is None) == (best is None)
    if items is not None and best is not None:
        assert sum(items) == total
        assert worst(problem, items) == pytest.approx(best, rel=1e-12)


@EXAMPLES
@given(
    st.integers(1, 90), st.lists(st.tuples(prices, st.floats(0.0, 20.0), st.integers(1, 40)), min_size=1, max_size=9)
)
def test_starting_near_the_level_equals_the_heap(total: int, problem: list[tuple[float, float, int]]) -> None:
    expected, items = by_heap(total, problem), split_one(total, problem)
    assert (items is None) == (expected is None)
    if items is not None and expected is not None:
        assert worst(problem, items) == pytest.approx(worst(problem, expected), rel=1e-12)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 30), bins.filter(lambda problem: sum(upper for _, _, upper in problem) > 0))
def test_greedy_equals_a_mip(total: int, problem: list[tuple[float, float, int]]) -> None:
    model = pyo.ConcreteModel()
    model.bin = pyo.RangeSet(0, len(problem) - 1)
    model.a = pyo.Var(model.bin, within=pyo.Integers, bounds=lambda _, i: (0, problem[i][2]))
    model.z = pyo.Var(within=pyo.NonNegativeReals)
    model.least = pyo.Constraint(model.bin, rule=lambda m, i: m.a[i] >= 1)
    model.all = pyo.Constraint(expr=sum(model.a[i] for i in model.bin) == total)
    model.top = pyo.Constraint(model.bin, rule=lambda m, i: problem[i][1] + problem[i][0] * m.a[i] <= m.z)
    model.obj = pyo.Objective(expr=model.z)
    result = solve(compile_pyomo(model).problem, SolveOptions(relative_gap=0.0, time_limit_s=10.0))
    items = split_one(total, problem)
    if items is None:
        assert result.termination is TerminationReason.INFEASIBLE
    else:
        assert result.objective == pytest.approx(worst(problem, items), rel=1e-6)


def test_rows_do_not_mix() -> None:
    cost = np.array([[1.0, 2.0, np.inf], [1.0, 1.0, 1.0], [1.0, np.inf, np.inf], [1.0, 1.0, 1.0]])
    upper = np.array([[9, 9, 0], [1, 9, 9], [5, 0, 0], [2, 2, 1]])
    items, solvable = split_rows(6, cost, np.array([[0.0] * 3, [0.0, 0.0, 3.0], [0.0] * 3, [0.0] * 3]), upper)
    assert items.tolist() == [[4, 2, 0], [1, 4, 1], [0, 0, 0], [0, 0, 0]]
    assert solvable.tolist() == [True, True, False, False]


@EXAMPLES
@given(st.data())
def test_chain_equals_enumeration(data: st.DataObject) -> None:
    num_layers, num_stages = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 4))
    any_cost = st.one_of(prices, st.just(np.inf))
    costs = np.full((num_stages, 1, num_layers + 1, num_layers + 1), np.inf)
    for s, a, b in product(range(num_stages), range(num_layers), range(num_layers + 1)):
        if a < b:
            costs[s, 0, a, b] = data.draw(any_cost)
    best = min(
        (
            max(costs[s, 0, a, b] for s, (a, b) in enumerate(zip((0, *cuts), (*cuts, num_layers), strict=True)))
            for cuts in combinations(range(1, num_layers), num_stages - 1)
        ),
        default=np.inf,
    )
    layers, solvable = split_chain(list(costs), num_layers)
    assert solvable[0] == np.isfinite(best)
    if solvable[0]:
        ends = np.cumsum(layers[0])
        assert max(costs[s, 0, ends[s] - layers[0, s], ends[s]] for s in range(num_stages)) == best
