"""Mixtures of experts train like one process, whoever holds which of them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor.routing import Routing
from executor.training_layout import StageLayout
from executor.training_options import Compiler
from models.numerics import Numerics
from models.software import Software
from models.transformer import Checkpointing, Precision, Transformer
from tests.executor.jobs import LLAMA
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


_FULL = {"checkpointing": Checkpointing.FULL}
_SPLIT = {"sequence_parallel": True}
_SELECTIVE = {"checkpointing": Checkpointing.SELECTIVE}
_BF16 = {"precision": Precision.BF16}
PLANS = [
    pytest.param({}, (stage(3, 1, 3, 1),), 2, {}, 1e-6, id="EP2-uneven-shares"),
    pytest.param({"zero_stage": 3} | _FULL, (stage(3, 1, 3, 1, 2, 2),), 2, {}, 1e-6, id="EP2xDP2-ZeRO3-recomputed"),
    pytest.param(
        {"num_layers": 4} | _SELECTIVE,
        (stage(2, 1, 1, 1), stage(2, 1, 1, 1)),
        2,
        {"virtual_stages": 2},
        1e-6,
        id="PP2xEP2-interleaved",
    ),
    pytest.param(
        _SPLIT | _FULL, (stage(1, 1, 2, 2), stage(2, 2, 3, 1)), 2, {}, 1e-6, id="EP2-then-EP2xTP2-parts-of-sequences"
    ),
    pytest.param(_SPLIT | _SELECTIVE, (stage(3, 2, 3, 1),), 2, {}, 1e-6, id="EP2xTP2-parts-of-sequences-selective"),
    pytest.param(_BF16 | {"zero_stage": 2}, (stage(3, 2, 2, 2),), 2, {}, 3e-3, id="EP2xTP2-ZeRO2-bf16"),
    pytest.param(
        {"zero_stage": 3}, (stage(3, 1, 2, 2),), 2, {"compiler": Compiler.AOT_EAGER}, 1e-6, id="EP2-ZeRO3-compiled"
    ),
    pytest.param({}, (stage(3, 2, 4),), 1, {}, 1e-6, id="TP2"),
]


@pytest.mark.parametrize(("changes", "stages", "degree", "more", "tolerance"), PLANS)
def test_plan_trains_like_one_process(
    changes: dict[str, Any],
    stages: tuple[StageLayout, ...],
    degree: int,
    more: dict[str, Any],
    tolerance: float,
    tmp_path: Path,
) -> None:
    """Clipping is in force in most steps, so that a wrong norm would be seen in the losses."""
    model = replace(_MODEL, **changes)
    job = native_job(model, *stages, expert_parallel=degree, metrics_folder=str(tmp_path), **_MORE | more)
    run_job(job, tmp_path)
    expected = _losses(model)
    assert max(expected) - min(expected) > 20 * tolerance
    for rank in range(job.num_ranks):
        found = [step.loss for step in steps_of(tmp_path, rank)]
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "other",
    [
        {"routing": replace(_ROUTING, balance_loss=0.0)},
        {"routing": replace(_ROUTING, router_loss=0.0)},
        {"routing": replace(_ROUTING, capacity=None)},
        {"numerics": replace(_NUMERICS, normalised_routing=True)},
    ],
)
def test_losses_tell_how_experts_are_chosen(other: dict[str, Any]) -> None:
    difference = np.abs(np.subtract(_losses(_MODEL), _losses(_MODEL, **other)))
    assert difference.max() > 1e-5


def test_training_goes_on_with_other_replicas_for_experts(tmp_path: Path) -> None:
    """Written by two replicas with half of the experts each, read by one with all, and then by four with one each."""
    losses = []
    for k, (layout, degree) in enumerate(((stage(3, 1, 3, 1), 2), (stage(3, 2, 4), 1), (stage(3, 1, 1, 1, 1, 1), 4))):
        folder = tmp_path / str(k)
        more = _MORE | {"num_steps": 2 * k + 2, "resume": "last" if k else None, "metrics_folder": str(folder)}
        checkpoints = str(tmp_path / "checkpoints")
        run_job(native_job(_MODEL, layout, expert_parallel=degree, checkpoint_folder=checkpoints, **more), folder)
        losses += [step.loss for step in steps_of(folder)]
    np.testing.assert_allclose(losses, _losses(_MODEL, num_steps=6), rtol=0, atol=1e-6)


def test_noise_is_that_of_what_all_replicas_have(tmp_path: Path) -> None:
    """Gradients of experts are sums over the samples of both replicas: were they counted, there would be less noise."""
    more: dict[str, Any] = {"routing": Routing(balance_loss=0.0), "num_steps": 2}
    job = native_job(_MODEL, stage(3, 1, 2, 2), expert_parallel=2, metrics_folder=str(tmp_path), **more)
    run_job(job, tmp_path)
    expected = reference(native_job(_MODEL, stage(3, 1, 2), **more), replicas=2, without=".experts.")
    for name in ("large_gradient_square", "small_gradient_square"):
        found, wanted = [getattr(s, name) for s in steps_of(tmp_path)], [getattr(e, name) for e in expected]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, err_msg=name)
