"""The loop: what happened -> snapshot -> plan -> difference to what runs -> actions.

The same for a replay, a what-if and a real cluster: nothing here knows whether time is simulated. A plan takes the road
that the service plans on (`models.planning`), so a plan that breaks a rule is an `UnverifiedPlanError`, and ends the
loop.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from types import MappingProxyType

from executor.control.actions import Action, difference
from executor.control.backend import ClusterBackend
from executor.control.book import Book
from executor.control.events import Arrival, CalendarChange, Completion, Event, Failure, NodeChange, Tick
from executor.control.options import ControlOptions
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from models.policies import policy_of

# So much after a job gets as old as counts: rounding must not put it before.
_LATE_S = 1.0

# Of a cluster that nobody has planned.
NO_PRICES: Mapping[str, float] = MappingProxyType({})

Planner = Callable[[PlanRequest], PlanOutcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was planned, with the CPU seconds of planning, and what is done about it. An outcome without a plan changes
    nothing."""

    outcome: PlanOutcome
    cpu_s: float
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instant: what happened, and the decision. None where the policy was not asked: no round was due, or no plan
    could have changed anything."""

    at_s: float
    events: tuple[Event, ...]
    decision: Decision | None


class Controller:
    """Takes over a cluster as it is, and decides until nothing happens any more.

    prices: of the last plan that had some, by the names of rows; what policies that start from prices are told.
    """

    def __init__(
        self,
        backend: ClusterBackend,
        options: ControlOptions,
        planner: Planner = plan,
        *,
        prices: Mapping[str, float] = NO_PRICES,
    ) -> None:
        self._backend = backend
        self._options = options
        self._planner = planner
        facts = backend.facts()
        self._book = Book(facts)
        policy = policy_of(options.parameters)
        self._may_start = None if policy.may_start is None else resolve_name(policy.may_start)
        self.prices = prices
        self._changes_after = None if policy.changes_after is None else resolve_name(policy.changes_after)
        # When an entry of the calendar begins, ends or becomes known of which no plan knew so.
        self._entry_s = -math.inf if facts.calendar else math.inf
        self._woken_s = -math.inf

    def step(self) -> Step | None:
        """Wait for the next instant at which something happens, and decide; None when nothing will happen."""
        events = tuple(self._backend.next_events())
        if not events:
            return None
        for event in events:
            self._book.tell(event)
            if isinstance(event, CalendarChange) or (isinstance(event, Arrival) and event.job.calendar_entry):
                # Guests of a soft reservation may have to leave when its jobs come.
                self._entry_s = event.at_s
            elif isinstance(event, Completion | Failure | NodeChange) and self._book.awaits_reservation:
                # Or when these can start, beside what is free elsewhere.
                self._entry_s = event.at_s
        decision = self._decide() if self._is_due(events) else None
        self._wake_for_entry()
        return Step(at_s=self._backend.now_s, events=events, decision=decision)

    def wake_also(self, at_s: float) -> None:
        """Have a plan made at `at_s`, too, if one could change anything then; in rounds the next one has to do.

        A moment that is over is not asked for: no plan could change anything then, and what does is an event.
        """
        now_s = self._backend.now_s
        is_asked = self._options.round_s is not None or now_s < self._woken_s <= at_s
        if not is_asked and now_s < at_s:
            self._wake_at(at_s)

    def _is_due(self, events: Sequence[Event]) -> bool:
        round_s = self._options.round_s
        if round_s is None:
            return self._may_change()
        if self._book.num_jobs:
            self._wake_at((self._backend.now_s // round_s + 1) * round_s)
        return any(isinstance(event, Tick) for event in events) and self._may_change()

    def _may_change(self) -> bool:
        """Whether a plan could change anything."""
        if self._entry_s <= self._backend.now_s and self._book.num_jobs:
            return True
        if self._may_start is None:
            return self._book.num_jobs > 0
        return bool(self._may_start(self._options.parameters, self._book.wanted, self._book.rooms))

    def _wake_again(self) -> None:
        """See to it that a plan is made when one may change because jobs wait; in rounds there is one anyway."""
        if self._changes_after is None or self._options.round_s is not None:
            return
        now_s = self._backend.now_s
        after_s = self._changes_after(self._options.parameters, self._book.waiting(now_s), self._book.served(now_s))
        if after_s is not None:
            self._wake_at(now_s + after_s + _LATE_S)

    def _wake_for_entry(self) -> None:
        """See to it that a plan is made when an entry of the calendar begins or ends; in rounds there is one anyway."""
        now_s = self._backend.now_s
        if self._entry_s == math.inf:
            self._entry_s = self._book.next_entry_s(now_s)
        is_asked = self._options.round_s is not None or now_s < self._woken_s <= self._entry_s
        if not is_asked and now_s < self._entry_s < math.inf:
            self._wake_at(self._entry_s)

    def _wake_at(self, at_s: float) -> None:
        self._woken_s = at_s
        self._backend.wake_at(at_s)

    def _decide(self) -> Decision:
        now_s = self._backend.now_s
        self._entry_s = math.inf
        request = PlanRequest(
            snapshot=self._book.snapshot(now_s, self._backend.measured, settle=self._options.settle),
            parameters=self._options.parameters.started_from(self.prices),
            options=self._options.options,
        )
        started_s = time.process_time()
        outcome = self._planner(request)
        cpu_s = time.process_time() - started_s
        # Those of a program without a plan say that there is none.
        if outcome.plan is not None and outcome.prices:
            self.prices = outcome.prices
        actions = () if outcome.plan is None else difference(self._book.running, outcome.plan)
        self._book.note(actions, now_s)
        self._backend.act(actions, self._options.charge * cpu_s)
        self._wake_again()
        return Decision(outcome=outcome, cpu_s=cpu_s, actions=actions)
