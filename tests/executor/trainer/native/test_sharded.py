"""ZeRO stages 2 and 3 train like one process, of bytes that the model of memory and of communication knows."""

import gc
import json
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from executor.trainer.clock import HostClock
from executor.trainer.native.flat import FlatParameters, Replicas
from executor.trainer.native.sharded import ShardedParameters, Traffic, Turns
from executor.training_layout import StageLayout
from executor.training_options import Compiler
from models.parallel_plan import ParallelPlan, Replica, Stage
from models.performance.iteration.modelling import performance_model
from models.software import Software
from models.transformer import Checkpointing, Optimizer, Precision, Transformer
from tests.executor.jobs import GPT, LLAMA, tiny_job
from tests.executor.test_deployable import CLUSTER
from tests.executor.trainer.launching import Ranks, run_job, steps_of
from tests.executor.trainer.native import prepared
from tests.executor.trainer.native.test_equivalence import check_losses, native_job, stage
from tests.executor.trainer.reference import reference

_EAGER: dict[str, Any] = {"software": Software.TORCH_EAGER, "sequence_parallel": False}
_SPLIT = _EAGER | {"sequence_parallel": True}
_SPLIT_RECOMPUTED = replace(LLAMA, query_key_norms=True, checkpointing=Checkpointing.FULL, **_SPLIT)
_SPLIT_SELECTIVE = replace(_SPLIT_RECOMPUTED, checkpointing=Checkpointing.SELECTIVE)
_BF16 = replace(GPT, precision=Precision.BF16, checkpointing=Checkpointing.FULL)
_SGD = replace(GPT, optimizer=Optimizer.SGD)

PLANS = [
    pytest.param(2, LLAMA, (stage(2, 1, 3, 1), stage(2, 1, 2, 1, 1)), {}, 1e-6, id="2-uneven-shares-then-DP3"),
    pytest.param(2, replace(GPT, **_SPLIT), (stage(4, 2, 1, 1),), {}, 1e-6, id="2-DP2xTP2-parts-of-sequences"),
    pytest.param(3, _BF16, (stage(4, 1, 2, 1, 1),), {}, 1e-2, id="3-tied-in-one-stage-bf16-recomputed"),
    pytest.param(
        3,
        replace(LLAMA, num_layers=2, **_EAGER),
        (stage(2, 1, 2, 2),),
        {"compiler": Compiler.AOT_EAGER},
        1e-6,
        id="3-compiled",
    ),
    pytest.param(
        3,
        replace(LLAMA, num_layers=2, checkpointing=Checkpointing.SELECTIVE, **_EAGER),
        (stage(2, 1, 2, 2),),
        {"compiler": Compiler.AOT_EAGER},
        1e-6,
        id="3-compiled-selective",
    ),
    pytest.param(3, _SPLIT_RECOMPUTED, (stage(4, 2, 2, 2),), {}, 1e-6, id="3-DP2xTP2-parts-of-sequences-recomputed"),
    pytest.param(3, _SPLIT_SELECTIVE, (stage(4, 2, 2, 2),), {}, 1e-6, id="3-DP2xTP2-parts-of-sequences-selective"),
    pytest.param(3, GPT, (stage(3, 1, 3, 1), stage(1, 2, 4)), {}, 1e-6, id="3-tied-uneven-then-TP2"),
    pytest.param(
        3, _SGD, (stage(2, 1, 1, 1), stage(2, 1, 1, 1)), {"virtual_stages": 2}, 1e-5, id="3-interleaved-tied-sgd"
    ),
    pytest.param(
        3,
        replace(LLAMA, checkpointing=Checkpointing.SELECTIVE),
        (stage(2, 1, 3, 1, 4), stage(2, 1, 8)),
        {},
        1e-6,
        id="3-one-micro-batch-in-two-stages",
    ),
]


@pytest.mark.parametrize(("zero_stage", "model", "stages", "more", "tolerance"), PLANS)
@pytest.mark.slow
@pytest.mark.training
def test_sharded_plan_trains_like_one_process(
    zero_stage: int,
    model: Transformer,
    stages: tuple[StageLayout, ...],
    more: dict[str, Any],
    tolerance: float,
    tmp_path: Path,
) -> None:
    model = replace(model, zero_stage=zero_stage)
    job = native_job(model, *stages, metrics_folder=str(tmp_path), num_steps=4, **more)
    run_job(job, tmp_path)
    check_losses(job, tmp_path, tolerance)


@pytest.mark.slow
@pytest.mark.training
def test_noise_is_that_between_micro_batches_of_replicas(tmp_path: Path) -> None:
    """Squared norms of gradients of single samples, brought to the batch of a replica."""
    model = replace(LLAMA, zero_stage=2)
    job = native_job(model, stage(4, 1, 1, 1), metrics_folder=str(tmp_path), num_steps=2)
    run_job(job, tmp_path)
    one_by_one = tiny_job(LLAMA, stages=(stage(4, 1, 1),), num_micro_batches=job.global_batch, num_steps=2)
    factor = (1 / job.small_batch - 1 / job.global_batch) / (1 - 1 / job.global_batch)
    for found, expected in zip(steps_of(tmp_path), reference(one_by_one, job.global_batch), strict=True):
        large = expected.large_gradient_square
        assert found.large_gradient_square == pytest.approx(large, rel=1e-4)
        small = large + factor * (expected.small_gradient_square - large)
        assert found.small_gradient_square == pytest.approx(small, rel=1e-4)
        assert found.reduction_s > 0


