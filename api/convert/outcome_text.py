"""What planning ended with, as the text of its document: quickly where a plan is of plain allocations alone.

A plan has an allocation and a summand of the score for each job, by far the most of its text. As long as they are
numbers and names they are written here in one pass in C, as the documents would write them.
"""

import math
from collections.abc import Mapping, Set
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np

from api.convert.outcome import outcome_to_document, reason_values
from api.convert.parallel_plan import map_from_slices
from api.convert.plain import written
from api.schemas.plan import JobAllocationDoc, ModelSizeDoc, ScoreTermDoc, UnplacedJobDoc
from models.placement.check import given_to
from models.plan import JobAllocation, Plan, PlanOutcome, ScoreTerm
from models.roll import roll_of, row_of
from models.workload import Job, Snapshot
from solver.result import TerminationReason
from stowplan.rolls import objects

_ESCAPE = "\\"
_TERM = tuple(ScoreTermDoc.model_fields)
_FIELDS = tuple(JobAllocationDoc.model_fields)
# Those that are no field of an allocation, or are written otherwise.
_MADE = ("gpus", "previous", "launch", "ranks", "why")
_OWN = tuple(name for name in _FIELDS if name not in _MADE)
_UNPLACED, _SIZE = tuple(UnplacedJobDoc.model_fields), tuple(ModelSizeDoc.model_fields)
_unplaced_of, _size_of = attrgetter(*_UNPLACED), attrgetter(*_SIZE)
# Asked for by the documents alone.
_OPEN = {"termination", "warnings"}
_own_of, _term_of, _job_of = attrgetter(*_OWN), attrgetter(*_TERM), attrgetter("job_id")


def outcome_text(outcome: PlanOutcome, snapshot: Snapshot, exclude: Set[str]) -> str:
    """The document of `outcome_to_document` as JSON text, without the fields to `exclude`, among which are neither
    score nor allocations."""
    plan = outcome.plan
    lists = {} if plan is None else _plain_lists(plan, snapshot)
    if plan is not None and lists:
        text = _plain_text(outcome, plan, lists, exclude)
        if text is not None:
            return text
        outcome = replace(outcome, plan=replace(plan, score=(), allocations=()))
    text = outcome_to_document(outcome, snapshot).model_dump_json(exclude=set(exclude))
    for name, items in lists.items():
        # A quote in a text would be escaped: the first one is that of the field.
        before, empty, after = text.partition(f'"{name}":[]')
        text = f"{before}{empty[:-2]}{items}{after}"
    return text


def _plain_text(outcome: PlanOutcome, plan: Plan, lists: Mapping[str, str], exclude: Set[str]) -> str | None:
    """The whole text around `lists`; None where the documents are to write it."""
    numbers = (outcome.objective, outcome.bound, outcome.relative_gap, *outcome.prices.values())
    if plan.ahead or not (exclude >= _OPEN and all(map(_is_plain_number, numbers))):
        return None
    statistics = outcome.statistics
    before = {
        "sense": outcome.sense,
        "objective": outcome.objective,
        "bound": outcome.bound,
        "relative_gap": outcome.relative_gap,
        "proven_optimal": outcome.termination is TerminationReason.OPTIMAL,
        "verified": True,
    }
    after = {
        "unplaced": [dict(zip(_UNPLACED, _unplaced_of(job), strict=True)) for job in plan.unplaced],
        "communication": None,
        "ahead": (),
        "conflicts": outcome.conflicts,
        "size": dict(zip(_SIZE, _size_of(statistics), strict=True)),
        "solver": {"name": outcome.solver, "version": outcome.solver_version},
        "certificate": outcome.certificate,
        "prices": dict(outcome.prices),
    }
    try:
        texts = written(before), written(after)
    except (TypeError, UnicodeEncodeError):
        return None
    if any(_ESCAPE in text for text in texts):
        return None
    inner = ",".join(f'"{name}":{items}' for name, items in lists.items())
    return f"{texts[0][:-1]},{inner},{texts[1][1:]}"


def _is_plain_number(value: float | None) -> bool:
    return value is None or (type(value) is float and math.isfinite(value))


def _plain_lists(plan: Plan, snapshot: Snapshot) -> Mapping[str, str]:
    """Texts of the score and the allocations by their fields; none where the documents are to write them."""
    given = given_to(snapshot, plan.allocations)
    if plan.pretraining is not None or given is None:
        return {}
    roll, jobs = roll_of(snapshot), snapshot.jobs
    terms = objects(plan.score, len(plan.score))
    try:
        allocations = roll.each(
            "allocation text", np.object_, lambda rows: (_allocation(given[k], jobs[k]) for k in rows), beside=(given,)
        ).tolist()
        if None in allocations:
            return {}
        # Policies that score every job once have one term for each, in their order; others have whatever they have.
        score = (
            roll.each("score text", np.object_, lambda rows: map(_term, terms[rows]), beside=(terms,)).tolist()
            if terms.size == len(jobs)
            else list(map(_term, plan.score))
        )
    except TypeError:
        # Numbers of NumPy, which the documents take.
        return {}
    rows = map(row_of(snapshot).__getitem__, map(_job_of, plan.allocations))
    lists = {"score": f"[{','.join(score)}]", "allocations": f"[{','.join(map(allocations.__getitem__, rows))}]"}
    # Else there are names that are not plain.
    return {} if any(_ESCAPE in text for text in lists.values()) else lists


def _term(term: ScoreTerm) -> str:
    return written(dict(zip(_TERM, _term_of(term), strict=True)))


def _allocation(allocation: JobAllocation | None, job: Job) -> str | None:
    """The text of what a job gets; None where the documents are to write it."""
    if allocation is None:
        return ""
    if allocation.parallel_plan is not None or allocation.expansions:
        return None
    values: dict[str, Any] = dict.fromkeys(_FIELDS)
    values.update(zip(_OWN, _own_of(allocation), strict=True))
    values["gpus"] = map_from_slices(allocation.gpus)
    values["previous"] = None if job.current is None else map_from_slices(job.current)
    values["why"] = None if allocation.why is None else reason_values(allocation.why)
    return written(values)
