import math

import pytest

from models.placement.arnold.affinity import PUBLISHED_RECORDS, look_up
from models.placement.arnold.parameters import CharacterisationRecord
from models.placement.arnold.volumes import communication_volumes
from models.workload import Parallelism
from stowplan.errors import InputError
from tests.models.placement.arnold.scenes import GPT_24B


def record(gpu_type: str, r1: float, r2: float, *, j_dp: float = 0.01, j_pp: float = 0.03) -> CharacterisationRecord:
    return CharacterisationRecord(
        gpu_type=gpu_type, r1=r1, r2=r2, j_dp=j_dp, j_pp=j_pp, model=f"{gpu_type} {r1} {r2}", source="test"
    )


def test_the_published_points_have_the_published_affinities() -> None:
    assert {(known.gpu_type, known.model): round(known.alpha, 12) for known in PUBLISHED_RECORDS} == {
        ("H800", "24b dense"): 0.0,
        ("H800", "24b MoE"): 0.3,
        ("L20", "7b dense"): 1.0,
        ("L20", "14b dense"): 0.0,
    }


def test_a_24b_dense_job_on_h800_is_pp_dominated() -> None:
    ratios = communication_volumes(GPT_24B, Parallelism(tp=8, pp=2, dp=6)).ratios(GPT_24B.micro_batch_or_one)
    match = look_up("h800", ratios)
    assert match.record.model == "24b dense"
    assert match.distance == pytest.approx(0, abs=1e-9)
    assert match.same_type
    assert match.record.alpha == 0


def test_the_nearest_record_of_the_type_wins() -> None:
    own = [record("X", 1, 100), record("X", 4, 104), record("Y", 2, 101)]
    match = look_up("x", (2, 101), own)
    assert match.record is own[0]
    assert match.distance == pytest.approx(math.sqrt(2))
    assert match.same_type


def test_own_records_stand_in_front_of_published_ones() -> None:
    far = record("H800", 1, 1e6)
    assert look_up("H800", (1, 240), [far]).record is far
    assert look_up("L20", (1, 100), [far]).record.model == "7b dense"


def test_an_unknown_type_takes_the_nearest_of_all() -> None:
    match = look_up("B200", (1, 449))
    assert match.record.model == "24b MoE"
    assert not match.same_type


def test_the_first_of_equals_is_taken() -> None:
    own = [record("X", 1, 5), record("X", 1, 7)]
    assert look_up("X", (1, 6), own).record is own[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [("r1", 0.0), ("r2", math.nan), ("r2", math.inf), ("j_dp", -0.1), ("j_pp", math.nan)],
)
def test_records_must_make_sense(field: str, value: float) -> None:
    values = {"r1": 1.0, "r2": 2.0, "j_dp": 0.1, "j_pp": 0.1} | {field: value}
    with pytest.raises(InputError, match=field):
        CharacterisationRecord(gpu_type="X", model="m", source="test", **values)


def test_a_record_without_any_gain_has_no_affinity() -> None:
    with pytest.raises(InputError, match="both 0"):
        record("X", 1, 1, j_dp=0, j_pp=0)
