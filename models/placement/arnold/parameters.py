"""What a user may tune in Arnold."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from models.policy import Parameters
from stowplan.errors import InputError


class SpreadObjective(StrEnum):
    """What is minimised: Eq. 4, minipods used and the spread of units, or Eq. 2, the distances of rows and columns."""

    EQ4 = "eq4"
    EQ2 = "eq2"


class SchedulingUnit(StrEnum):
    """Which communication group is kept together as the unit that the MIP places (paper section 5.2)."""

    PP = "pp"
    DP = "dp"


@dataclass(frozen=True, slots=True, kw_only=True)
class CharacterisationRecord:
    """One characterised job: <GPU type, j_dp, j_pp> with the ratios r1, r2 that it is found by.

    `source` says where the numbers come from.

    Raises
    ------
    InputError
        When a ratio is not positive, a gain is negative, or both gains are zero.
    """

    gpu_type: str
    r1: float
    r2: float
    j_dp: float
    j_pp: float
    model: str
    source: str

    def __post_init__(self) -> None:
        for name in ("r1", "r2"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InputError(f"record {self.model!r}: {name} is {value}; must be finite and above 0")
        for name in ("j_dp", "j_pp"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"record {self.model!r}: {name} is {value}; must be finite and at least 0")
        if self.j_dp + self.j_pp == 0:
            raise InputError(f"record {self.model!r}: j_dp and j_pp are both 0; one must be above 0")

    @property
    def alpha(self) -> float:
        """Affinity of DP groups."""
        return self.j_dp / (self.j_dp + self.j_pp)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArnoldParameters(Parameters):
    """Parameters of Arnold.

    alpha: affinity of DP groups in [0, 1], beta = 1 - alpha that of PP groups; None looks it up from
    characterisation records (section 5.2). records: the user's own records; where they cover the GPU type, the
    published ones are not asked. minipod_tier: tier to use instead of the cluster's own mark.
    strengthen: add rows of ours that cut off no optimum of the paper's model but help the solver to prove it.
    spread_objective: Eq. 4, or Eq. 2 itself, which knows rows and columns alike and no scheduling unit.
    tier_weights: Eq. 4 is taken on the units of each of these tiers and added up with these weights; None is the
    paper's case, the minipod tier alone with weight 1.
    spare_nodes_per_minipod: wholly free nodes kept back in every minipod used, as backups on failure (appendix B).

    Raises
    ------
    InputError
        When alpha lies outside [0, 1], a weight is negative or not finite or none is above 0, the spare nodes are
        negative, or tier weights are combined with Eq. 2 or spare nodes.
    """

    alpha: float | None = None
    scheduling_unit: SchedulingUnit = SchedulingUnit.PP
    minipod_tier: str | None = None
    records: tuple[CharacterisationRecord, ...] = ()
    strengthen: bool = False
    spread_objective: SpreadObjective = SpreadObjective.EQ4
    tier_weights: Mapping[str, float] | None = None
    spare_nodes_per_minipod: int = 0

    def __post_init__(self) -> None:
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise InputError(f"alpha is {self.alpha}; must lie in [0, 1]")
        if self.spare_nodes_per_minipod < 0:
            raise InputError(f"spare_nodes_per_minipod is {self.spare_nodes_per_minipod}; must be at least 0")
        if self.tier_weights is not None:
            self._check_tier_weights(self.tier_weights)

    def _check_tier_weights(self, weights: Mapping[str, float]) -> None:
        wrong = {tier: weight for tier, weight in weights.items() if not (math.isfinite(weight) and weight >= 0)}
        if wrong:
            raise InputError(f"tier_weights are {wrong}; each must be finite and at least 0")
        if not any(weights.values()):
            raise InputError("tier_weights has no weight above 0; give at least one, or leave tier_weights out")
        if self.spread_objective is SpreadObjective.EQ2:
            raise InputError("tier_weights belong to spread_objective eq4; leave one of the two out")
        if self.spare_nodes_per_minipod:
            raise InputError("tier_weights and spare_nodes_per_minipod cannot be combined; leave one of the two out")
