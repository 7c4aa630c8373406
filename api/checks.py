"""Checks that solve nothing."""

from api.convert import check_request, placement_issues
from api.measured import MeasuredSnapshots
from api.outcome import issue_documents
from api.reading import read_document
from api.schemas.problem import ValidationDoc, VerificationDoc
from api.schemas.request import PLAN_BODY, VerifyBody
from api.settings import Settings
from api.snapshots import Snapshots
from stowplan.errors import InputError, Severity


def validate_request(text: bytes, snapshots: MeasuredSnapshots, settings: Settings) -> ValidationDoc:
    """Say everything that is wrong with the JSON text of a plan request.

    Raises
    ------
    MalformedJsonError
        When the text is not JSON.
    """
    try:
        body = read_document(PLAN_BODY, text)
        source = snapshots.resolve(body.snapshot, body.policy)
        issues = (*source.notes, *check_request(body, source.used.snapshot, settings).issues)
    except InputError as error:
        issues = error.issues
    valid = not any(issue.severity is Severity.ERROR for issue in issues)
    return ValidationDoc(valid=valid, issues=issue_documents(issues))


def verify_placement(body: VerifyBody, snapshots: Snapshots) -> VerificationDoc:
    """Check a placement by anybody.

    Raises
    ------
    InputError
        When the snapshot is wrong; a wrong placement is an answer.
    """
    snapshot = snapshots.resolve(body.snapshot).snapshot
    violations = placement_issues(body.allocations, snapshot)
    return VerificationDoc(legal=not violations, violations=issue_documents(violations))
