"""The policies. Whatever knows them all (planning, validation, schemas, documentation) reads this table."""

from collections.abc import Mapping

from models.allocation.arena.descriptor import ARENA, ARENA_ILP
from models.allocation.elasticflow.descriptor import ELASTICFLOW, ELASTICFLOW_ILP
from models.allocation.gang.descriptor import GANG, GANG_ILP
from models.allocation.gavel.descriptor import GAVEL, GAVEL_ILP
from models.allocation.horizon.descriptor import HORIZON
from models.allocation.sia.descriptor import SIA
from models.allocation.suika.descriptor import SUIKA, SUIKA_ILP
from models.placement.ahead.descriptor import AHEAD
from models.placement.arnold.descriptor import ARNOLD
from models.policy import Parameters, Policy

POLICIES: Mapping[str, Policy] = {
    policy.name: policy
    for policy in (
        SIA,
        ARNOLD,
        AHEAD,
        ARENA,
        ARENA_ILP,
        SUIKA,
        SUIKA_ILP,
        GANG,
        GANG_ILP,
        GAVEL,
        GAVEL_ILP,
        ELASTICFLOW,
        ELASTICFLOW_ILP,
        HORIZON,
    )
}
# What formulating takes: who plans soon loads it before.
FORMULATIONS: tuple[str, ...] = tuple(dict.fromkeys(policy.formulate.partition(":")[0] for policy in POLICIES.values()))

# What some of them load later, when a solver wants a model.
DECLARATIONS: tuple[str, ...] = tuple(name for policy in POLICIES.values() for name in policy.declarations)


def policy_of(parameters: Parameters) -> Policy:
    """The policy that the parameters are for."""
    return next(policy for policy in POLICIES.values() if policy.chosen_by(parameters))
