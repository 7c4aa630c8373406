"""What was asked for, from the store."""

from api.common.settings import Settings
from api.convert.request import check_request
from api.schemas.request import PLAN_BODY
from api.store.snapshots import Snapshots
from models.plan import PlanRequest


def stored_request(text: str, snapshots: Snapshots, settings: Settings) -> PlanRequest:
    """The request whose body was written as `text`; what was measured is in it, and not filled in again.

    Raises
    ------
    InputError
        When this version or these settings do not take it any more.
    """
    body = PLAN_BODY.validate_json(text)
    return check_request(body, snapshots.resolve(body.snapshot).snapshot, settings).required()
