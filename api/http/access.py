"""The least role of every route, and which routes change something. Here and nowhere else; a test goes over all."""

from collections.abc import Mapping
from typing import NamedTuple

from fastapi import Request

from api.common.asking import ASKING, Role
from api.common.errors import ForbiddenError, UnauthorizedError


class Access(NamedTuple):
    """Who may ask (None: whoever can connect), and whether the audit log tells of it."""

    role: Role | None
    is_told: bool = False


_OPEN = Access(None)
_LOOK = Access(Role.VIEWER)
# Takes processors, and leaves nothing behind that others see.
_ASK = Access(Role.PLANNER)
_PLAN = Access(Role.PLANNER, is_told=True)
# Takes GPUs, or changes what everybody plans with.
_DEPLOY = Access(Role.DEPLOYER, is_told=True)
_ADMINISTER = Access(Role.ADMIN, is_told=True)

# By the names of the routes (`operationId`).
ACCESS: Mapping[str, Access] = {
    "index": _OPEN,
    "healthz": _OPEN,
    "readyz": _OPEN,
    "metrics": _OPEN,
    "list_plans": _LOOK,
    "get_plan": _LOOK,
    "get_input": _LOOK,
    "get_figure": _LOOK,
    "get_model": _LOOK,
    "export_job": _LOOK,
    "export_plan": _LOOK,
    "get_events": _LOOK,
    "get_difference": _LOOK,
    "get_difference_figure": _LOOK,
    "list_comparisons": _LOOK,
    "get_comparison": _LOOK,
    "get_comparison_figure": _LOOK,
    "list_calibrations": _LOOK,
    "get_calibration": _LOOK,
    "list_replays": _LOOK,
    "get_replays": _LOOK,
    "get_replay_report": _LOOK,
    "get_replay_figure": _LOOK,
    "get_replay_events": _LOOK,
    "list_forecasters": _LOOK,
    "get_forecaster": _LOOK,
    "get_forecaster_report": _LOOK,
    "get_forecaster_record": _LOOK,
    "get_forecaster_figure": _LOOK,
    "list_deployments": _LOOK,
    "get_deployment": _LOOK,
    "list_metrics": _LOOK,
    "get_performance": _LOOK,
    "get_snapshot": _LOOK,
    "list_clusters": _LOOK,
    "get_cluster": _LOOK,
    "get_calendar": _LOOK,
    "get_icalendar": _LOOK,
    "get_calendar_figure": _LOOK,
    "list_reservations": _LOOK,
    "get_reservation": _LOOK,
    "list_policies": _LOOK,
    "list_examples": _LOOK,
    "get_example": _LOOK,
    # What ranks print may be anything.
    "get_deployment_logs": Access(Role.DEPLOYER),
    "export_plan_beside": _ASK,
    "create_parallel_plans": _ASK,
    "export_parallel": _ASK,
    "draw_parallel_plans": _ASK,
    "predict": _ASK,
    "check_plan_request": _ASK,
    "check_placement": _ASK,
    "post_metrics": _ASK,
    "create_plan": _PLAN,
    "cancel_plan": _PLAN,
    "delete_plan": _PLAN,
    "ask_what_if": _PLAN,
    "create_comparison": _PLAN,
    "delete_comparison": _PLAN,
    "create_calibration": _PLAN,
    "delete_calibration": _PLAN,
    "create_replays": _PLAN,
    "delete_replays": _PLAN,
    "create_forecaster": _PLAN,
    "delete_forecaster": _PLAN,
    "create_snapshot": _PLAN,
    "import_snapshot": _PLAN,
    "create_deployment": _DEPLOY,
    "reconfigure_deployment": _DEPLOY,
    "stop_deployment": _DEPLOY,
    "put_cluster": _DEPLOY,
    "delete_cluster": _DEPLOY,
    "put_calendar": _DEPLOY,
    "create_reservation": _DEPLOY,
    "confirm_reservation": _DEPLOY,
    "delete_reservation": _DEPLOY,
    "create_token": _ADMINISTER,
    "list_tokens": Access(Role.ADMIN),
    "revoke_token": _ADMINISTER,
    "list_audit": Access(Role.ADMIN),
}


async def authorize(request: Request) -> None:
    """Refuse who may not ask for this route; before anything of the request is read.

    Raises
    ------
    ForbiddenError
        When the role of the client is not enough.
    UnauthorizedError
        When there is no client.
    """
    name = request.scope["route"].name
    needed = ACCESS[name]
    asking = ASKING.get()
    if needed.role is None:
        return
    if asking is None or asking.caller is None:
        raise UnauthorizedError("nobody has found out who asks")
    if needed.is_told:
        asking.action = name
    caller = asking.caller
    if not caller.role.covers(needed.role):
        asking.action = name
        raise ForbiddenError(
            f"{caller.client} has the role {caller.role}, and this needs {needed.role} or more; ask whoever runs the "
            "service for a token of that role"
        )
