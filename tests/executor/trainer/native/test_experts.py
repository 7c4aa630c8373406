"""Mixtures of experts train like one process, whoever holds which of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor.routing import Routing
from executor.training_job import StageLayout, TrainingJob
from models.numerics import Numerics
from models.software import Software
from models.transformer import Checkpointing, Precision, Transformer
from tests.executor.jobs import LLAMA, tiny_job
from tests.executor.trainer.launching import run_job, steps_of
from tests.executor.trainer.native.test_equivalence import native_job, stage
from tests.executor.trainer.reference import reference

pytestmark = [pytest.mark.slow, pytest.mark.training]

# The first layer is dense.
_MODEL = replace(
    LLAMA,
    num_layers=3,
    hidden_size=32,
    sequence_length=16,
    num_experts=4,
    experts_per_token=2,
    first_dense_layers=1,
    expert_feed_forward_size=24,
    shared_expert_size=16,
    software=Software.TORCH_EAGER,
    sequence_parallel=False,
)
_ROUTING = Routing(balance_loss=0.05, router_loss=0.01, capacity=1.1)
_NUMERICS = Numerics(normalised_routing=False, gated_shared_expert=True)
_MORE: dict[str, Any] = {"routing": _ROUTING, "numerics": _NUMERICS, "num_steps": 5}


def _losses(model: Transformer, **more: Any) -> list[float]:
    """Of one process, computed exactly."""
    exact = replace(model, precision=Precision.FP32, checkpointing=Checkpointing.NONE, sequence_parallel=False)
    exact = replace(exact, zero_stage=1)
    alone = native_job(exact, stage(model.num_layers, 1, 2), **_MORE | more)
    return [step.loss for step in reference(alone)]


PLANS = [
    pytest.param(_MODEL, (stage(3, 1, 3, 1),), 2, {}, 1e-6, id="EP2-uneven-shares"),
]


@pytest.mark.parametrize(("model", "stages", "degree", "more", "tolerance"), PLANS)
def test_plan_trains_like_one_process(
    model: Transformer,
    stages: tuple[StageLayout, ...],
    degree: int,
    more: dict[str, Any],
    tolerance: float,
    tmp_path: Path,
) -> None:
    """Clipping is in force in most steps, so that a wrong norm would be seen in the losses."""
    job = native_job(model, *stages, expert_parallel=degree, metrics_folder=str(tmp_path), **_MORE | more)
    run_job(job, tmp_path)
    expected = _losses(model)
    assert max(expected) - min(expected) > 100 * tolerance
    for rank in range(job.num_ranks):
        found = [step.loss for step in steps_of(tmp_path, rank)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
