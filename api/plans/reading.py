"""Tasks of readers: requests for plans and placements, from bytes to what is stored, planned or answered."""

from dataclasses import dataclass

from api.convert.hashing import input_hashes, snapshot_id, snapshot_id_of
from api.convert.issues import issue_documents
from api.convert.placement import placement_issues
from api.convert.plain import has_plain_names, plain_request
from api.convert.plain_change import SnapshotInParts, plain_change
from api.convert.reading import read_document
from api.convert.request import check_request
from api.jobs.calibrated_snapshots import MeasuredSnapshot
from api.reading.packed import PackedRequest, body_of, keep, kept_parts
from api.reading.texts import (
    Lacking,
    RequestText,
    measured_snapshot_of,
    reading_task,
    snapshot_of,
    stored_body,
)
from api.schemas.plan import UsedOptionsDoc
from api.schemas.problem import ValidationDoc, VerificationDoc
from api.schemas.request import PLAN_BODY, VERIFY_BODY, PlanBodyDoc
from api.schemas.snapshot import ChangedSnapshot
from api.store.resolved import ResolvedSnapshot
from api.store.texts import Body, PlanInput
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from stowplan.collection import without_collection
from stowplan.errors import InputError, Issue, Severity
from stowplan.pickling import quickly_pickled

READ_PLAN = f"{__name__}:read_plan"
VALIDATE_PLAN = f"{__name__}:validate_plan"
VERIFY_PLACEMENT = f"{__name__}:verify_placement"


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """A sound request for a plan.

    `input`: the body as it is stored, what was measured filled in, and `input_hash` of that; `posted_hash` is without.
    `filled_in` are warnings about that, `notes` those about the request.
    """

    policy: str
    request: PackedRequest
    options: UsedOptionsDoc
    input: PlanInput
    input_hash: str
    posted_hash: str
    filled_in: tuple[Issue, ...]
    notes: tuple[Issue, ...]


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class ReadInTask:
    """What a task has read that goes on with it, and how long that took."""

    asked: ReadPlan
    wall_s: float


def read_plan(text: RequestText, monitor: SolveMonitor) -> ReadPlan | Lacking:
    """Read and check a request for a plan; what it is for is kept for who plans next.

    Raises
    ------
    MalformedJsonError
        When the text is not JSON.
    InputError
        When the request is wrong.
    """
    with without_collection():
        found = _read_plan(text, monitor)
    if isinstance(found, Lacking):
        return found
    asked, read = found
    keep(read.source.used.snapshot, asked.input.snapshot, monitor, read.plain)
    return asked


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """A body and its snapshot; of one of plain values the text, or the parts of it; what is stored of it, where that is
    known already: nobody has put its text together then."""

    body: PlanBodyDoc
    source: MeasuredSnapshot
    plain: str | SnapshotInParts | None = None
    packed: Body | None = None

    def stored(self) -> Body:
        """What is stored of the snapshot."""
        return self.packed or Body.of(self.source.used.text)


@reading_task
def _read_plan(text: RequestText) -> tuple[ReadPlan, _Read]:
    read = _read(text)
    body, source = read.body, read.source
    checked = check_request(body, source.used.snapshot, text.settings)
    request = checked.required()
    options = UsedOptionsDoc.model_validate(request.options, from_attributes=True)
    input_ = plan_input(body, read.stored())
    hashes = input_hashes(body.policy, (source.used.id, source.posted.id), body.parameters, options)
    asked = ReadPlan(
        policy=body.policy,
        request=PackedRequest.of(request, input_.snapshot),
        options=options,
        input=input_,
        input_hash=hashes[source.used.id],
        posted_hash=hashes[source.posted.id],
        filled_in=source.notes,
        notes=checked.issues,
    )
    return asked, read


@reading_task
def validate_plan(text: RequestText) -> ValidationDoc:
    """Say everything that is wrong with a request for a plan; MalformedJsonError when the text is not JSON."""
    try:
        read = _read(text)
        source = read.source
        issues = (*source.notes, *check_request(read.body, source.used.snapshot, text.settings).issues)
    except InputError as error:
        issues = error.issues
    valid = not any(issue.severity is Severity.ERROR for issue in issues)
    return ValidationDoc(valid=valid, issues=issue_documents(issues))


@reading_task
def verify_placement(text: RequestText) -> VerificationDoc:
    """Check a placement by anybody; InputError when the snapshot is wrong (a wrong placement is an answer)."""
    body = read_document(VERIFY_BODY, text.body)
    snapshot = snapshot_of(body.snapshot, text).snapshot
    violations = placement_issues(body.allocations, snapshot, body.epsilon)
    return VerificationDoc(legal=not violations, violations=issue_documents(violations))


def _read(text: RequestText) -> _Read:
    plain = plain_request(text.body)
    if plain is not None and _are_not_measured(plain.snapshot, text):
        said = ResolvedSnapshot(snapshot=plain.snapshot, id=plain.id, text=plain.text)
        return _Read(body=plain.body, source=MeasuredSnapshot(posted=said, used=said), plain=plain.text)
    body = read_document(PLAN_BODY, text.body)
    if isinstance(body.snapshot, ChangedSnapshot):
        changed = _changed(body.snapshot, text)
        if changed is not None:
            stored = body_of(changed)
            used = ResolvedSnapshot(snapshot=changed.snapshot, id=snapshot_id_of(stored.hash), text="")
            posted_id = snapshot_id(body.snapshot.model_dump_json())
            posted = ResolvedSnapshot(snapshot=changed.snapshot, id=posted_id, text="")
            source = MeasuredSnapshot(posted=posted, used=used)
            return _Read(body=body, source=source, packed=stored, plain=changed)
    return _Read(body=body, source=measured_snapshot_of(body.snapshot, body.policy, text))


def _changed(source: ChangedSnapshot, text: RequestText) -> SnapshotInParts | None:
    """The snapshot that a request changes, with the changes; None where documents have to read both."""
    base = stored_body(source.base, text)
    parts = None if base is None or not has_plain_names(text.body) else kept_parts(base)
    changed = None if parts is None else plain_change(source, parts)
    return changed if changed is not None and _are_not_measured(changed.snapshot, text) else None


def _are_not_measured(snapshot: Snapshot, text: RequestText) -> bool:
    """Whether nothing was measured of the jobs of a snapshot."""
    return not text.measured_jobs or text.measured_jobs.isdisjoint(job.id for job in snapshot.jobs)


def plan_input(body: PlanBodyDoc, snapshot: Body) -> PlanInput:
    """The body as it is stored, its snapshot as it has been written before. Compressed by a reader."""
    return PlanInput(rest=body.model_dump_json(exclude={"snapshot"}), snapshot=snapshot)
