"""Affinities alpha (DP) and beta (PP) from characterisation records (Arnold section 5.2).

alpha = j_dp / (j_dp + j_pp), beta = 1 - alpha, of the record that is nearest in (r1, r2); j_dp and j_pp are the
relative gains of a DP-aligned and of a PP-aligned placement.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from models.placement.arnold.parameters import CharacterisationRecord
from models.placement.arnold.volumes import communication_volumes
from models.transformer import Transformer
from models.workload import Parallelism


def _published(
    gpu_type: str, model: str, transformer: Transformer, j_dp: float, j_pp: float, source: str
) -> CharacterisationRecord:
    """Record whose ratios follow from an assumed model shape on the degrees of Fig. 12 (96 GPUs: 8, 2, 6)."""
    volumes = communication_volumes(transformer, Parallelism(tp=8, pp=2, dp=6))
    r1, r2 = volumes.ratios(transformer.micro_batch_or_one)
    return CharacterisationRecord(gpu_type=gpu_type, r1=r1, r2=r2, j_dp=j_dp, j_pp=j_pp, model=model, source=source)


def _gpt(num_layers: int, hidden_size: int, num_experts: int = 1) -> Transformer:
    return Transformer(
        num_layers=num_layers,
        hidden_size=hidden_size,
        vocabulary_size=50_257,
        sequence_length=4_096,
        global_batch=384,
        micro_batch=1,
        num_experts=num_experts,
    )


# The paper publishes gains and affinities but neither shapes nor ratios: the shapes below are ours, chosen to reach
# the published model sizes. For L20 it gives the gain of the better placement only; the other one counts as 0.
PUBLISHED_RECORDS: tuple[CharacterisationRecord, ...] = (
    _published("H800", "24b dense", _gpt(52, 6_144), 0.0, 0.023, "Arnold sections 4 and 5.2: alpha 0, PP +2.3 %"),
    _published(
        "H800",
        "24b MoE",
        _gpt(32, 3_328, num_experts=8),
        0.018 * 3 / 7,
        0.018,
        "Arnold sections 4 and 5.2: PP +1.8 %, alpha 0.3 (j_dp follows from both)",
    ),
    _published("L20", "7b dense", _gpt(32, 4_096), 0.014, 0.0, "Arnold appendix E, Table 2: DP +1.4 %"),
    _published("L20", "14b dense", _gpt(44, 5_120), 0.0, 0.005, "Arnold appendix E, Table 2: PP +0.5 %"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AffinityMatch:
    """The nearest record and its Euclidean distance; `same_type`: it was taken on the GPU type asked for."""

    record: CharacterisationRecord
    distance: float
    same_type: bool

    def describe(self) -> str:
        """Say which record was taken."""
        record = self.record
        return f"{record.model} on {record.gpu_type} at distance {self.distance:.3g} ({record.source})"


def look_up(gpu_type: str, ratios: tuple[float, float], own: Sequence[CharacterisationRecord] = ()) -> AffinityMatch:
    """Nearest record to `ratios` = (r1, r2).

    Records of the GPU type (compared without case) come first, and among them the user's `own` before the published
    ones; only where the type has none are all records searched. The first of several equally near ones is taken.
    """

    def of_type(records: Sequence[CharacterisationRecord]) -> list[CharacterisationRecord]:
        return [record for record in records if record.gpu_type.casefold() == gpu_type.casefold()]

    def distance(record: CharacterisationRecord) -> float:
        return math.dist(ratios, (record.r1, record.r2))

    known = of_type(own) or of_type(PUBLISHED_RECORDS)
    nearest = min(known or [*own, *PUBLISHED_RECORDS], key=distance)
    return AffinityMatch(record=nearest, distance=distance(nearest), same_type=bool(known))
