"""Checks that solve nothing."""

from api.common.settings import Settings
from api.convert.outcome import issue_documents
from api.convert.placement import placement_issues
from api.convert.reading import read_document
from api.convert.request import check_request
from api.jobs.calibrated_snapshots import MeasuredSnapshots
from api.schemas.problem import ValidationDoc, VerificationDoc
from api.schemas.request import PLAN_BODY, VerifyBody
from api.store.snapshots import Snapshots
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
