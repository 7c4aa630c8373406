"""Plans that the worker makes which reads what is asked for, since it keeps what that changes.

A round of changes is short: to hand it over twice, to be read and to be planned, and to store it twice, as it comes and
as it ends, takes as long as to plan it. So one task does both. Where that ends soon, the plan is stored with its end,
before anybody is answered; where it takes longer, it tells what it has read, and the plan is stored as any other, and
goes on. Whatever goes wrong before that leaves the request to the ordinary way.
"""

import asyncio
import threading
from functools import partial

from api.common.batches import Later
from api.common.errors import ShuttingDownError
from api.plans.reading import ReadInTask
from api.plans.submission import Accepted, Submission, Submissions, Submitted, new_record
from api.reading.readers import NEAR_S
from api.reading.texts import RequestText
from solver.pool import QueueFullError, WorkerPool
from solver.ticket import TaskCanceledError, Ticket
from stowplan.errors import WorkerError

READ_AND_PLAN = "api.plans.reading_planning:read_and_plan"


class _ElsewhereError(Exception):
    """The request is to be read and planned in the ordinary way."""


class NearPlans:
    """Has requests read and planned by the idle workers that keep what they change.

    Parameters
    ----------
    limit_s
        How long reading may take, until the worker is killed.
    slack_s
        How long the worker may take beyond the time limit of the solve.
    """

    def __init__(self, pool: WorkerPool, submissions: Submissions, limit_s: float, slack_s: float) -> None:
        self._pool, self._submissions = pool, submissions
        self._limit_s, self._slack_s = limit_s, slack_s

    async def submit(self, text: RequestText, idempotency_key: str | None, received_s: float) -> Submitted | None:
        """Read, plan and store what is asked for; None where that has to be done in the ordinary way.

        Raises what reading does, and `Plans.submit`.
        """
        accepted = Accepted.now(received_s)
        attempt = _Attempt(self._submissions, idempotency_key, accepted, self._slack_s)
        try:
            ticket = self._pool.submit(
                READ_AND_PLAN, text, self._limit_s, on_told=attempt.told, at_once=True, wants=text.wants
            )
        except (QueueFullError, WorkerError):
            return None
        ticket.done_callback(attempt.ended)
        # A worker that hangs is not waited for.
        patience = asyncio.get_running_loop().call_later(min(NEAR_S, self._limit_s), attempt.give_up, ticket)
        try:
            return await attempt.later.answer
        except _ElsewhereError:
            return None
        except Exception:
            # It is not to be.
            ticket.cancel()
            raise
        finally:
            patience.cancel()
            attempt.give_up(ticket)


class _Attempt:
    """One task that reads and plans, until somebody else has what comes of it."""

    def __init__(
        self, submissions: Submissions, idempotency_key: str | None, accepted: Accepted, slack_s: float
    ) -> None:
        self.later: Later[Submission, Submitted] = submissions.later()
        self._submissions = submissions
        self._key, self._accepted, self._slack_s = idempotency_key, accepted, slack_s
        self._is_over = False
        self._lock = threading.Lock()

    def told(self, ticket: Ticket) -> None:
        """It is read, and the plan takes longer."""
        if ticket.told:
            read: ReadInTask = ticket.told[0]
            ticket.go_on_for(read.asked.request.options.time_limit_s + self._slack_s)
            self._hand_over(ticket, read)

    def ended(self, ticket: Ticket) -> None:
        """There is a plan, or none in this way."""
        if ticket.told:
            self._hand_over(ticket, ticket.told[0])
            return
        error = ticket.future.exception()
        if not isinstance(error, Exception) or isinstance(error, WorkerError | TaskCanceledError):
            # Without an error it lacks what the service has to fetch.
            error = _ElsewhereError()
        if self._is_first():
            self.later.fail(error)

    def give_up(self, ticket: Ticket) -> None:
        """Leave it to the ordinary way, unless it is read."""
        if self._is_first():
            ticket.cancel()
            self.later.fail(_ElsewhereError())

    def _hand_over(self, ticket: Ticket, read: ReadInTask) -> None:
        if self._is_first():
            try:
                self.later.do(partial(self._submission, ticket, read))
            except ShuttingDownError as error:
                self.later.fail(error)

    def _submission(self, ticket: Ticket, read: ReadInTask) -> Submission:
        # Accepted is what is read.
        accepted = self._accepted.later(ticket.queued_s + read.wall_s)
        return self._submissions.of_task(ticket, read.asked, new_record(read.asked, self._key, accepted))

    def _is_first(self) -> bool:
        with self._lock:
            first, self._is_over = not self._is_over, True
        return first
