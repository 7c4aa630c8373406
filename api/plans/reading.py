"""Tasks of readers: requests for plans and placements, from bytes to what is stored, planned or answered."""

from dataclasses import dataclass

from api.convert.hashing import input_hash
from api.convert.issues import issue_documents
from api.convert.placement import placement_issues
from api.convert.plain import plain_request
from api.convert.reading import read_document
from api.convert.request import check_request
from api.jobs.calibrated_snapshots import MeasuredSnapshot
from api.reading.packed import PackedRequest, keep
from api.reading.texts import Lacking, RequestText, measured_snapshot_of, reading_task, snapshot_of
from api.schemas.plan import UsedOptionsDoc
from api.schemas.problem import ValidationDoc, VerificationDoc
from api.schemas.request import PLAN_BODY, VERIFY_BODY, PlanBodyDoc
from api.store.resolved import ResolvedSnapshot
from api.store.texts import Body, PlanInput
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from stowplan.collection import without_collection
from stowplan.errors import InputError, Issue, Severity

READ_PLAN = f"{__name__}:read_plan"
VALIDATE_PLAN = f"{__name__}:validate_plan"
VERIFY_PLACEMENT = f"{__name__}:verify_placement"


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
    asked, snapshot = found
    keep(snapshot, asked.input.snapshot, monitor)
    return asked


@reading_task
def _read_plan(text: RequestText) -> tuple[ReadPlan, Snapshot]:
    body, source = _read(text)
    checked = check_request(body, source.used.snapshot, text.settings)
    request = checked.required()
    options = UsedOptionsDoc.model_validate(request.options, from_attributes=True)
    input_ = plan_input(body, source.used.text)
    asked = ReadPlan(
        policy=body.policy,
        request=PackedRequest.of(request, input_.snapshot),
        options=options,
        input=input_,
        input_hash=input_hash(body.policy, source.used.id, body.parameters, options),
        posted_hash=input_hash(body.policy, source.posted.id, body.parameters, options),
        filled_in=source.notes,
        notes=checked.issues,
    )
    return asked, source.used.snapshot


@reading_task
def validate_plan(text: RequestText) -> ValidationDoc:
    """Say everything that is wrong with a request for a plan; MalformedJsonError when the text is not JSON."""
    try:
        body, source = _read(text)
        issues = (*source.notes, *check_request(body, source.used.snapshot, text.settings).issues)
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


def _read(text: RequestText) -> tuple[PlanBodyDoc, MeasuredSnapshot]:
    plain = plain_request(text.body)
    if plain is not None and text.measured_jobs.isdisjoint(job.id for job in plain.snapshot.jobs):
        said = ResolvedSnapshot(snapshot=plain.snapshot, id=plain.id, text=plain.text)
        return plain.body, MeasuredSnapshot(posted=said, used=said)
    body = read_document(PLAN_BODY, text.body)
    return body, measured_snapshot_of(body.snapshot, body.policy, text)


def plan_input(body: PlanBodyDoc, snapshot_text: str) -> PlanInput:
    """The body as it is stored, its snapshot as it has been written before. Compressed here, by a reader."""
    return PlanInput(rest=body.model_dump_json(exclude={"snapshot"}), snapshot=Body.of(snapshot_text))
