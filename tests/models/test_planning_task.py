"""How a solve in a worker ends, and who finishes for a dead worker. The pool is a stand-in: nothing is started."""

import math
from typing import Any, cast

import numpy as np
import pytest

from models.allocation.sia.parameters import SiaParameters
from models.plan import PlanOutcome, PlanRequest, PlanTask
from models.planning import plan
from models.planning_task import PLAN_TASK, limit_named, resumed
from models.workload import Snapshot
from solver.monitor import Progress
from solver.pool import WorkerPool
from solver.result import Limit
from solver.ticket import DeadlineError, TaskCanceledError, Ticket
from stowplan.errors import InputError, WorkerError
from topology.cluster import Cluster, GpuType, Node

POINT = np.array([1.0, 0.0])
GPU = GpuType(
    name="a",
    memory_bytes=2**34,
    peak_flops_per_s=1e14,
    intra_node_bandwidth_bytes_per_s=1e11,
    inter_node_bandwidth_bytes_per_s=1e10,
)
REQUEST = PlanRequest(
    snapshot=Snapshot(
        cluster=Cluster(gpu_types=(GPU,), nodes=(Node(id="n", gpu_type="a", num_gpus=1),)),
        jobs=(),
    ),
    parameters=SiaParameters(),
)


class Submissions:
    """A pool that writes down what it is asked for."""

    def __init__(self, closed: bool = False) -> None:
        self.closed = closed
        self.asked: list[tuple[str, Any, float]] = []

    def submit(self, task: str, argument: object, deadline_s: float, *, promised: bool = False) -> Ticket:
        if self.closed:
            raise WorkerError("closed")
        assert promised
        self.asked.append((task, argument, deadline_s))
        return Ticket(2, task, b"", deadline_s, None, None)


def ended(answer: object, *progress: Progress) -> Ticket:
    """A ticket that has begun, reported, and come to its end."""
    ticket = Ticket(1, PLAN_TASK, b"", 5.0, None, None)
    ticket._begin()
    for one in progress:
        ticket._advance(one)
    if isinstance(answer, BaseException):
        ticket.fail(answer)
    else:
        ticket._finish(answer)
    return ticket


def resume_with(pool: Submissions, ticket: Ticket) -> Ticket | None:
    return resumed(cast("WorkerPool", pool), ticket, REQUEST, 7.0)


@pytest.fixture(scope="module")
def outcome() -> PlanOutcome:
    return plan(REQUEST)


@pytest.mark.parametrize("canceled", [False, True])
@pytest.mark.parametrize("limit", [None, *Limit])
def test_a_stop_that_nobody_asked_for_is_the_deadline(limit: Limit | None, canceled: bool) -> None:
    told = limit_named(limit, canceled=canceled)
    assert told is (Limit.DEADLINE if limit is Limit.INTERRUPTED and not canceled else limit)


@pytest.mark.parametrize("error", [WorkerError("died"), DeadlineError("killed")])
def test_another_worker_goes_on_from_the_last_incumbent(error: WorkerError) -> None:
    pool = Submissions()
    ticket = ended(
        error,
        Progress(elapsed_s=0.1, objective=3.0, bound=9.0, incumbent=-POINT),
        Progress(elapsed_s=0.2, objective=4.0, incumbent=POINT),
        Progress(elapsed_s=0.3, bound=5.0),
    )
    second = resume_with(pool, ticket)
    assert second is not None
    [(task, argument, limit_s)] = pool.asked
    assert (task, second.task, limit_s) == (PLAN_TASK, PLAN_TASK, 7.0)
    assert isinstance(argument, PlanTask)
    assert argument.request is REQUEST
    assert argument.resume is not None
    assert argument.resume.incumbent is POINT
    assert (argument.resume.bound, argument.resume.elapsed_s) == (5.0, ticket.elapsed_s)


@pytest.mark.parametrize("bound", [None, math.inf, -math.inf, math.nan])
def test_a_bound_that_is_none_is_not_passed_on(bound: float | None) -> None:
    pool = Submissions()
    assert resume_with(pool, ended(WorkerError("died"), Progress(elapsed_s=0.1, bound=bound, incumbent=POINT)))
    assert pool.asked[0][1].resume.bound is None


@pytest.mark.parametrize("answer", ["an outcome", InputError("wrong"), TaskCanceledError("canceled")])
def test_who_did_not_lose_the_worker_is_not_resumed(answer: object) -> None:
    pool = Submissions()
    assert resume_with(pool, ended(answer, Progress(elapsed_s=0.1, incumbent=POINT))) is None
    assert not pool.asked


@pytest.mark.parametrize("progress", [(), (Progress(elapsed_s=0.1, bound=5.0),)])
def test_nothing_found_is_nothing_to_resume(progress: tuple[Progress, ...]) -> None:
    pool = Submissions()
    assert resume_with(pool, ended(DeadlineError("killed"), *progress)) is None
    assert not pool.asked


def test_a_closed_pool_says_so() -> None:
    with pytest.raises(WorkerError, match="closed"):
        resume_with(Submissions(closed=True), ended(WorkerError("died"), Progress(elapsed_s=0.1, incumbent=POINT)))
