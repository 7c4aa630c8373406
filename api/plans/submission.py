"""What is stored of a plan that is asked for, before it is queued."""

import time
import uuid
from dataclasses import dataclass, replace

from api.common.asking import caller_now
from api.plans.reading import ReadPlan
from api.schemas.plan import PlanStatus, TimingsDoc
from api.store.records import NewPlan, PlanRecord
from stowplan import __version__
from stowplan.records import to_json

_MS_PER_S = 1e3


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A plan that was read, and what is to be stored of it."""

    asked: ReadPlan
    new: NewPlan


def new_record(asked: ReadPlan, idempotency_key: str | None) -> PlanRecord:
    """The first row of a plan."""
    return PlanRecord(
        id=f"plan-{uuid.uuid4().hex}",
        policy=asked.policy,
        status=PlanStatus.QUEUED,
        queued_at_s=time.time(),
        version=__version__,
        input_hash=asked.input_hash,
        options=asked.options.model_dump_json(),
        timings="",
        idempotency_key=idempotency_key,
    )


def new_plan(plan: ReadPlan, record: PlanRecord, received_s: float) -> NewPlan:
    """What is stored of a plan that the client asks for who is known here, and that came at `received_s` (monotonic
    clock)."""
    return NewPlan(
        record=replace(record, timings=_accepted(received_s)),
        asked=plan.input,
        posted_hash=plan.posted_hash,
        # What is stored has nothing to fill in: who goes on with it could not say these again.
        notes=to_json(plan.filled_in) if plan.filled_in else None,
        client=caller_now().client,
        due_s=record.queued_at_s + plan.request.options.time_limit_s,
    )


def _accepted(received_s: float) -> str:
    accept_ms = (time.perf_counter() - received_s) * _MS_PER_S
    timings = TimingsDoc(
        accept_ms=accept_ms, queue_ms=None, phases_ms={}, cpu_ms=None, first_incumbent_ms=None, total_ms=None
    )
    return timings.model_dump_json()
