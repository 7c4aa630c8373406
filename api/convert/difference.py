"""What differs between two plans, as documents."""

from collections.abc import Sequence
from typing import Any

from api.convert.issues import issue_documents
from api.schemas.what_if import (
    JobDifferenceDoc,
    JobPlaceDoc,
    ObjectiveDifferenceDoc,
    PlacementFiguresDoc,
    PlanDifferenceDoc,
    SpreadDifferenceDoc,
    ValueDifferenceDoc,
    VariantDoc,
)
from models.plan import PretrainingPlacement
from models.what_if.difference import JobPlace, PlanDifference, Planned, ValueDifference, difference, price
from models.what_if.placing import own_terms_change, with_lateness
from stowplan.errors import Issue


def answer_fields(
    document: VariantDoc, base: Planned, other: Planned | None, forbidden: Sequence[Issue] = ()
) -> dict[str, Any]:
    """Fields of `VariantAnswer`; `other` as `as_asked` gives it, None as long as the variant has no outcome."""
    found = cost = None
    if other is not None:
        place = document.place
        asked = place.job if place is not None and own_terms_change(other.request) else None
        found = difference(base, other, asked)
        cost = None if place is None else price(base, other, asked)
    return {
        "variant": document,
        "forbidden": issue_documents(forbidden),
        "difference": None if found is None else difference_document(found),
        "price": cost,
    }


def as_asked(document: VariantDoc, base: Planned, other: Planned) -> Planned:
    """Give the plan of a variant, with lateness counted from the window that its job had before it was asked for."""
    place = document.place
    if place is None or place.start_s is None:
        return other
    earliest_s = {job.id: job.earliest_start_s for job in base.request.snapshot.jobs}
    earliest_s |= {job.id: job.earliest_start_s for job in document.add_jobs}
    before_s = document.jobs.get(place.job, {}).get("earliest_start_s", earliest_s[place.job])
    return with_lateness(other, place.job, float(before_s))


def difference_document(found: PlanDifference) -> PlanDifferenceDoc:
    """Give the document of a difference."""
    return PlanDifferenceDoc(
        same=found.is_empty,
        objective=ObjectiveDifferenceDoc.model_validate(found.objective, from_attributes=True),
        terms=_values(found.terms),
        jobs=tuple(
            JobDifferenceDoc(
                job_id=job.job_id,
                change=job.change,
                base=_place(job.base),
                other=_place(job.other),
                reason=job.reason,
            )
            for job in found.jobs
        ),
        num_by_change=dict(found.num_by_change),
        gpus=_values(found.gpus),
        spreads=tuple(
            SpreadDifferenceDoc(job_id=row.job_id, base=_figures(row.base), other=_figures(row.other))
            for row in found.spreads
        ),
        goodput_ratio=found.goodput_ratio,
    )


def _values(rows: Sequence[ValueDifference]) -> tuple[ValueDifferenceDoc, ...]:
    return tuple(ValueDifferenceDoc.model_validate(row, from_attributes=True) for row in rows)


def _place(place: JobPlace | None) -> JobPlaceDoc | None:
    if place is None:
        return None
    return JobPlaceDoc(
        gpu_type=place.gpu_type,
        num_gpus=place.num_gpus,
        nodes=dict(place.nodes),
        start_s=place.start_s,
        goodput=place.goodput,
    )


def _figures(placement: PretrainingPlacement | None) -> PlacementFiguresDoc | None:
    return None if placement is None else PlacementFiguresDoc.model_validate(placement, from_attributes=True)
