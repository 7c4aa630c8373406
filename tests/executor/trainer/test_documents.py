"""Attention within documents: exact, without memory for pairs of tokens, the same training whatever the plan."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from executor.token_stream import open_stream
from executor.trainer.context import LayerContext
from executor.trainer.documents import IGNORED, Documents, attend_within
from executor.trainer.layers import transformer_layers
from executor.trainer.reading import Reading
from executor.trainer.tensor_parallel import CrossEntropy
from executor.training_job import TrainingJob
from executor.training_layout import StageLayout
from executor.training_options import Compiler, EngineName
from models.pipeline_schedule import PipelineSchedule
from models.software import Software
from models.transformer import Checkpointing, Transformer
from tests.executor.jobs import GPT, LLAMA, tiny_job
from tests.executor.trainer.launching import Ranks, run_job, steps_of
from tests.executor.trainer.packed import packed
from tests.executor.trainer.reference import Sequence, reference, stream_documents, stream_labels

pytestmark = [pytest.mark.slow, pytest.mark.training]


# Two sequences of 6 tokens: documents of 2, 3 and 1; of 6.
_STARTS = np.array([[1, 0, 1, 0, 0, 1], [1, 0, 0, 0, 0, 0]], dtype=np.bool_)


def test_positions_begin_again_and_lengths_are_those_of_the_documents() -> None:
    documents = Documents.beginning_at(_STARTS)
    assert documents.positions.tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5]]
    assert documents.lengths == (2, 3, 1, 6)


@pytest.mark.parametrize("key_heads", [4, 2])
def test_attention_is_that_under_a_mask(key_heads: int) -> None:
    torch.manual_seed(0)
    shapes = [(2, heads, 6, 8) for heads in (4, key_heads, key_heads)]
    query, key, value = values = [torch.randn(shape, requires_grad=True) for shape in shapes]
    of_token = torch.from_numpy(_STARTS.cumsum(axis=1))
    same = of_token[:, None, :, None] == of_token[:, None, None, :]
    mask = same & torch.ones(6, 6, dtype=torch.bool).tril()
    grouped = key_heads != 4
    found = attend_within(Documents.beginning_at(_STARTS), query, key, value, grouped=grouped)
    expected = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=grouped)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), values), torch.autograd.grad((expected * weights).sum(), values)
    )


@pytest.mark.parametrize("model", [GPT, LLAMA])
@pytest.mark.parametrize("checkpointing", Checkpointing)
def test_documents_in_a_window_are_computed_as_if_alone(model: Transformer, checkpointing: Checkpointing) -> None:
    built = Sequence(transformer_layers(replace(model, checkpointing=checkpointing), LayerContext(seed=1)))
    tokens = torch.arange(2 * 32).view(2, 32) % 90
    starts = np.zeros((2, 32), dtype=np.bool_)
    starts[:, 0] = starts[0, 9] = starts[0, 30] = starts[1, 17] = True
    found = built(tokens, Documents.beginning_at(starts))
    for sequence, first, end in ((0, 0, 9), (0, 9, 30), (0, 30, 32), (1, 0, 17), (1, 17, 32)):
        torch.testing.assert_close(found[sequence, first:end], built(tokens[sequence : sequence + 1, first:end])[0])
    assert not torch.allclose(found[0, 9:], built(tokens)[0, 9:], atol=1e-3)


def test_what_attention_keeps_grows_with_the_tokens_and_not_with_their_pairs() -> None:
    kept: list[int] = []
    for length in (64, 256):
        starts = np.arange(length)[None] % 32 == 0
        values = [torch.randn(1, 2, length, 8, requires_grad=True) for _ in range(3)]
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, sizes=sizes: sizes.append(t.untyped_storage().nbytes()) or t, lambda t: t
        ):
            attend_within(Documents.beginning_at(starts), *values, grouped=False)
        # What several documents have in common is kept once.
        kept.append(sum(sizes) // (length // 32))
    assert kept[1] <= 4.1 * kept[0]


def test_labels_that_are_left_out_have_no_part_in_the_mean() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 5, 7, requires_grad=True), torch.randint(7, (2, 5))
    labels[0, 1] = labels[1, 4] = IGNORED
    loss = CrossEntropy(LayerContext(), 7)
    expected = functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    found = loss(logits, labels)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, logits), torch.autograd.grad(expected, logits))
    half = logits.detach().bfloat16().requires_grad_()
    kept: list[int] = []

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        found = loss(half, labels)
    # In fp32 once, and less than that for the labels.
    assert sum(kept) < 2 * 4 * half.numel()
    whole = half.detach().float().requires_grad_()
    expected = functional.cross_entropy(whole.flatten(0, 1), labels.flatten())
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, half)[0].float(), torch.autograd.grad(expected, whole)[0], atol=1e-3, rtol=1e-2
    )
    assert loss(logits, torch.full_like(labels, IGNORED)).item() == 0.0
    # Not even what is no number.
    expected = loss(logits, labels)
    for bad in (float("nan"), float("inf")):
        assert loss(logits.masked_fill((labels == IGNORED).unsqueeze(-1), bad), labels) == expected


def test_labels_beyond_the_vocabulary_are_refused() -> None:
    loss = CrossEntropy(LayerContext(), 5)
    for wrong in (-1, 5, 7):
        with pytest.raises(RuntimeError, match="a label is no token of the 5 of the vocabulary"):
            loss(torch.zeros(1, 2, 8), torch.tensor([[0, wrong]]))
    with pytest.raises(RuntimeError, match="logits of 4 tokens; the vocabulary has 5"):
        loss(torch.zeros(1, 2, 4), torch.tensor([[0, 4]]))


def test_a_loss_has_one_gradient() -> None:
    logits = torch.randn(1, 2, 5, requires_grad=True)
    loss = CrossEntropy(LayerContext(), 5)(logits, torch.tensor([[0, 4]]))
    with pytest.raises(RuntimeError, match="has no graph"):
        loss.backward(create_graph=True)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_stages_in_the_middle_read_documents_and_no_tokens(tmp_path: Path) -> None:
    job = tiny_job(LLAMA, stage_layers=(1, 2, 1), data=packed(tmp_path, eod_mask_loss=True))
    stream = open_stream(job)
    first, middle, last = (Reading(stream, job, rank).batches(8) for rank in range(3))
    assert [len(batches.pairs) for batches in (first, middle, last)] == [4, 0, 4]
    for batches in (first, middle, last):
        for index, documents in enumerate(batches.documents):
            expected = stream_documents(job, stream, 8 + 2 * index, 2)
            assert expected is not None
            assert documents.lengths == expected.lengths
    labels = stream_labels(job, stream, 8, 8)
    assert torch.equal(torch.cat([pair[1] for pair in last.pairs]), labels)
    assert [batches.num_counted for batches in (first, middle, last)] == [None, None, int((labels != IGNORED).sum())]
    assert 0 < int((labels == IGNORED).sum()) < labels.numel() // 4


def _stage(num_layers: int, tp: int, *batches: int) -> StageLayout:
    return StageLayout(num_layers=num_layers, tp=tp, batches=batches)


_SPLIT: dict[str, Any] = {"software": Software.TORCH_EAGER, "sequence_parallel": True}
_TWO = (_stage(2, 1, 1, 1), _stage(2, 2, 2))
_DEEPSPEED = {"stage_layers": (2, 2), "dp": 2, "tp": 2}
_PLANS = [
    pytest.param(LLAMA, _DEEPSPEED, id="deepspeed-PP2xDP2xTP2"),
    pytest.param(replace(GPT, checkpointing=Checkpointing.FULL), {"stage_layers": (1, 2, 1)}, id="deepspeed-full"),
    pytest.param(LLAMA, {"stages": (_stage(1, 1, 3, 1), _stage(2, 2, 4), _stage(1, 1, 2, 2))}, id="uneven-shares"),
    pytest.param(GPT, {"stages": (_stage(3, 2, 8), _stage(1, 1, 4, 2, 2))}, id="gpipe"),
    pytest.param(
        replace(GPT, checkpointing=Checkpointing.FULL),
        {"stages": (_stage(2, 1, 2), _stage(2, 1, 2)), "virtual_stages": 2},
        id="interleaved-recomputed",
    ),
    pytest.param(
        replace(LLAMA, checkpointing=Checkpointing.NONE),
        {"stages": _TWO, "virtual_stages": 2, "pipeline_schedule": PipelineSchedule.ZBV},
        id="zbv",
    ),
    pytest.param(
        replace(GPT, checkpointing=Checkpointing.NONE),
        {
            "stages": (_stage(2, 1, 2), _stage(2, 1, 2)),
            "virtual_stages": 2,
            "pipeline_schedule": PipelineSchedule.ZERO_BUBBLE,
        },
        id="zero-bubble",
    ),
    pytest.param(replace(GPT, **_SPLIT), {"stages": (_stage(2, 2, 4), _stage(2, 1, 3, 1))}, id="split-sequences"),
    pytest.param(
        replace(LLAMA, num_layers=2, checkpointing=Checkpointing.SELECTIVE, **_SPLIT),
        {"stages": (_stage(2, 2, 2),), "compiler": Compiler.AOT_EAGER},
        id="compiled",
    ),
]


def _job(model: Transformer, layout: dict[str, Any], **more: Any) -> TrainingJob:
    if "stages" in layout:
        count = model.global_batch // sum(layout["stages"][0].batches)
        more |= {"engine": EngineName.NATIVE, "num_micro_batches": count}
    return tiny_job(model, **layout, **more)


@pytest.mark.parametrize(("model", "layout"), _PLANS)
def test_plan_trains_like_one_process(model: Transformer, layout: dict[str, Any], tmp_path: Path) -> None:
    """First tokens of documents do not count."""
    data = packed(tmp_path, eod_mask_loss=True)
    job = _job(model, layout, data=data, num_steps=4, metrics_folder=str(tmp_path))
    run_job(job, tmp_path)
    exact = replace(model, checkpointing=Checkpointing.NONE, software=Software.DEEPSPEED, sequence_parallel=None)
    alone = tiny_job(exact, stage_layers=(model.num_layers,), num_steps=4, data=data)
    expected = [step.loss for step in reference(alone)]
    found = [[step.loss for step in steps_of(tmp_path, rank)] for rank in range(job.num_ranks)]
    np.testing.assert_allclose(found, [expected] * job.num_ranks, rtol=0, atol=1e-5)
    # What neither mask would change is tested by nothing.
    for changed in (replace(data, document_mask=False), replace(data, eod_mask_loss=False)):
        other = reference(replace(alone, data=changed))
        assert abs(other[-1].loss - expected[-1]) > 1e-3


@pytest.mark.parametrize("engine", EngineName)
def test_hook_whose_layers_take_no_documents_is_refused(engine: EngineName, tmp_path: Path) -> None:
    hook = "tests.executor.trainer.hooks:unmasked"
    job = tiny_job(LLAMA, data=packed(tmp_path), layers_hook=hook, engine=engine, metrics_folder=str(tmp_path))
    with Ranks(job, tmp_path) as running:
        ended = running.wait()
    assert ended.codes == [2]
    assert "the layer Deaf takes no documents" in ended.output[0]
