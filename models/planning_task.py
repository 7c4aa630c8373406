"""Planning as a task of workers: how a solve ends at its deadline, and who finishes when its worker was killed.

At the deadline of a task the pool asks its worker to stop, and kills it a few seconds later:

    it stops in time       its outcome says `interrupted`, as if somebody had canceled it: `limit_named`
    it is killed           DeadlineError; what it reported last stays on the ticket: `resumed`
    it died before that    WorkerError; the same

A worker that dies with nothing found is the pool's to replace: it has the task begun again.
"""

import math

from models.plan import PlanRequest, PlanTask, Resume
from solver.pool import WorkerPool
from solver.result import Limit
from solver.ticket import Ticket
from stowplan.errors import WorkerError

PLAN_TASK = "models.planning:plan_task"


def limit_named(limit: Limit | None, *, canceled: bool) -> Limit | None:
    """Tell the deadline from an interruption; `canceled` says whether anybody asked the task to stop."""
    # Else nobody but the pool asked it to stop: at its deadline.
    return Limit.DEADLINE if limit is Limit.INTERRUPTED and not canceled else limit


def resumed(
    pool: WorkerPool,
    ticket: Ticket,
    request: PlanRequest,
    limit_s: float,
    *,
    task: str = PLAN_TASK,
    validated: bool = False,
) -> Ticket | None:
    """Have another worker finish the plan of a task that is done, within `limit_s`, from the last incumbent, by `task`.

    None where there is nothing to resume: the task did not lose its worker, or the worker had found no plan.

    Raises
    ------
    WorkerError
        When the pool does not take it.
    """
    if ticket.last_incumbent is None or not isinstance(ticket.future.exception(), WorkerError):
        return None
    bound = None if ticket.last_progress is None else ticket.last_progress.bound
    resume = Resume(
        incumbent=ticket.last_incumbent,
        bound=bound if bound is not None and math.isfinite(bound) else None,
        elapsed_s=ticket.elapsed_s,
    )
    argument = PlanTask(request=request, resume=resume, validated=validated)
    return pool.submit(task, argument, limit_s, promised=True)
