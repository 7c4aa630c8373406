"""Issues as documents."""

from collections.abc import Sequence

from api.schemas.problem import IssueDoc
from stowplan.errors import Issue


def issue_documents(issues: Sequence[Issue]) -> tuple[IssueDoc, ...]:
    """Documents of issues."""
    return tuple(IssueDoc.model_validate(issue, from_attributes=True) for issue in issues)
