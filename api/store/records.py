"""What the store keeps of plans and snapshots, as it is given and gives it."""

from collections.abc import Mapping
from dataclasses import dataclass

from api.schemas.plan import PlanStatus
from api.store.texts import Body, PlanInput


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """One row of the plans, without its input and events. Times are Unix seconds; documents are JSON text.

    `sequence` orders plans by arrival; the store gives it out.
    """

    id: str
    policy: str
    status: PlanStatus
    queued_at_s: float
    version: str
    input_hash: str
    options: str
    timings: str
    sequence: int = 0
    idempotency_key: str | None = None
    building_at_s: float | None = None
    solving_at_s: float | None = None
    finished_at_s: float | None = None
    objective: float | None = None
    bound: float | None = None
    relative_gap: float | None = None
    outcome: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """A plan that an earlier process left unfinished.

    `times_taken_up`: by how many processes, this one included, since one last ended in good order;
    `times_begun_again`: in how many of those before this a worker had begun with it. `epoch`: of its lease; `client`:
    who asked for it, where that is known; `wants_end`: somebody has asked for its end.
    """

    record: PlanRecord
    times_taken_up: int
    times_begun_again: int
    epoch: int = 1
    client: str | None = None
    wants_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPlan:
    """A plan that is asked for.

    `posted_hash`: of the request as it was posted; `notes`: what is said of what was filled in; `due_s`: its turn,
    the smallest is next. `events`: as JSON text, of one that has ended before it is stored.
    """

    record: PlanRecord
    asked: PlanInput
    events: str | None = None
    posted_hash: str | None = None
    notes: str | None = None
    client: str | None = None
    due_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNews:
    """What a plan that is not final has told since it was written last: its state, and events as JSON text by id."""

    plan_id: str
    epoch: int
    status: PlanStatus
    building_at_s: float | None
    solving_at_s: float | None
    events: Mapping[int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecord:
    """One stored snapshot; `document` is JSON text."""

    id: str
    created_at_s: float
    document: Body
