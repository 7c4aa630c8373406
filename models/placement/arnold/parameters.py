"""What a user may tune in Arnold."""

from dataclasses import dataclass
from enum import StrEnum

from models.placement.arnold.affinity import CharacterisationRecord
from stowplan.errors import InputError


class SchedulingUnit(StrEnum):
    """Which communication group is kept together as the unit that the MIP places (paper section 5.2)."""

    PP = "pp"
    DP = "dp"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArnoldParameters:
    """Parameters of Arnold.

    alpha: affinity of DP groups in [0, 1], beta = 1 - alpha that of PP groups; None looks it up from
    characterisation records (section 5.2). records: the user's own records; where they cover the GPU type, the
    published ones are not asked. minipod_tier: tier to use instead of the cluster's own mark.
    strengthen: add rows of ours that cut off no optimum of the paper's model but help the solver to prove it.

    Raises
    ------
    InputError
        When alpha lies outside [0, 1].
    """

    alpha: float | None = None
    scheduling_unit: SchedulingUnit = SchedulingUnit.PP
    minipod_tier: str | None = None
    records: tuple[CharacterisationRecord, ...] = ()
    strengthen: bool = False

    def __post_init__(self) -> None:
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise InputError(f"alpha is {self.alpha}; must lie in [0, 1]")
