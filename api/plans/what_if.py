"""What if: variants of a plan's request, each of which is a plan of its own, beside that plan."""

import time
from collections.abc import Sequence

from starlette.concurrency import run_in_threadpool

from api.common.errors import NoOutcomeError, PlanNotFinishedError
from api.common.settings import Settings
from api.common.tasks import run_task
from api.figures.picture_format import PictureFormat
from api.plans.present import plan_document, plan_path
from api.plans.service import Plans
from api.plans.variants import COMPARE_PLANS, READ_VARIANTS, DrawnTexts, PlanText, PlanTexts, ReadVariant, VariantsText
from api.reading.readers import Readers
from api.schemas.what_if import PlanDifferenceDoc, PlannedVariantDoc, VariantAnswer, VariantDoc, WhatIfDoc
from api.store.records import PlanRecord
from solver.pool import WorkerPool

_FIGURE_TASK = "api.plans.difference_figure:figure_task"


class WhatIfs:
    """Asks `plans` for variants, and says what differs. Nothing is stored but the plans."""

    def __init__(self, settings: Settings, plans: Plans, readers: Readers, pool: WorkerPool) -> None:
        # The token is nobody's business but ours.
        self._settings = settings.model_copy(update={"token": None})
        self._plans = plans
        self._readers = readers
        self._pool = pool

    async def ask(
        self, plan_id: str, body: bytes, key: str | None, received_s: float, wait_s: float | None
    ) -> WhatIfDoc:
        """Queue the plans of all variants, or none; wait for them for at most `wait_s`, and give what there is then.

        The same key gives the same plans.

        Raises
        ------
        NotFoundError
            When there is no such plan.
        PlanNotFinishedError
            When the plan is not final.
        InputError
            When a variant is wrong.
        IdempotencyConflictError, QueueFullError, ShuttingDownError
            As for a plan.
        """
        base = await self._final(plan_id)
        text = VariantsText(request=await self._input(plan_id), body=body, settings=self._settings)
        read: tuple[ReadVariant, ...]
        read = await self._readers.read(READ_VARIANTS, text, len(text.request) + len(text.body))
        asked = [
            (each.plan, None if key is None else f"{plan_id}:what-if/{k}/{key}")
            for k, each in enumerate(read)
            if each.plan is not None
        ]
        ids = await run_in_threadpool(self._plans.submit_all, asked, received_s)
        end_s = time.monotonic() + (wait_s or 0.0)
        for id_ in ids if wait_s is not None else ():
            await self._plans.wait(id_, max(0.0, end_s - time.monotonic()))
        return WhatIfDoc(base=plan_document(base), variants=await self._answers(base, read, ids))

    async def difference(self, plan_id: str, other_id: str) -> PlanDifferenceDoc:
        """Say what differs between two plans.

        Raises
        ------
        NotFoundError
            When there is none of the two.
        PlanNotFinishedError
            When one is not final.
        NoOutcomeError
            When one has no allocations.
        """
        found = await self._compared(await self._final(plan_id), await self._final(other_id), None)
        if not isinstance(found, PlanDifferenceDoc):
            raise NoOutcomeError(f"{plan_id} or {other_id} ended without a plan: there is nothing to compare")
        return found

    async def figure(self, plan_id: str, other_id: str, format_: PictureFormat) -> bytes:
        """Draw two plans beside each other; raises what `difference` does."""
        base, other = await self._final(plan_id), await self._final(other_id)
        if base.objective is None or other.objective is None:
            raise NoOutcomeError(f"{plan_id} or {other_id} ended without a plan: there is nothing to draw")
        texts = PlanTexts(base=await self._text(base), other=await self._text(other), variant=None)
        drawn: bytes = await run_task(self._pool, _FIGURE_TASK, DrawnTexts(texts=texts, format=format_))
        return drawn

    async def _answers(
        self, base: PlanRecord, read: Sequence[ReadVariant], ids: Sequence[str]
    ) -> tuple[PlannedVariantDoc, ...]:
        """A row for each variant; `ids` are those of the plans of those that have one."""
        rest = iter(ids)
        rows = []
        for each in read:
            if each.plan is None:
                answer = VariantAnswer(variant=each.document, forbidden=each.forbidden)
                rows.append(PlannedVariantDoc(**dict(answer), plan=None, figure=None))
                continue
            record = await run_in_threadpool(self._plans.record, next(rest))
            answer = VariantAnswer(variant=each.document)
            if record.status.final and record.outcome is not None and base.outcome is not None:
                found = await self._compared(base, record, each.document)
                answer = found if isinstance(found, VariantAnswer) else answer
            drawable = answer.difference is not None
            path = f"{plan_path(base.id)}/differences/{record.id}"
            svg, png = (f"{path}/figure.{format_}" if drawable else None for format_ in ("svg", "png"))
            rows.append(PlannedVariantDoc(**dict(answer), plan=plan_document(record), figure=svg, figure_png=png))
        return tuple(rows)

    async def _compared(
        self, base: PlanRecord, other: PlanRecord, variant: VariantDoc | None
    ) -> VariantAnswer | PlanDifferenceDoc | None:
        if base.outcome is None or other.outcome is None:
            return None
        texts = PlanTexts(base=await self._text(base), other=await self._text(other), variant=variant)
        found: VariantAnswer | PlanDifferenceDoc | None
        found = await self._readers.read(COMPARE_PLANS, texts, texts.num_bytes)
        return found

    async def _final(self, plan_id: str) -> PlanRecord:
        record = await run_in_threadpool(self._plans.record, plan_id)
        if not record.status.final:
            raise PlanNotFinishedError(f"{plan_id} is {record.status.value}; wait until it is final")
        return record

    async def _text(self, record: PlanRecord) -> PlanText:
        return PlanText(request=await self._input(record.id), outcome=record.outcome or "")

    async def _input(self, plan_id: str) -> str:
        return await run_in_threadpool(self._plans.input_text, plan_id)
