"""What each policy is for, what it needs and what it gives."""

from api.schemas.parameters import PARAMETERS
from api.schemas.service import PolicyDoc, PolicyListDoc
from models.policies import POLICIES as KNOWN
from models.policy import Policy


def _document(policy: Policy) -> PolicyDoc:
    parameters = PARAMETERS[policy.name].model_json_schema()
    return PolicyDoc(
        name=policy.name,
        title=policy.title,
        source=policy.source,
        needs=policy.needs,
        gives=policy.gives,
        parameters=parameters,
    )


POLICIES = PolicyListDoc(policies=tuple(_document(policy) for policy in KNOWN.values()))
