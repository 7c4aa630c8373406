"""From the body of a comparison to the request that every solver gets."""

from pydantic import TypeAdapter
from pydantic_core import to_json

from api.common.settings import Settings
from api.convert.located import located
from api.convert.reading import read_document
from api.convert.request import check_request
from api.schemas.comparison import ComparisonBody
from api.schemas.parameters import PARAMETERS
from api.schemas.request import PLAN_BODIES, OptionsDoc, PlanBodyDoc
from models.plan import PlanRequest
from models.workload import Snapshot
from stowplan.errors import InputError, Issue


def plan_body(body: ComparisonBody) -> PlanBodyDoc:
    """Give the plan that each solver is asked for.

    Raises
    ------
    InputError
        When the parameters are not those of the policy.
    """
    text = to_json(body.parameters, inf_nan_mode="constants")
    with located("/parameters"):
        read = read_document(TypeAdapter(PARAMETERS[body.policy]), text, "parameters")
    options = OptionsDoc(**dict(body.options))
    return PLAN_BODIES[body.policy].model_validate(
        {"policy": body.policy, "snapshot": body.snapshot, "parameters": read, "options": options}
    )


def comparison_request(
    body: PlanBodyDoc, solvers: tuple[str, ...], snapshot: Snapshot, settings: Settings
) -> PlanRequest:
    """Turn the plan that `plan_body` gave into a request.

    Raises
    ------
    InputError
        When something is wrong with it, or a solver is listed twice.
    """
    twice = [
        Issue(code="listed_twice", pointer=f"/solvers/{k}", detail=f"{solver!r} is listed before; list it once")
        for k, solver in enumerate(solvers)
        if solver in solvers[:k]
    ]
    if twice:
        raise InputError("a solver is listed twice", twice)
    return check_request(body, snapshot, settings).required()
