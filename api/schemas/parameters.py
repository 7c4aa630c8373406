"""The documents in which clients give parameters, of all policies. The policies themselves: `models.policies`."""

from collections.abc import Mapping

from api.schemas.policies.ahead import AheadParametersDoc
from api.schemas.policies.arena import ArenaParametersDoc
from api.schemas.policies.arnold import ArnoldParametersDoc
from api.schemas.policies.base import ParametersDoc
from api.schemas.policies.elasticflow import ElasticFlowParametersDoc
from api.schemas.policies.gang import GangParametersDoc
from api.schemas.policies.gavel import GavelParametersDoc
from api.schemas.policies.horizon import HorizonParametersDoc
from api.schemas.policies.sia import SiaParametersDoc
from api.schemas.policies.suika import SuikaParametersDoc
from models.policies import POLICIES
from models.policy import Parameters

_DOCUMENTS: Mapping[type[Parameters], type[ParametersDoc]] = {
    document.planner: document
    for document in (
        SiaParametersDoc,
        ArnoldParametersDoc,
        AheadParametersDoc,
        ArenaParametersDoc,
        SuikaParametersDoc,
        GangParametersDoc,
        GavelParametersDoc,
        ElasticFlowParametersDoc,
        HorizonParametersDoc,
    )
}
# Policy -> its parameters.
PARAMETERS: Mapping[str, type[ParametersDoc]] = {
    name: _DOCUMENTS[policy.parameters] for name, policy in POLICIES.items()
}
