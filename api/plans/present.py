"""Plans as clients see them, from the rows of the store."""

from typing import Any

from api.common.times import time_of
from api.schemas.plan import (
    FailureDoc,
    LinksDoc,
    OutcomeDoc,
    PlanDoc,
    PlanHeader,
    PlanList,
    PlanStatus,
    PlanSummary,
    StatusTimes,
    TimingsDoc,
    UsedOptionsDoc,
)
from api.store.records import PlanRecord

PLANS_PATH = "/v1/plans"


def plan_document(record: PlanRecord) -> PlanDoc:
    """Give the whole plan."""
    outcome = OutcomeDoc() if record.outcome is None else OutcomeDoc.model_validate_json(record.outcome)
    return PlanDoc(
        **_header(record),
        **dict(outcome),
        timings=TimingsDoc.model_validate_json(record.timings),
        failure=None if record.failure is None else FailureDoc.model_validate_json(record.failure),
    )


def plan_text(record: PlanRecord) -> str:
    """Give the whole plan as JSON. Its outcome, which may be large, is text already and stays so."""
    header = PlanHeader(**_header(record)).model_dump_json()
    outcome = record.outcome or OutcomeDoc().model_dump_json()
    return f'{header[:-1]},"timings":{record.timings},"failure":{record.failure or "null"},{outcome[1:]}'


def plan_list(records: list[PlanRecord], limit: int, statuses: list[PlanStatus], query: str) -> PlanList:
    """Give a page of at most `limit` plans; `records` holds one more when there is a next page.

    Only plans of these `statuses` are shown (empty: all). `query` are the parameters of the page, to be repeated in
    the link to the next one.
    """
    page = records[:limit]
    more = f"{PLANS_PATH}?{query}&before={page[-1].sequence}" if len(records) > limit else None
    shown = [record for record in page if not statuses or record.status in statuses]
    return PlanList(plans=tuple(_summary(record) for record in shown), next=more)


def plan_path(plan_id: str) -> str:
    """Path of a plan."""
    return f"{PLANS_PATH}/{plan_id}"


def has_figure(record: PlanRecord) -> bool:
    """Whether there is something to draw: a plan, or a proof that there is none."""
    return record.objective is not None or record.status is PlanStatus.INFEASIBLE


def _summary(record: PlanRecord) -> PlanSummary:
    return PlanSummary(
        **_header(record), objective=record.objective, bound=record.bound, relative_gap=record.relative_gap
    )


def _header(record: PlanRecord) -> dict[str, Any]:
    """Fields of `PlanHeader`."""
    path = plan_path(record.id)
    return {
        "id": record.id,
        "status": record.status,
        "policy": record.policy,
        "times": _times(record),
        "options": UsedOptionsDoc.model_validate_json(record.options),
        "input_hash": record.input_hash,
        "version": record.version,
        "links": LinksDoc(
            self=path,
            input=f"{path}/input",
            events=f"{path}/events",
            cancel=None if record.status.final else f"{path}:cancel",
            figure=f"{path}/figure.svg" if has_figure(record) else None,
            figure_png=f"{path}/figure.png" if has_figure(record) else None,
            model=f"{path}/model.mps",
        ),
    }


def _times(record: PlanRecord) -> StatusTimes:
    optional = {"building": record.building_at_s, "solving": record.solving_at_s, "finished": record.finished_at_s}
    return StatusTimes(
        queued=time_of(record.queued_at_s),
        **{name: None if unix_s is None else time_of(unix_s) for name, unix_s in optional.items()},
    )
