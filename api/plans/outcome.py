"""What planning ends with, as the process that serves gets it; that one plans nothing, and loads nothing for it."""

from dataclasses import dataclass
from functools import cache

from api.convert.issues import issue_documents
from api.schemas.plan import TerminationDoc
from models.plan import PhaseTimes
from solver.result import Limit, TerminationReason
from stowplan.errors import Issue
from stowplan.pickling import quickly_pickled

PLAN_TASK = "api.plans.planning:planned"


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What planning ended with: what is to be known of it, and in `text` the rest of the `OutcomeDoc` as JSON."""

    termination: TerminationReason
    limit: Limit | None
    objective: float | None
    bound: float | None
    relative_gap: float | None
    warnings: tuple[Issue, ...]
    times: PhaseTimes
    first_incumbent_s: float | None
    solver: str
    text: str

    def document(self) -> str:
        """The whole `OutcomeDoc` as JSON."""
        ended = _ended(self.termination, self.limit)
        warnings = ",".join(document.model_dump_json() for document in issue_documents(self.warnings))
        return f'{{"termination":{ended},"warnings":[{warnings}],{self.text[1:]}'


@cache
def _ended(reason: TerminationReason, limit: Limit | None) -> str:
    return TerminationDoc(reason=reason, limit=limit).model_dump_json()
