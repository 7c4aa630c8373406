"""How plans of a service end: one after another, and each as the store has it."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

from api.common.events import STATE, EventLog
from api.common.metrics import Metrics
from api.common.unstored import UnstoredEnds
from api.plans.run import RunningPlan
from api.plans.sharing import one_thread
from api.plans.termination import Termination, final_record
from api.plans.traces import PlanTraces
from api.schemas.plan import PlanStatus
from api.store.database import PlanRecord, Store


class Endings:
    """Writes ends of plans, and takes these out of `running`.

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
        # Not by the threads that look after workers.
        self._thread = one_thread("finish")
        self._unstored = UnstoredEnds("plans", "they are planned again")

    def end(self, plan: RunningPlan, termination: Termination) -> None:
        """End a plan when it has its turn."""
        self._thread.submit(self._finish, plan, termination)

    def lose(self, plan: RunningPlan) -> None:
        """Another service has taken a plan; its end is not ours to say."""
        if plan.decide():
            self._lost(plan)

    def close(self) -> None:
        """Write what has ended."""
        self._thread.shutdown()
        self._unstored.close()

    def _finish(self, plan: RunningPlan, termination: Termination) -> None:
        if not plan.decide():
            return
        has_plan = termination.outcome is not None and termination.outcome.termination.has_incumbent
        if termination.status is PlanStatus.INTERRUPTED and not has_plan and self._store.is_lasting:
            # The next process goes on with it.
            del self._running[plan.record.id]
            plan.events.close()
            return
        if termination.outcome is not None:
            warnings = (*plan.notes, *termination.outcome.warnings)
            termination = replace(termination, outcome=replace(termination.outcome, warnings=warnings))
        record = final_record(plan.record, termination, plan.queued_s)
        events = json.dumps([asdict(event) for event in plan.events.preview(STATE, {"status": record.status.value})])
        if not self._store.is_shared:
            # Nobody else can say how it ends: until that is stored it stays in memory, where clients find it.
            plan.record = record
        self._unstored.write(record.id, partial(self._store_end, plan, record, events))
        if not self._store.is_shared:
            self._conclude(plan, record)
        if termination.outcome is not None and "solve" in termination.outcome.times.wall_s:
            seconds = termination.outcome.times.wall_s["solve"]
            self._metrics.solve_seconds.labels(record.policy, termination.outcome.solver).observe(seconds)

    def _store_end(self, plan: RunningPlan, record: PlanRecord, events: str) -> None:
        is_stored = self._store.finish_plan(record, events, plan.epoch)
        self._running.pop(record.id, None)
        if not self._store.is_shared:
            return
        if is_stored:
            self._conclude(plan, record)
        else:
            # The end is another service's to say.
            self._lost(plan)

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