@pytest.mark.slow
@pytest.mark.training
def test_training_goes_on_at_another_stage(tmp_path: Path) -> None:
    """1, then 3 with more replicas, then 2 in a pipeline: what is written is the same."""
    folders = {"checkpoint_folder": str(tmp_path / "checkpoints"), "metrics_folder": str(tmp_path / "metrics")}
    runs: list[tuple[int, tuple[StageLayout, ...]]] = [
        (1, (stage(3, 1, 2, 2), stage(1, 2, 4))),
        (3, (stage(4, 1, 2, 1, 1),)),
        (2, (stage(1, 2, 2, 2), stage(3, 1, 3, 1))),
    ]
    for number, (zero_stage, stages) in enumerate(runs):
        more: dict[str, Any] = {"num_steps": 2 * number + 2, "resume": "last" if number else None, **folders}
        run_job(native_job(replace(GPT, zero_stage=zero_stage), *stages, **more), tmp_path / f"run-{number}")
    steps = steps_of(tmp_path / "metrics")
    assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6]
    expected = [step.loss for step in reference(tiny_job(GPT, num_steps=6))]
    np.testing.assert_allclose([step.loss for step in steps], expected, rtol=0, atol=1e-6)


# Nearly all of its memory is that of parameters.
_WIDE = replace(
    LLAMA,
    hidden_size=128,
    num_layers=6,
    feed_forward_size=320,
    vocabulary_size=64,
    sequence_length=4,
    precision=Precision.BF16,
)
_SHARES = (2, 1, 1)


@pytest.mark.parametrize("zero_stage", [1, 2, 3])
@pytest.mark.slow
@pytest.mark.training
def test_a_rank_holds_and_moves_what_the_model_predicts(zero_stage: int, tmp_path: Path) -> None:
    """Behind a step its shards and what is not sharded. At stage 1 it has the sum of its shard of gradients beside all
    of its own."""
    model = replace(_WIDE, zero_stage=zero_stage)
    job = native_job(model, stage(model.num_layers, 1, *_SHARES), metrics_folder=str(tmp_path), num_steps=2)
    with Ranks(job, tmp_path, prepare=partial(prepared.counts_bytes, str(tmp_path))) as ranks:
        ended = ranks.wait()
    assert ended.codes == [0] * job.num_ranks, "\n".join(ended.output)
    replicas = tuple(
        Replica(node="a", gpu_type="h100", gpus=(k,), local_batch=share) for k, share in enumerate(_SHARES)
    )
    plan = ParallelPlan(
        stages=(Stage(num_layers=model.num_layers, replicas=replicas),), num_micro_batches=job.num_micro_batches
    )
    performance = performance_model(model, CLUSTER)
    (memory,), dp = performance.memory(plan), len(_SHARES)
    sizes, layers = performance.coefficients.sizes, performance.shares(plan)[0].parameters
    # Weights and gradients of the layer at work; another layer of both is on its way.
    weights, gradients = (size * (1 - 1 / dp) for size in (sizes.parameter_bytes, sizes.gradient_bytes))
    passing = (weights if zero_stage == 3 else 0.0) + (gradients if zero_stage >= 2 else 0.0)
    states = memory.parameter_bytes + memory.optimizer_bytes + memory.gradient_bytes
    summed = sizes.gradient_bytes * layers / dp if zero_stage == 1 else 0.0
    volume = performance.reduction_volume_bytes(layers, dp, job.num_micro_batches) / (1 - 1 / dp)
    for rank in range(job.num_ranks):
        found = json.loads((tmp_path / f"bytes-{rank}.json").read_text())[-1]
        assert found["behind"] == pytest.approx(states - passing + summed, rel=0.01)
        # Sampled where replicas communicate, which is not at the peak to the byte.
        assert states - passing < found["peak"] < (states + passing + summed) * 1.05
        assert found["all_gather_single"] + found["reduce_scatter_single"] == pytest.approx(volume, rel=0.01)


def test_parameters_are_freed_with_what_takes_their_gradients() -> None:
    """A rank may build its engine a second time, and a GPU has no room for two."""
    parameter = torch.nn.Parameter(torch.ones(2, 3, dtype=torch.bfloat16))
    flat = FlatParameters([("a", parameter)], {}, replicas=Replicas(), tensor_rank=0, dtype=torch.bfloat16)
    (parameter * 2).sum().backward()
    assert flat.summed.tolist() == [2.0] * 6
    seen = weakref.ref(parameter)
    del parameter, flat
    gc.collect()
    assert seen() is None


def test_two_layers_at_most_have_their_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward, whatever the number of layers, each gathered once a pass; in the end none has."""
    gathered: list[int] = []

    class Done:
        def wait(self) -> None:
            """At once."""

    def gather(into: torch.Tensor, _: torch.Tensor, **__: Any) -> Done:
        gathered.append(id(into))
        return Done()

    monkeypatch.setattr("torch.distributed.all_gather_single", gather)
    flats = [
        ShardedParameters(
            [("weight", torch.nn.Parameter(torch.ones(6)))],
            {},
            replicas=Replicas(group="some", index=0, count=2),
            tensor_rank=0,
            dtype=torch.float32,
            shards_weights=True,
            traffic=Traffic(HostClock()),
            tensor_group=None,
        )
        for _ in range(5)
    ]
    turns = Turns([[flat] for flat in flats])

    def held() -> list[int]:
        return [k for k, flat in enumerate(flats) if flat.has_weights]

    assert held() == []
    for step, places in ((1, range(5)), (-1, range(4, -1, -1))):
        seen = []
        for place in places:
            turns.come_to(place, step)
            seen.append(held())
        assert seen == [sorted({place, min(max(place + step, 0), 4)}) for place in places]
        turns.end()
        assert held() == []
        assert len(gathered) == len(set(gathered)) == 5
        gathered.clear()
