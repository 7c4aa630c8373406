"""The arrays of the fewest moves are the program that is declared."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
from scipy import sparse

from models.placement import nodes
from models.placement.moves import few_moves, fewest_moves, moves_problem
from models.placement.moves_declaration import moves_model
from models.placement.nodes import assign_gpus
from models.placement.pool import Demand, Pool
from solver.compilers.pyomo import compile_pyomo
from solver.problem import MatrixProblem
from stowplan.arrays import FloatMatrix
from tests.growth import work
from tests.models.placement.scenes import dice, random_scene


def compared(pool: Pool, candidates: Sequence[Demand], time_limit_s: float) -> frozenset[str]:
    ours, declared = moves_problem(pool, candidates), compile_pyomo(moves_model(pool, candidates)).problem
    assert ours.sense is declared.sense
    assert ours.offset == declared.offset
    assert ours.num_columns == declared.num_columns
    np.testing.assert_array_equal(lines(ours), lines(declared))
    return fewest_moves(pool, candidates, time_limit_s)


def lines(problem: MatrixProblem) -> FloatMatrix:
    """Rows with limits, costs and bounds, as a sorted matrix: the order of rows and columns means nothing."""
    matrix = sparse.csc_array(problem.matrix).toarray()
    assert problem.integrality.all()
    columns = np.vstack([problem.objective, problem.lower, problem.upper, matrix])
    columns = columns[:, np.lexsort(columns[::-1])]
    limits = np.vstack([np.zeros((3, 2)), np.column_stack([problem.row_lower, problem.row_upper])])
    rows = np.hstack([limits, columns])
    return rows[np.lexsort(rows.T[::-1])]


def test_arrays_are_what_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def watched(pool: Pool, candidates: Sequence[Demand], time_limit_s: float) -> frozenset[str]:
        asked.append(len(candidates))
        return compared(pool, candidates, time_limit_s)

    monkeypatch.setattr(nodes, "fewest_moves", watched)
    monkeypatch.setattr(nodes, "few_moves", lambda *_: None)
    for seed in range(100):
        scene = random_scene(dice(seed), num_nodes=4, num_jobs=8)
        assign_gpus(scene.snapshot, scene.configurations, scene.choice, scene.taken)
    assert sum(count > 1 for count in asked) >= 5


def test_one_or_two_moves_are_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many jobs, and as many GPUs; where the program moves more, there are no such two."""
    counts: list[int] = []

    def watched(pool: Pool, kept: Sequence[Demand]) -> tuple[Demand, ...] | None:
        free = dict(pool.free)
        found = few_moves(pool, kept)
        assert pool.free == free
        for demand in kept:
            pool.give_back(demand, demand.now)
        keep = fewest_moves(pool, kept, 10.0)
        for demand in kept:
            pool.take(demand, demand.now)
        moved = [demand for demand in kept if demand.job_id not in keep]
        assert (found is None) is (len(moved) > 2)
        if found is not None:
            assert len(found) == len(moved)
            assert sum(demand.num_gpus for demand in found) == sum(demand.num_gpus for demand in moved)
        counts.append(len(moved))
        return found

    monkeypatch.setattr(nodes, "few_moves", watched)
    for seed in range(150):
        scene = random_scene(dice(seed), num_nodes=5, num_jobs=14)
        assign_gpus(scene.snapshot, scene.configurations, scene.choice, scene.taken)
    assert {1, 2} < set(counts)


def test_pairs_of_too_many_kinds_are_not_tried() -> None:
    """A job of every size on its own node of 64 GPUs, and one whole node wanted: any one is enough, the smallest first;
    of many kinds that is left to the program."""
    for num_kinds, is_tried in ((10, True), (60, False)):
        sizes = range(1, num_kinds + 1)
        jobs = [
            Demand(job_id=str(k), num_nodes=1, num_gpus=k, whole=False, now=((k, (1 << k) - 1),), stays=True)
            for k in sizes
        ]
        new = Demand(job_id="new", num_nodes=1, num_gpus=64, whole=True, now=(), stays=False)
        pool = Pool(
            node_size=64, sizes=dict.fromkeys(sizes, 64), free=dict.fromkeys(sizes, (1 << 64) - 1), demands=[*jobs, new]
        )
        for demand in jobs:
            pool.take(demand, demand.now)
        assert (few_moves(pool, jobs) is not None) is is_tried


def test_twice_the_nodes_are_twice_the_work() -> None:
    def half_full(num_nodes: int) -> tuple[Pool, list[Demand]]:
        """Two jobs of 2 GPUs on each node of 8, and one whole node wanted for every two."""
        jobs = [
            Demand(job_id=f"{i}-{k}", num_nodes=1, num_gpus=2, whole=False, now=((i, 3 << 2 * k),), stays=True)
            for i in range(num_nodes)
            for k in range(2)
        ]
        big = Demand(job_id="big", num_nodes=num_nodes // 2, num_gpus=4 * num_nodes, whole=True, now=(), stays=False)
        nodes_ = range(num_nodes)
        pool = Pool(node_size=8, sizes=dict.fromkeys(nodes_, 8), free=dict.fromkeys(nodes_, 255), demands=[*jobs, big])
        return pool, jobs

    few, many = (work(partial(moves_problem, *half_full(num_nodes))) for num_nodes in (100, 200))
    assert many <= 2.3 * few

    def looked(num_nodes: int) -> None:
        pool, jobs = half_full(num_nodes)
        for demand in jobs:
            pool.take(demand, demand.now)
        assert few_moves(pool, jobs) is None

    few, many = (work(partial(looked, num_nodes)) for num_nodes in (100, 200))
    assert many <= 2.3 * few
