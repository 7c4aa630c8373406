"""The one error tree. Codes are stable; `api` maps them to HTTP once.

Outcomes of a solve (infeasible, out of time) are values, never exceptions. Exceptions are for bad input,
a broken environment, and bugs of ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Severity(StrEnum):
    """Errors refuse the input; warnings travel with the answer."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One finding about an input or a plan.

    `pointer` is an RFC 6901 JSON pointer into the document that the user sent (`/cluster/nodes/3/path`).
    `detail` says what is wrong and what would be right.
    """

    code: str
    pointer: str
    detail: str
    severity: Severity = Severity.ERROR


class StowplanError(Exception):
    """Root of the tree. `detail` is one sentence for a person, `issues` the findings behind it."""

    code: ClassVar[str] = "internal_error"

    def __init__(self, detail: str, issues: Sequence[Issue] = ()) -> None:
        # Both go to args so that the exception survives pickling between processes.
        super().__init__(detail, tuple(issues))
        self.detail = detail
        self.issues = tuple(issues)

    def __str__(self) -> str:
        return "\n".join([self.detail, *(f"  {issue.pointer or '/'}: {issue.detail}" for issue in self.issues)])


class InputError(StowplanError):
    """The input is wrong; the issues say where and what would be right."""

    code = "invalid_input"


class FileFormatError(InputError):
    """A file of a foreign format is wrong. The detail names file, line and what is wrong."""

    code = "invalid_file"

    @classmethod
    def at(cls, source: str, line: int | None, detail: str) -> "FileFormatError":
        """Build the error for `detail` at `line` (1-based, None for the whole file) of `source`."""
        place = source if line is None else f"{source}:{line}"
        return cls(f"{place}: {detail}")


class BackendError(StowplanError):
    """A solver backend is missing, refused its options, or broke."""

    code = "backend_error"


class ExtraMissingError(StowplanError):
    """A package is needed that comes with an extra of ours, and is not installed; the detail says which."""

    code = "extra_missing"


class WorkerError(StowplanError):
    """A worker process died or could not be started."""

    code = "worker_died"


class UnverifiedPlanError(StowplanError):
    """A plan failed the independent check: a bug of ours. The issues are the violations."""

    code = "plan_failed_check"


def pointer_of(*parts: str | int) -> str:
    """RFC 6901 JSON pointer through the keys and indices `parts`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def raise_for_errors(issues: Sequence[Issue], what: str) -> None:
    """Raise InputError when any issue is an error; `what` names the thing (`"snapshot"`)."""
    errors = [issue for issue in issues if issue.severity is Severity.ERROR]
    if errors:
        noun = "error" if len(errors) == 1 else "errors"
        raise InputError(f"the {what} has {len(errors)} {noun}", issues)
