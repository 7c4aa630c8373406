"""Pointers into a deployment or training job become pointers into the request that asks for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from api.schemas.deployment import DeploymentBody, PlanChoice
from stowplan.errors import InputError, Issue

# Field of a training job -> where the request says it; fields that are not here are in `training`.
_OF_THE_PLAN = ("plan", "stages", "num_micro_batches", "virtual_stages", "pipeline_schedule")


@contextmanager
def in_request(asked: PlanChoice) -> Iterator[None]:
    """Give errors about a model, a plan, a deployment or a training job pointers into a request."""
    try:
        yield
    except InputError as error:
        raise type(error)(error.detail, [issue_in_request(asked, issue) for issue in error.issues]) from error


def issue_in_request(asked: PlanChoice, issue: Issue) -> Issue:
    """An issue of a deployment or training job, where the request says what is wrong.

    What the request takes from a plan of the service is at `/plan_id`; the detail then says where in the plan.
    """
    part = issue.pointer.split("/")[1] if issue.pointer else ""
    below = issue.pointer.removeprefix(f"/{part}")
    if part == "name":
        return replace(issue, pointer="/job_id")
    if part == "launch":
        return issue
    if part not in ("model", *_OF_THE_PLAN):
        return replace(issue, pointer=f"/training{issue.pointer}")
    if part == "model" and isinstance(asked, DeploymentBody) and asked.job is not None:
        return replace(issue, pointer=f"/job{below}")
    if asked.plan is None or part == "model":
        source = "/plan" if asked.plan is not None else "/plan_id"
        return replace(issue, pointer=source, detail=f"{below.lstrip('/')} {issue.detail}".lstrip())
    return replace(issue, pointer=issue.pointer if part == "plan" else "/plan")
