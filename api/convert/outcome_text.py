"""What planning ended with, as the text of its document: quickly where a plan is of plain allocations alone.

A plan has an allocation and a summand of the score for each job, by far the most of its text. As long as they are
numbers and names they are written here in one pass in C, as the documents would write them.
"""

from collections.abc import Mapping, Set
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from api.convert.outcome import outcome_to_document, reason_values
from api.convert.parallel_plan import map_from_slices
from api.convert.plain import written
from api.schemas.plan import JobAllocationDoc, ScoreTermDoc
from models.placement.check import given_to
from models.plan import JobAllocation, Plan, PlanOutcome, ScoreTerm
from models.roll import roll_of, row_of
from models.workload import Job, Snapshot
from stowplan.rolls import objects

_ESCAPE = "\\"
_TERM = tuple(ScoreTermDoc.model_fields)
_FIELDS = tuple(JobAllocationDoc.model_fields)
# Those that are no field of an allocation, or are written otherwise.
_MADE = ("gpus", "previous", "launch", "ranks", "why")
_OWN = tuple(name for name in _FIELDS if name not in _MADE)
_own_of, _term_of, _job_of = attrgetter(*_OWN), attrgetter(*_TERM), attrgetter("job_id")


def outcome_text(outcome: PlanOutcome, snapshot: Snapshot, exclude: Set[str]) -> str:
    """The document of `outcome_to_document` as JSON text, without the fields to `exclude`, among which are neither
    score nor allocations."""
    plan = outcome.plan
    lists = {} if plan is None else _plain_lists(plan, snapshot)
    if plan is not None and lists:
        outcome = replace(outcome, plan=replace(plan, score=(), allocations=()))
    text = outcome_to_document(outcome, snapshot).model_dump_json(exclude=set(exclude))
    for name, items in lists.items():
        # A quote in a text would be escaped: the first one is that of the field.
        before, empty, after = text.partition(f'"{name}":[]')
        text = f"{before}{empty[:-2]}{items}{after}"
    return text


def _plain_lists(plan: Plan, snapshot: Snapshot) -> Mapping[str, str]:
    """Texts of the score and the allocations by their fields; none where the documents are to write them."""
    given = given_to(snapshot, plan.allocations)
    if plan.pretraining is not None or given is None:
        return {}
    roll, jobs = roll_of(snapshot), snapshot.jobs
    if not roll.each("is plain", np.bool_, lambda rows: map(_is_plain, given[rows]), beside=(given,)).all():
        return {}
    terms = objects(plan.score, len(plan.score))
    try:
        allocations = roll.each(
            "allocation text", np.object_, lambda rows: (_allocation(given[k], jobs[k]) for k in rows), beside=(given,)
        )
        # Policies that score every job once have one term for each, in their order; others have whatever they have.
        score = (
            roll.each("score text", np.object_, lambda rows: map(_term, terms[rows]), beside=(terms,)).tolist()
            if terms.size == len(jobs)
            else list(map(_term, plan.score))
        )
    except TypeError:
        # Numbers of NumPy, which the documents take.
        return {}
    rows = list(map(row_of(snapshot).__getitem__, map(_job_of, plan.allocations)))
    lists = {"score": f"[{','.join(score)}]", "allocations": f"[{','.join(allocations[rows].tolist())}]"}
    # Else there are names that are not plain.
    return {} if any(_ESCAPE in text for text in lists.values()) else lists


def _is_plain(allocation: JobAllocation | None) -> bool:
    return allocation is None or (allocation.parallel_plan is None and not allocation.expansions)


def _term(term: ScoreTerm) -> str:
    return written(dict(zip(_TERM, _term_of(term), strict=True)))


def _allocation(allocation: JobAllocation | None, job: Job) -> str:
    if allocation is None:
        return ""
    values: dict[str, Any] = dict.fromkeys(_FIELDS)
    values.update(zip(_OWN, _own_of(allocation), strict=True))
    values["gpus"] = map_from_slices(allocation.gpus)
    values["previous"] = None if job.current is None else map_from_slices(job.current)
    values["why"] = None if allocation.why is None else reason_values(allocation.why)
    return written(values)
