"""Published step times of Blackwell, to which nothing but two calibrations was fitted."""

import numpy as np
import pytest

from api.convert.job_model import calibration_from_document
from benchmarks.performance.published_steps.blackwell import DENSE, blackwell_cases
from benchmarks.performance.published_steps.rows import Case, predicted_s

SHIPPED = {"b200": "dgx-b200-nemo", "gb200": "gb200-nvl72-nemo"}


@pytest.fixture(scope="module")
def dense() -> list[Case]:
    return [case for case in blackwell_cases() if case.family == DENSE]


def test_dense_models_are_predicted_by_priors_of_older_gpus(dense: list[Case]) -> None:
    off = np.abs([predicted_s(case) / case.known_s - 1.0 for case in dense])
    assert len(off) == 21
    assert np.median(off) < 0.15
    assert np.max(off) < 0.3


@pytest.mark.parametrize("gpu", SHIPPED)
def test_shipped_calibrations_set_them_right(dense: list[Case], gpu: str) -> None:
    calibration = calibration_from_document(SHIPPED[gpu])
    own = [case for case in dense if case.gpu.name == gpu]
    off = [case.performance(None, calibration).iteration(case.plan).total_s / case.known_s - 1.0 for case in own]
    assert np.median(np.abs(off)) < 0.06
    assert abs(np.median(off)) < 0.03
