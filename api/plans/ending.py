"""How plans of a service end: together where they come together, and each as the store has it."""

import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from api.common.errors import StoreUnavailableError
from api.common.events import STATE, EventLog
from api.common.metrics import Metrics
from api.common.unstored import UnstoredEnds
from api.plans.run import RunningPlan
from api.plans.termination import Termination, final_record
from api.plans.traces import PlanTraces
from api.schemas.plan import PlanStatus
from api.store.database import PlanEnd, Store
from api.store.records import PlanRecord

_logger = logging.getLogger("stowplan.api.plans.ending")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A plan that has ended, its final row, and its events as JSON text."""

    plan: RunningPlan
    termination: Termination
    record: PlanRecord
    events: str

    @property
    def stored(self) -> PlanEnd:
        """What the store is given of it."""
        return self.record, self.events, self.plan.epoch


class Endings:
    """Writes ends of plans, and takes these out of `running`: one thread `take`s those that have come, and `finish`es
    them.

    Parameters
    ----------
    follow
        Has the events of a plan that another service has taken go on with what is told there.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        traces: PlanTraces,
        running: dict[str, RunningPlan],
        follow: Callable[[str, EventLog], None],
    ) -> None:
        self._store, self._metrics, self._traces = store, metrics, traces
        self._running, self._follow = running, follow
        self._ended: deque[tuple[RunningPlan, Termination]] = deque()
        self._unstored = UnstoredEnds("plans", "they are planned again")

    def add(self, plan: RunningPlan, termination: Termination) -> None:
        """A plan has come to its end."""
        self._ended.append((plan, termination))

    def lose(self, plan: RunningPlan) -> None:
        """Another service has taken a plan; its end is not ours to say."""
        if plan.decide():
            self._lost(plan)

    def close(self) -> None:
        """Write what has come."""
        self.finish(self.take())
        self._unstored.close()

    def take(self) -> list[Ending]:
        """What is to be stored of all plans that have come to their end since."""
        endings: list[Ending] = []
        while self._ended:
            plan, termination = self._ended.popleft()
            with _logged(plan):
                ending = self.ending(plan, termination)
                if ending is not None:
                    endings.append(ending)
        return endings

    def finish(self, endings: Sequence[Ending], stored: Sequence[bool] | StoreUnavailableError | None = None) -> None:
        """Store ends where that has not been done, together if the database takes that, and tell of them.

        Parameters
        ----------
        stored
            Where it has been tried: whether each end is this service's to say, or why the database takes nothing now.
        """
        if endings and stored is None:
            stored = self._stored_together(endings)
        if isinstance(stored, StoreUnavailableError):
            _logger.error("the ends of %d plans cannot be stored yet: %s", len(endings), stored)
        for k, ending in enumerate(endings):
            with _logged(ending.plan):
                self._finish(ending, stored[k] if isinstance(stored, Sequence) else stored)

    def tell(self, ending: Ending) -> None:
        """Tell of a plan that was stored with its end."""
        with _logged(ending.plan):
            self._conclude(ending.plan, ending.record)
            self._observe(ending)

    def ending(self, plan: RunningPlan, termination: Termination) -> Ending | None:
        """What is to be stored; None where there is nothing to say here."""
        if not plan.decide():
            return None
        has_plan = termination.outcome is not None and termination.outcome.termination.has_incumbent
        if termination.status is PlanStatus.INTERRUPTED and not has_plan and self._store.is_lasting:
            # The next process goes on with it.
            del self._running[plan.record.id]
            plan.events.close()
            return None
        if termination.outcome is not None:
            warnings = (*plan.notes, *termination.outcome.warnings)
            termination = replace(termination, outcome=replace(termination.outcome, warnings=warnings))
        record = final_record(plan.record, termination, plan.queued_s)
        events = json.dumps([event.document for event in plan.events.preview(STATE, {"status": record.status.value})])
        if not self._store.is_shared:
            # Nobody else can say how it ends: until that is stored it stays in memory, where clients find it.
            plan.record = record
        return Ending(plan=plan, termination=termination, record=record, events=events)

    def _stored_together(self, endings: Sequence[Ending]) -> Sequence[bool] | StoreUnavailableError | None:
        try:
            return self._store.finish_plans([ending.stored for ending in endings])
        except StoreUnavailableError as error:
            # To try them one by one would wait as often.
            return error
        except Exception:  # noqa: BLE001 - one by one they are tried, and told of
            return None

    def _finish(self, ending: Ending, stored: bool | StoreUnavailableError | None) -> None:
        """Store an end where that has not been done, and tell of it."""
        plan, record = ending.plan, ending.record
        try:
            if isinstance(stored, bool):
                self._take_out(ending, is_stored=stored)
            else:
                write = self._unstored.write if stored is None else self._unstored.keep
                write(record.id, partial(self._store_end, ending))
        finally:
            # Who waits for it has it, also where the database will never take it.
            if not self._store.is_shared:
                self._conclude(plan, record)
        self._observe(ending)

    def _observe(self, ending: Ending) -> None:
        outcome = ending.termination.outcome
        if outcome is not None and "solve" in outcome.times.wall_s:
            seconds = outcome.times.wall_s["solve"]
            self._metrics.solve_seconds.labels(ending.record.policy, outcome.solver).observe(seconds)

    def _store_end(self, ending: Ending) -> None:
        is_stored = self._store.finish_plan(*ending.stored)
        self._take_out(ending, is_stored=is_stored)

    def _take_out(self, ending: Ending, *, is_stored: bool) -> None:
        """A plan whose end the database has taken, as the end that this service says or as another one's."""
        self._running.pop(ending.record.id, None)
        if not self._store.is_shared:
            return
        if is_stored:
            self._conclude(ending.plan, ending.record)
        else:
            # The end is another service's to say.
            self._lost(ending.plan)

    def _conclude(self, plan: RunningPlan, record: PlanRecord) -> None:
        plan.record = record
        self._metrics.plans.labels(record.policy, record.status.value).inc()
        plan.events.publish(STATE, {"status": record.status.value})
        plan.events.close()
        self._traces.ended(plan.asked, record)

    def _lost(self, plan: RunningPlan) -> None:
        self._running.pop(plan.record.id, None)
        # Whoever follows it here goes on with what is told there.
        self._follow(plan.record.id, plan.drop())


@contextmanager
def _logged(plan: RunningPlan) -> Iterator[None]:
    """Tell of what goes wrong with one end, which must not keep others from theirs."""
    try:
        yield
    except Exception:
        _logger.exception("plan %s does not end as it should", plan.record.id)
