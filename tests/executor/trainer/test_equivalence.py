"""Whatever the layout, the training is that of one process: same losses, same gradients, on real ranks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from executor.training_job import TrainingJob
from models.transformer import Checkpointing, Precision, Transformer
from tests.executor.jobs import GPT, LLAMA, tiny_job
from tests.executor.trainer.launching import run_job, steps_of
from tests.executor.trainer.reference import reference

pytestmark = [pytest.mark.slow, pytest.mark.training]

PP2: dict[str, Any] = {"stage_layers": (2, 2)}

LAYOUTS = [
    pytest.param(GPT, PP2, None, id="PP2"),
    pytest.param(GPT, {"dp": 2}, None, id="DP2"),
    pytest.param(GPT, {"tp": 2}, None, id="TP2"),
    pytest.param(LLAMA, {"stage_layers": (3, 1)}, None, id="PP2-uneven"),
    pytest.param(LLAMA, PP2 | {"dp": 2}, None, id="PP2xDP2"),
    pytest.param(replace(LLAMA, query_key_norms=True), PP2 | {"tp": 2}, None, id="PP2xTP2-head-norms"),
    pytest.param(GPT, PP2 | {"tp": 2}, (2, 3, 0, 1), id="PP2xTP2-permuted"),
    pytest.param(LLAMA, PP2 | {"dp": 2, "tp": 2}, None, id="PP2xDP2xTP2"),
]


def _check(job: TrainingJob, alone: TrainingJob, folder: Path, *, loss: float, gradient: float) -> None:
    """Compare every step of every rank with the reference; `loss` absolute, `gradient` relative."""
    expected = reference(alone, job.stages[0].dp)
    for rank in range(job.num_ranks):
        steps = steps_of(folder, rank)
        assert [step.step for step in steps] == list(range(1, job.num_steps + 1))
        assert {(step.pipe, step.data, step.tensor) for step in steps} == {job.coordinates(rank)}
        np.testing.assert_allclose([s.loss for s in steps], [e.loss for e in expected], rtol=0, atol=loss)
        for name in ("large_gradient_square", "small_gradient_square"):
            found, wanted = [getattr(s, name) for s in steps], [getattr(e, name) for e in expected]
            np.testing.assert_allclose(found, wanted, rtol=gradient, err_msg=name)


@pytest.mark.parametrize(("model", "layout", "ranks"), LAYOUTS)
def test_layout_trains_like_one_process(
    model: Transformer, layout: dict[str, Any], ranks: tuple[int, ...] | None, tmp_path: Path
) -> None:
    job = tiny_job(model, **layout, metrics_folder=str(tmp_path), num_steps=8)
    run_job(job, tmp_path, ranks=ranks)
    _check(job, tiny_job(model, num_steps=8), tmp_path, loss=1e-5, gradient=1e-4)
    assert steps_of(tmp_path)[-1].loss < steps_of(tmp_path)[0].loss - 0.2


@pytest.mark.parametrize("checkpointing", [Checkpointing.FULL, Checkpointing.SELECTIVE])
def test_every_part_of_a_step_is_timed_where_it_happens(checkpointing: Checkpointing, tmp_path: Path) -> None:
    """Token file, recomputed layers and bf16 on the way: near the reference in fp32, as far as 8 bits go."""
    tokens = tmp_path / "tokens.bin"
    np.random.default_rng(0).integers(GPT.vocabulary_size, size=3000).astype("<u2").tofile(tokens)
    data: dict[str, Any] = {"token_file": str(tokens), "num_steps": 6}
    model = replace(GPT, precision=Precision.BF16, checkpointing=checkpointing)
    job = tiny_job(model, **PP2, **data, metrics_folder=str(tmp_path))
    run_job(job, tmp_path)
    _check(job, tiny_job(**data), tmp_path, loss=2e-2, gradient=0.1)
    first, last = steps_of(tmp_path, 0)[-1], steps_of(tmp_path, 1)[-1]
    for step in (first, last):
        parts_s = (step.forward_s, step.backward_s, step.send_s, step.receive_s, step.load_s, step.optimizer_s)
        assert min(parts_s) > 0
        assert sum(parts_s) + step.reduction_s <= step.step_s
        assert step.tokens == 8 * GPT.sequence_length
        assert step.tokens_per_s == pytest.approx(step.tokens / step.step_s)
        assert step.peak_memory_bytes > 0
    # Tied embeddings: their gradients are summed over the stages, even with one replica.
    assert min(first.reduction_s, last.reduction_s) > 0
    assert first.launch == last.launch
