"""Plans from request to final state, without HTTP."""

import asyncio
import json
import logging
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any

from starlette.concurrency import run_in_threadpool

from api.common.errors import (
    IdempotencyConflictError,
    NoOutcomeError,
    NotFoundError,
    PlanNotFinishedError,
    ShuttingDownError,
    StoreError,
    WorkerTimeoutError,
)
from api.common.events import STATE, EventLog, PlanEvent
from api.common.metrics import Metrics
from api.common.settings import Settings
from api.comparisons.service import Comparisons
from api.convert.hashing import input_hash
from api.convert.outcome import outcome_from_document
from api.convert.parallel_answer import answer_document
from api.convert.parallel_request import in_body, parallel_request, time_limit_s
from api.convert.request import body_text, check_request
from api.deployments.choice import PlannedJob
from api.deployments.planned_jobs import planned_job
from api.deployments.service import Deployments
from api.figures.request import ComparisonFigure, FigureRequest, ParallelFigure, PictureFormat
from api.jobs.calibrated_snapshots import MeasuredSnapshots
from api.jobs.feedback import JobFeedback
from api.jobs.service import Jobs
from api.plans.present import has_figure, plan_document, plan_list
from api.plans.run import RunningPlan
from api.plans.termination import Termination, final_record
from api.schemas.parallel import ParallelPlanBody
from api.schemas.parallel_answer import ParallelPlanAnswer
from api.schemas.plan import FailureDoc, OutcomeDoc, PlanDoc, PlanList, PlanStatus, TimingsDoc, UsedOptionsDoc
from api.schemas.request import PLAN_BODY, PlanBodyDoc
from api.store.database import PlanRecord, Store
from api.store.snapshots import Snapshots
from models.parallelism.request import ParallelAnswer
from models.plan import PlanRequest
from solver.pool import QueueFullError, WorkerPool
from stowplan import __version__
from stowplan.errors import Issue

_FIGURE_TASK = "api.figures.render:figure_task"
_COMPARISON_FIGURE_TASK = "api.figures.comparison:figure_task"
_PARALLEL_TASK = "models.parallelism.planner:answer_task"
_PARALLEL_FIGURE_TASK = "api.figures.parallel:figure_task"
_MODEL_TASK = "models.planning:export_task"
_AUXILIARY_LIMIT_S = 60.0
_MS_PER_S = 1e3
_POLL_S = 0.02
_AFTER_LOST_EVENTS = 1_000_000_000
_logger = logging.getLogger("stowplan.api.plans.service")
_LEFT_BEHIND = FailureDoc(
    code="interrupted", detail="the service stopped or crashed before the plan was final; ask for it again"
)


