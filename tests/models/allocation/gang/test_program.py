"""The backfill program: as declared, against trying everything, and beside the heuristic."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.allocation.gang.formulation import GangFormulation, formulate_gang
from models.allocation.gang.instance import GangInstance, Ground
from models.allocation.gang.parameters import Backfill, GangMethod, GangParameters, QueueOrder
from models.clock import PhaseClock
from models.workload import Snapshot
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.result import TerminationReason
from tests.models.allocation.gang.scenes import cluster, made_up, plan_of, planned, queue, reasons, running, started
from tests.models.placement.scenes import SEEDS

PARAMETERS = st.one_of(
    st.builds(
        GangParameters,
        default_remaining_s=st.sampled_from((None, 4.0)),
        quotas=st.sampled_from(({}, {"p": 8}, {"p": 4, "q": 10})),
    ),
    st.builds(
        GangParameters,
        order=st.just(QueueOrder.PRIORITY),
        promotion_after_s=st.sampled_from((None, 4.0)),
        preemption=st.booleans(),
        quotas=st.sampled_from(({}, {"p": 8})),
        backfill=st.sampled_from(Backfill),
        nearness_s=st.sampled_from((0.0, 3.0, 100.0)),
    ),
    st.builds(
        GangParameters,
        order=st.sampled_from((QueueOrder.SRTF, QueueOrder.LAS)),
        preemption=st.booleans(),
        service_thresholds=st.just((100.0, 1000.0)),
    ),
)


def formulation_of(snapshot: Snapshot, parameters: GangParameters) -> GangFormulation:
    return formulate_gang(snapshot, parameters, PhaseClock())


@pytest.mark.slow
@settings(max_examples=30)
@given(seed=SEEDS, parameters=PARAMETERS)
def test_assembled_and_declared_are_the_same_program(seed: int, parameters: GangParameters) -> None:
    """Same columns in the same order; same rows, which CVXPY sorts by kind."""
    formulation = formulation_of(made_up(seed), parameters)
    direct, declared = formulation.problem, formulation.named()
    assert direct.sense is declared.sense
    assert direct.offset == pytest.approx(declared.offset)
    np.testing.assert_allclose(direct.objective, declared.objective)
    np.testing.assert_array_equal(direct.lower, declared.lower)
    np.testing.assert_array_equal(direct.upper, declared.upper)
    np.testing.assert_array_equal(direct.integrality, declared.integrality)
    assert direct.num_rows == declared.num_rows
    rows = sorted(map(tuple, np.column_stack([direct.row_lower, direct.row_upper, direct.matrix.toarray()])))
    wanted = sorted(map(tuple, np.column_stack([declared.row_lower, declared.row_upper, declared.matrix.toarray()])))
    np.testing.assert_allclose(rows, wanted)


def best_by_trying(instance: GangInstance) -> float:
    """Optimum over all numbers of started jobs whose pieces find nodes, by trying all nodes."""
    ranges = [range(len(instance.classes[c].positions) + 1) for c, _ in instance.pairs]
    return instance.constant + max(
        sum(instance.classes[c].worth * count for (c, _), count in zip(instance.pairs, counts, strict=True))
        for counts in product(*ranges)
        if is_possible(instance, counts)
    )


def is_possible(instance: GangInstance, counts: Sequence[int]) -> bool:
    of_class, of_queue = Counter[int](), Counter[str]()
    pieces: dict[int, list[tuple[int, bool]]] = {t: [] for t in instance.grounds}
    for (c, k), count in zip(instance.pairs, counts, strict=True):
        found = instance.classes[c]
        of_class[c] += count
        if found.quota is not None:
            of_queue[found.quota] += count * found.size
        for size, number in found.shapes[k].items.items():
            pieces[found.shapes[k].group] += [(size, found.in_time[k])] * (number * count)
    return (
        all(count <= len(instance.classes[c].positions) for c, count in of_class.items())
        and all(count <= instance.admission.quota_left[name] for name, count in of_queue.items())
        and all(has_room(instance, instance.grounds[t], sorted(found, reverse=True)) for t, found in pieces.items())
    )


def has_room(instance: GangInstance, ground: Ground, pieces: list[tuple[int, bool]]) -> bool:
    free = [mask.bit_count() for mask in instance.admission.layout.free]
    return sum(size for size, _ in pieces) <= sum(free) and any(_layouts(ground, pieces, free, ground.shared_over))


def _layouts(ground: Ground, pieces: list[tuple[int, bool]], free: list[int], over: int) -> Iterator[bool]:
    if not pieces:
        yield True
        return
    (size, in_time), *others = pieces
    seen = set()
    for node in (*ground.open_nodes, *(ground.held_nodes if in_time else ())):
        key = free[node], node in ground.held_nodes
        if free[node] >= size and key not in seen:
            seen.add(key)
            yield from _layouts(ground, others, [f - size * (n == node) for n, f in enumerate(free)], over)
    if ground.shared is not None and free[ground.shared] >= size and (in_time or over >= size):
        after = [f - size * (n == ground.shared) for n, f in enumerate(free)]
        yield from _layouts(ground, others, after, over if in_time else over - size)


@pytest.mark.slow
@settings(max_examples=80)
@given(seed=SEEDS, parameters=PARAMETERS)
def test_heuristic_optimum_bound_and_trying_everything(seed: int, parameters: GangParameters) -> None:
    """`planned` checks both plans, too."""
    snapshot = made_up(seed, max_nodes=4, max_jobs=10)
    _, quick, _ = planned(snapshot, parameters)
    formulation, exact, plan = planned(snapshot, replace(parameters, method=GangMethod.ILP))
    assert quick.objective is not None
    assert quick.bound is not None
    assert exact.objective is not None
    assert exact.termination is TerminationReason.OPTIMAL
    assert quick.objective <= exact.objective + 1e-6
    assert exact.objective <= quick.bound + 1e-6
    assert math.fsum(term.value for term in plan.score) == pytest.approx(exact.objective)
    if math.prod(len(formulation.instance.classes[c].positions) + 1 for c, _ in formulation.instance.pairs) <= 64:
        assert exact.objective == pytest.approx(best_by_trying(formulation.instance))


def test_the_program_finds_the_backfill_that_the_queue_misses() -> None:
    """
    a0  busy for 60 s        big needs both, so that a1 is kept for it. In the order of the queue, three GPUs for x
    a1  r on 0-3, for 9 s    leave one; y alone fills all four
    """
    jobs = (
        running("r", 60.0, a0=range(8)),
        running("s", 9.0, a1=range(4)),
        *queue(("big", 16, 9.0), ("x", 3, 9.0), ("y", 4, 9.0)),
    )
    snapshot = Snapshot(cluster=cluster(8, 8), jobs=jobs)
    _, quick, plan = planned(snapshot)
    assert (quick.termination, quick.objective, quick.bound) == (TerminationReason.FEASIBLE, 15.0, 16.0)
    assert quick.limit is None
    assert (started(plan), reasons(plan)["y"]) == ({"x": ["a1"]}, "no_room")
    _, exact, plan = planned(snapshot, GangParameters(method=GangMethod.ILP))
    assert (exact.termination, exact.objective) == (TerminationReason.OPTIMAL, 16.0)
    assert (started(plan), reasons(plan)["x"]) == ({"y": ["a1"]}, "no_room")


def test_weights_and_priorities_are_worth() -> None:
    """x and y fit a0 beside r, but not both; z of priority 3 counts a quarter."""
    jobs = (running("r", 60.0, a0=range(4)), *queue(("big", 8, 9.0), ("x", 4, 9.0), ("y", 4, 9.0)))
    heavy = (*jobs[:3], replace(jobs[3], weight=1.5))
    best = {"method": GangMethod.ILP}
    assert set(started(plan_of(cluster(8), *heavy, **best))) == {"y"}
    later = (*jobs[:2], replace(jobs[2], weight=1.5), replace(jobs[3], priority=1))
    later = tuple(replace(job, priority=3) if job.id == "x" else job for job in later)
    plan = plan_of(cluster(8), *later, order=QueueOrder.PRIORITY, **best)
    assert {term.job_id: term.value for term in plan.score} == {"r": 4.0, "y": 4.0}


def test_who_watches_sees_the_point_of_the_heuristic_and_bounds() -> None:
    told: list[Progress] = []
    jobs = (running("r", 60.0, a0=range(8)), *queue(("big", 16, 9.0), ("x", 3, 9.0), ("y", 5, 9.0)))
    formulation = formulation_of(Snapshot(cluster=cluster(8, 8), jobs=jobs), GangParameters())
    result = formulation.solve(SolveOptions(), SolveMonitor(on_progress=told.append))
    assert told[0].incumbent is not None
    assert all(progress.incumbent is None for progress in told[1:])
    assert {progress.objective for progress in told} == {result.objective}
    assert result.solver == "heuristic"
    assert "0 jobs started in order, of 3 others 2 backfilled" in result.message


def test_columns_and_rows_have_names() -> None:
    jobs = (running("r", 60.0, a0=range(8)), *queue(("big", 12, 9.0), ("x", 3, 9.0), ("y", 4, 90.0), queue="p"))
    problem = formulation_of(Snapshot(cluster=cluster(8, 8), jobs=jobs), GangParameters(quotas={"p": 99})).named()
    assert {"z[x,a]", "z[y,a]", "y_held[a,8,3]", "u_shared_late[a,4]"} <= set(problem.column_names)
    assert {"items[a,3]", "in_time[a,3]", "left_over[a,4]", "shared_now[a]", "quota[p]"} <= set(problem.row_names)


@pytest.mark.slow
@settings(max_examples=40)
@given(seed=SEEDS, parameters=PARAMETERS, other=SEEDS)
def test_names_and_places_in_the_snapshot_change_nothing(seed: int, parameters: GangParameters, other: int) -> None:
    """Jobs have distinct ages, so that their order in the snapshot says nothing."""
    snapshot = made_up(seed)
    renamed = {node.id: f"{other % 7}{node.id}" for node in snapshot.cluster.nodes}
    members = tuple(replace(node, id=renamed[node.id]) for node in snapshot.cluster.nodes)
    jobs = [
        replace(
            job,
            id=f"{other % 5}{job.id}",
            current=job.current and tuple(replace(part, node=renamed[part.node]) for part in job.current),
        )
        for job in snapshot.jobs
    ]
    np.random.default_rng(other).shuffle(jobs)
    mirrored = Snapshot(cluster=replace(snapshot.cluster, nodes=members), jobs=tuple(jobs))
    _, before, plan = planned(snapshot, parameters)
    _, after, same = planned(mirrored, parameters)
    assert after.objective == pytest.approx(before.objective)
    assert after.bound == pytest.approx(before.bound)
    assert sorted(reasons(same).values()) == sorted(reasons(plan).values())
