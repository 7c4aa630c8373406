"""From documents to the types of the planner and back. Pointers of the planner become pointers of the request."""

from dataclasses import dataclass, replace

from api.common.settings import Settings
from api.convert.changed_snapshot import issue_in_source
from api.convert.located import located
from api.schemas.request import PLAN_BODY, OptionsDoc, PlanBodyDoc
from api.schemas.snapshot import SnapshotDoc, SnapshotReference
from models.plan import PlanRequest
from models.policies import POLICIES
from models.validation import request_issues, solver_fault
from models.workload import Snapshot
from solver.options import SolveOptions
from stowplan.errors import InputError, Issue, raise_for_errors


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRequest:
    """A plan request and everything that is wrong with it; `request` is None when there is nothing to plan."""

    request: PlanRequest | None
    issues: tuple[Issue, ...]

    def required(self) -> PlanRequest:
        """Give the request.

        Raises
        ------
        InputError
            When an issue is an error.
        """
        raise_for_errors(self.issues, "request")
        assert self.request is not None  # noqa: S101 - without errors there is a request
        return self.request


def check_request(body: PlanBodyDoc, snapshot: Snapshot, settings: Settings) -> CheckedRequest:
    """Turn a body and the snapshot that it brings or refers to into a request, and say what is wrong with it."""
    issues = _limit_issues(body.options, settings)
    try:
        with located("/parameters"):
            parameters = body.parameters.parameters_for(POLICIES[body.policy])
    except InputError as error:
        return CheckedRequest(request=None, issues=(*issues, *error.issues))
    fault = solver_fault(parameters, body.options.solver)
    if fault is not None:
        issues.append(Issue(code="unknown_value", pointer="/options/solver", detail=fault))
    found = map(issue_in_request, request_issues(snapshot, parameters))
    issues += [issue_in_source(issue, body.snapshot, snapshot) for issue in found]
    request = PlanRequest(snapshot=snapshot, parameters=parameters, options=_options(body.options, settings))
    return CheckedRequest(request=request, issues=tuple(issues))


def stored_request(text: str) -> tuple[PlanBodyDoc, SnapshotDoc | SnapshotReference]:
    """A request as it was stored, and its snapshot, in which all is filled in that it referred to; those that were
    stored with schema 0001 may refer to a stored snapshot."""
    body = PLAN_BODY.validate_json(text)
    if not isinstance(body.snapshot, SnapshotDoc | SnapshotReference):
        raise TypeError("a stored request has its snapshot in it")
    return body, body.snapshot


def issue_in_request(issue: Issue) -> Issue:
    """Point from the request instead of from its snapshot, which is where policies point from."""
    own = issue.pointer.startswith("/parameters")
    return issue if own else replace(issue, pointer="/snapshot" + issue.pointer)


def _limit_issues(options: OptionsDoc, settings: Settings) -> list[Issue]:
    asked = (
        ("time_limit_s", options.time_limit_s or 0.0, settings.max_time_limit_s),
        ("threads", options.threads, settings.max_threads),
    )
    return [
        Issue(
            code="out_of_range",
            pointer=f"/options/{name}",
            detail=f"is {value}; this service allows at most {limit}",
        )
        for name, value, limit in asked
        if value > limit
    ]


def _options(options: OptionsDoc, settings: Settings) -> SolveOptions:
    limit_s = settings.time_limit_s if options.time_limit_s is None else options.time_limit_s
    return SolveOptions(**{**vars(options), "time_limit_s": limit_s})