class PlanService:
    """All plans of one service: those that run in memory, those that are final in the store.

    What an earlier process left unfinished is marked as interrupted at once.
    """

    def __init__(self, settings: Settings, store: Store, pool: WorkerPool) -> None:
        self.settings = settings
        self.metrics = Metrics(pool)
        self.snapshots = Snapshots(store)
        self.comparisons = Comparisons(settings, store, self.snapshots)
        self.jobs = Jobs(store)
        feedback = JobFeedback(self.jobs, settings.database_path)
        self.deployments = Deployments(settings.deployments_folder, self._planned_job, feedback)
        self.measured = MeasuredSnapshots(self.snapshots, self.jobs, self.deployments.restart_cost_s)
        self._store = store
        self._pool = pool
        self._admission = threading.Lock()
        self._running: dict[str, RunningPlan] = {}
        self._stopping = False
        self._closed = False
        # Ends are written one after another, and not by the threads that look after workers.
        self._finisher = ThreadPoolExecutor(max_workers=1, thread_name_prefix="finish")
        interrupted = store.interrupt_unfinished(time.time(), _LEFT_BEHIND.model_dump_json())
        if interrupted:
            _logger.warning("%d plans of an earlier process are marked as interrupted", interrupted)

    def submit(self, body: PlanBodyDoc, idempotency_key: str | None, received_s: float) -> str:
        """Store and queue a plan; returns its id. `received_s` is when the request came (monotonic clock).

        Raises
        ------
        InputError
            When the request is wrong.
        IdempotencyConflictError
            When the key was used with another request.
        QueueFullError
            When too many plans wait.
        ShuttingDownError
            When the service stops.
        """
        source = self.measured.resolve(body.snapshot, body.policy)
        request = check_request(body, source.used.snapshot, self.settings).required()
        options = UsedOptionsDoc.model_validate(request.options, from_attributes=True)
        record = PlanRecord(
            id=f"plan-{uuid.uuid4().hex}",
            policy=body.policy,
            status=PlanStatus.QUEUED,
            queued_at_s=time.time(),
            version=__version__,
            input_hash=input_hash(body.policy, source.used.id, body.parameters, options),
            options=options.model_dump_json(),
            timings="",
            idempotency_key=idempotency_key,
        )
        text = body_text(body, source.used.text)
        posted_hash = input_hash(body.policy, source.posted.id, body.parameters, options)
        with self._admission:
            known = None if idempotency_key is None else self._store.plan_by_key(idempotency_key)
            if known is None:
                self._admit(record, request, text, received_s, posted_hash, source.notes)
                return record.id
        # Not what was filled in: that may have changed since.
        if (self._store.posted_hash(known.id) or known.input_hash) != posted_hash:
            raise IdempotencyConflictError(
                f"the Idempotency-Key belongs to {known.id}, which has another request; use another key"
            )
        return known.id

    def plan(self, plan_id: str) -> PlanDoc:
        """Look at a plan; NotFoundError when there is none."""
        return plan_document(self._record(plan_id))

    def plans(self, limit: int, before: int | None, statuses: list[PlanStatus], query: str) -> PlanList:
        """List plans from the newest to the oldest; `query` goes into the link to the next page."""
        # One more than asked for tells whether there is a next page.
        active = [PlanStatus.QUEUED] if any(not status.final for status in statuses) else []
        records = [self._live(record) for record in self._store.plans(limit + 1, before, [*statuses, *active])]
        return plan_list(records, limit, statuses, query)

    def plan_input(self, plan_id: str) -> str:
        """JSON text of the request behind a plan; NotFoundError when there is none."""
        text = self._store.plan_input(plan_id)
        if text is None:
            raise _no_plan(plan_id)
        return text

    def events(self, plan_id: str) -> EventLog:
        """Events of a plan, running or final; NotFoundError when there is none."""
        running = self._running.get(plan_id)
        if running is not None:
            return running.events
        status = self._record(plan_id).status
        past = self._store.plan_events(plan_id)
        if past is None:
            # Its events were lost with an earlier process; whoever has seen some of them learns how it ended.
            return EventLog.of_past([PlanEvent(id=_AFTER_LOST_EVENTS, name=STATE, data={"status": status.value})])
        return EventLog.of_past(PlanEvent(**event) for event in json.loads(past))

    async def wait(self, plan_id: str, timeout_s: float) -> None:
        """Return when the plan is final, or the time is over."""
        running = self._running.get(plan_id)
        if running is not None:
            await running.events.wait_closed(timeout_s)

    def cancel(self, plan_id: str) -> None:
        """Ask a plan to stop; a final one stays as it is. NotFoundError when there is none."""
        running = self._running.get(plan_id)
        if running is not None:
            running.stop(PlanStatus.CANCELED)
        else:
            self._record(plan_id)

    def delete(self, plan_id: str) -> None:
        """Delete a final plan.

        Raises
        ------
        PlanNotFinishedError
            When it is not final.
        NotFoundError
            When there is none.
        """
        if not self._record(plan_id).status.final:
            raise PlanNotFinishedError(f"{plan_id} is not final; cancel it first")
        if not self._store.delete_plan(plan_id):
            raise _no_plan(plan_id)

    async def figure(self, plan_id: str) -> bytes:
        """Draw a plan as SVG.

        Raises
        ------
        NoOutcomeError
            When there is nothing to draw.
        """
        request = await run_in_threadpool(self._figure_request, plan_id)
        drawn: bytes = await self._run(_FIGURE_TASK, request)
        return drawn

    async def comparison_figure(self, comparison_id: str) -> bytes:
        """Draw a comparison of solvers as SVG.

        Raises
        ------
        NoOutcomeError
            When there is nothing to draw.
        """
        document = await run_in_threadpool(self.comparisons.drawable, comparison_id)
        drawn: bytes = await self._run(_COMPARISON_FIGURE_TASK, ComparisonFigure(result=document, format="svg"))
        return drawn

    async def parallel_plans(self, body: ParallelPlanBody) -> ParallelPlanAnswer:
        """Plan one job in three dimensions.

        Raises
        ------
        InputError
            When the request is wrong, or no plan is legal on any of the GPUs.
        WorkerTimeoutError
            When the time limit is over.
        """
        request = await run_in_threadpool(parallel_request, body)
        limit_s = time_limit_s(body.options, self.settings)
        with in_body(body):
            answer: ParallelAnswer = await self._run(_PARALLEL_TASK, request, limit_s)
        return await run_in_threadpool(answer_document, request, answer)

    async def parallel_figure(self, body: ParallelPlanBody, format_: PictureFormat) -> bytes:
        """Draw the answer to a request for 3D-parallel plans; raises what `parallel_plans` does."""
        answer = await self.parallel_plans(body)
        drawn: bytes = await self._run(_PARALLEL_FIGURE_TASK, ParallelFigure(answer=answer, format=format_))
        return drawn

    async def model(self, plan_id: str) -> str:
        """Give the model behind a plan as MPS."""
        request = await run_in_threadpool(self._plan_request, plan_id)
        text: str = await self._run(_MODEL_TASK, request)
        return text

    def not_ready(self) -> str | None:
        """Say why no plan can be made now; None when it can."""
        if self._stopping:
            return "shutting down"
        self._store.ping()
        return None if self._pool.num_ready else "no worker is ready yet"

    def _planned_job(self, plan_id: str, job_id: str) -> PlannedJob:
        return planned_job(self.plan(plan_id), self.plan_input(plan_id), job_id, self.snapshots)

    def begin_shutdown(self) -> None:
        """Take no new plans and ask the running ones to come back with what they have."""
        with self._admission:
            self._stopping = True
            running = list(self._running.values())
        for plan in running:
            plan.stop(PlanStatus.INTERRUPTED)
        self.comparisons.begin_shutdown()

    def close(self, close_pool: bool) -> None:
        """Stop, and the pool too if it is ours; whatever does not come back in time is marked as interrupted."""
        self.begin_shutdown()
        end_s = time.monotonic() + self.settings.shutdown_s
        while self._running and time.monotonic() < end_s:
            time.sleep(_POLL_S)
        self.comparisons.close(end_s)
        self.deployments.close()
        if close_pool:
            self._pool.close()
        self._closed = True
        self._finisher.shutdown()
        self._store.interrupt_unfinished(time.time(), _LEFT_BEHIND.model_dump_json())
        for plan in list(self._running.values()):
            plan.events.close()

    def _admit(
        self,
        record: PlanRecord,
        request: PlanRequest,
        text: str,
        received_s: float,
        posted_hash: str,
        notes: tuple[Issue, ...],
    ) -> None:
        """Store the plan, then queue it: a plan that is answered for is never lost."""
        if self._stopping:
            raise ShuttingDownError("the service stops; ask again when it is back")
        active = sum(not plan.record.status.final for plan in list(self._running.values()))
        if active >= self.settings.queue_size + self.settings.workers:
            raise QueueFullError(f"{active} plans run or wait, which is as many as this service takes")
        accept_ms = (time.perf_counter() - received_s) * _MS_PER_S
        timings = TimingsDoc(
            accept_ms=accept_ms, queue_ms=None, phases_ms={}, cpu_ms=None, first_incumbent_ms=None, total_ms=None
        )
        record = replace(record, timings=timings.model_dump_json())
        self._store.add_plan(record, text, posted_hash if posted_hash != record.input_hash else None)
        plan = RunningPlan(record, request, self._pool, self.settings.deadline_slack_s, self._ended, notes)
        self._running[record.id] = plan
        try:
            plan.start()
        except Exception:
            del self._running[record.id]
            self._store.delete_plan(record.id)
            raise

    def _ended(self, plan: RunningPlan, termination: Termination) -> None:
        if not self._closed:
            self._finisher.submit(self._finish, plan, termination)

    def _finish(self, plan: RunningPlan, termination: Termination) -> None:
        if termination.outcome is not None:
            warnings = (*plan.notes, *termination.outcome.warnings)
            termination = replace(termination, outcome=replace(termination.outcome, warnings=warnings))
        try:
            record = final_record(plan.record, termination, plan.request.snapshot, plan.queued_s)
        except Exception as error:
            _logger.exception("the outcome of plan %s cannot be told", plan.record.id)
            failure = FailureDoc(code="internal_error", detail=f"the outcome cannot be told: {error}")
            termination = Termination(status=PlanStatus.FAILED, failure=failure)
            record = final_record(plan.record, termination, plan.request.snapshot, plan.queued_s)
        state = {"status": record.status.value}
        events = json.dumps([asdict(event) for event in plan.events.preview(STATE, state)])
        plan.record = record
        try:
            self._store.finish_plan(record, events)
            del self._running[record.id]
        except StoreError:
            # It stays in memory, where clients still find it.
            _logger.exception("plan %s cannot be stored", record.id)
        self.metrics.plans.labels(record.policy, record.status.value).inc()
        if termination.outcome is not None and "solve" in termination.outcome.times.wall_s:
            seconds = termination.outcome.times.wall_s["solve"]
            self.metrics.solve_seconds.labels(record.policy, termination.outcome.solver).observe(seconds)
        plan.events.publish(STATE, state)
        plan.events.close()

    def _record(self, plan_id: str) -> PlanRecord:
        running = self._running.get(plan_id)
        record = self._store.plan(plan_id) if running is None else running.record
        if record is None:
            raise _no_plan(plan_id)
        return record

    def _live(self, record: PlanRecord) -> PlanRecord:
        """The plan as it stands now; the store knows only how it began and how it ended."""
        running = self._running.get(record.id)
        return record if running is None else replace(running.record, sequence=record.sequence)

    def _plan_request(self, plan_id: str) -> PlanRequest:
        body = PLAN_BODY.validate_json(self.plan_input(plan_id))
        return check_request(body, self.snapshots.resolve(body.snapshot).snapshot, self.settings).required()

    def _figure_request(self, plan_id: str) -> FigureRequest:
        record = self._record(plan_id)
        if record.outcome is None or not has_figure(record):
            raise NoOutcomeError(f"{plan_id} is {record.status.value}: there is nothing to draw")
        plan = plan_document(record)
        outcome = outcome_from_document(OutcomeDoc.model_validate_json(record.outcome), plan.timings)
        return FigureRequest(snapshot=self._plan_request(plan_id).snapshot, outcome=outcome, format="svg")

    async def _run(self, task: str, argument: object, limit_s: float = _AUXILIARY_LIMIT_S) -> Any:
        """Have a worker do something small."""
        ticket = self._pool.submit(task, argument, limit_s)
        try:
            async with asyncio.timeout(limit_s):
                return await asyncio.wrap_future(ticket.future)
        except TimeoutError as error:
            raise WorkerTimeoutError(
                f"not done within {limit_s:g} s: all workers are busy, or this is too large for the time"
            ) from error
        finally:
            ticket.cancel()


def _no_plan(plan_id: str) -> NotFoundError:
    return NotFoundError(f"there is no plan {plan_id!r}")
