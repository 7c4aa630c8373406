"""Parameters of Arnold."""

from typing import Annotated, Any

from pydantic import Field

from api.schemas.base import Document, Name, NonNegative, Positive, Text
from api.schemas.policies.base import ParametersDoc
from models.placement.arnold.parameters import (
    ArnoldParameters,
    CharacterisationRecord,
    SchedulingUnit,
    SpreadObjective,
)


class CharacterisationRecordDoc(Document):
    """One characterised job: the relative gains of a DP-aligned and of a PP-aligned placement (Arnold section 5.2)."""

    gpu_type: Name
    r1: Positive
    """Micro-batch times volume of a weight over the volumes of DP and PP."""
    r2: Positive
    """Volume of DP over volume of PP."""
    j_dp: NonNegative
    j_pp: NonNegative
    model: Name
    source: Text
    """Where the numbers come from."""


class ArnoldParametersDoc(ParametersDoc):
    """Parameters of Arnold."""

    planner = ArnoldParameters
    asks_for = "Which nodes one large pre-training job sits on, in which rank order."

    alpha: Annotated[float, Field(ge=0, le=1)] | None = None
    """Affinity of the DP groups; 1 - alpha is that of the PP groups. Null: looked up from characterisation records."""
    scheduling_unit: SchedulingUnit = SchedulingUnit.PP
    """The communication group that is kept together as the unit of placement."""
    minipod_tier: Name | None = None
    """Tier to use as minipods instead of the one that the cluster marks."""
    records: Annotated[tuple[CharacterisationRecordDoc, ...], Field(max_length=10_000)] = ()
    """Your own characterisation records; where they cover the GPU type, the published ones are not asked."""
    strengthen: bool = False
    """Add rows that cut off no optimum of the paper's model but help the solver to prove it."""
    spread_objective: SpreadObjective = SpreadObjective.EQ4
    """eq4: minipods used and spread of the scheduling unit; eq2: the spreads of rows and columns themselves."""
    tier_weights: dict[Name, Annotated[float, Field(ge=0, le=1e9)]] | None = None
    """Weights of Eq. 4 on the units of several tiers. Null: the minipod tier alone, as in the paper."""
    spare_nodes_per_minipod: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Wholly free nodes kept back in every minipod that is used, as backups on failure."""

    def values(self) -> dict[str, Any]:
        """Fields of the planner's type."""
        records = tuple(CharacterisationRecord(**vars(record)) for record in self.records)
        return {**super().values(), "records": records}
