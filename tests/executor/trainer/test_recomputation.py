"""Recomputation changes no gradient, repeats no exchange between ranks, and keeps as much as plans assume."""

import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from executor.trainer import tensor_parallel
from executor.trainer.block import Block
from executor.trainer.context import LayerContext
from executor.trainer.documents import Documents
from executor.trainer.recomputation import Again, recomputed
from models.numerics import Numerics
from models.performance.iteration.architecture import profile_of
from models.software import Software
from models.transformer import Biases, Checkpointing, Precision, Transformer
from tests.executor.jobs import GPT, LLAMA

pytestmark = [pytest.mark.slow, pytest.mark.training]

_SIZES: dict[str, Any] = {
    "hidden_size": 256,
    "num_heads": 8,
    "sequence_length": 64,
    "precision": Precision.BF16,
    "software": Software.TORCH_EAGER,
}
_GPT = replace(GPT, **_SIZES)
_LLAMA = replace(LLAMA, **_SIZES, feed_forward_size=896)
_EXPERTS = replace(_LLAMA, num_experts=4, experts_per_token=2, expert_feed_forward_size=256, shared_expert_size=128)
_NORMED = replace(_LLAMA, query_key_norms=True, biases=Biases.QKV)
_GATED = Numerics(gated_shared_expert=True)
MODELS = [
    pytest.param(_GPT, id="gpt"),
    pytest.param(_LLAMA, id="llama"),
    pytest.param(_NORMED, id="head-norms"),
    pytest.param(_EXPERTS, id="experts"),
]


class _Computed(TorchDispatchMode):
    """Storages of tensors that are computed within, and which of them are still there."""

    def __init__(self) -> None:
        super().__init__()
        self._found: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        given = function(*arguments, **(named or {}))
        for tensor in tree_leaves(given):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                self._found[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        return given

    def kept_bytes(self, *others: torch.Tensor) -> int:
        """Of all that are still there but those of other tensors."""
        gc.collect()
        known = {tensor.untyped_storage()._cdata for tensor in others}
        return sum(size for key, (found, size) in self._found.items() if key not in known and not found.expired())


class _FusedNorm(torch.autograd.Function):
    """RMS norm that keeps what the fused one of a GPU keeps: its input, and a number of every row."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        scale = (values.float().square().mean(-1, keepdim=True) + epsilon).rsqrt()
        ctx.save_for_backward(values, weight, scale)
        return (values.float() * scale).to(values.dtype) * weight


def _block(model: Transformer, checkpointing: Checkpointing, **context: Any) -> Block:
    block = Block(LayerContext(seed=5, **context), replace(model, checkpointing=checkpointing), 0)
    return block.to(torch.bfloat16 if model.precision is Precision.BF16 else torch.float32)


def _inputs(model: Transformer, length: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(4, length or model.sequence_length, model.hidden_size, generator=generator)
    return values.to(torch.bfloat16 if model.precision is Precision.BF16 else torch.float32).requires_grad_()


@pytest.mark.parametrize("checkpointing", Checkpointing)
@pytest.mark.parametrize("model", MODELS)
def test_a_layer_keeps_what_plans_assume(
    model: Transformer, checkpointing: Checkpointing, monkeypatch: pytest.MonkeyPatch
) -> None:
    if model.gated:
        monkeypatch.setattr(
            functional, "rms_norm", lambda values, _, weight, epsilon: _FusedNorm.apply(values, weight, epsilon)
        )
    block, values = _block(model, checkpointing), _inputs(model)
    # The input is what a layer before has computed.
    with _Computed() as computed:
        given = values.clone()
        result = block(given)
    del given
    found = computed.kept_bytes(result, *block.parameters())
    cost = profile_of(replace(model, checkpointing=checkpointing)).layers[0]
    expected = len(values) * (cost.partitioned_activation_bytes + cost.replicated_activation_bytes)
    assert 0.9 * expected < found < 1.1 * expected, found / expected


def _gradients(block: Block, values: torch.Tensor, documents: Documents | None = None) -> list[torch.Tensor]:
    result = block(values, documents)
    return list(torch.autograd.grad(result.float().square().mean(), [values, *block.parameters()]))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("precision", [Precision.FP32, Precision.BF16])
@pytest.mark.parametrize("model", MODELS)
def test_gradients_are_the_same(model: Transformer, precision: Precision, packed: bool) -> None:
    model, documents = replace(model, precision=precision), None
    if packed:
        starts = np.arange(64)[None] % np.array([[64], [20], [9], [33]]) == 0
        documents = Documents.beginning_at(starts)
    values = _inputs(model)
    expected = _gradients(_block(model, Checkpointing.NONE, numerics=_GATED), values, documents)
    for checkpointing in (Checkpointing.SELECTIVE, Checkpointing.FULL):
        found = _gradients(_block(model, checkpointing, numerics=_GATED), values, documents)
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_exchanged_more_often(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two ranks, each with a part of the sequences; the other one has the same part."""
    calls: list[str] = []

    def gathered(part: torch.Tensor, _: LayerContext) -> torch.Tensor:
        calls.append("gather")
        return torch.cat([part, part], dim=1)

    def scattered(values: torch.Tensor, _: LayerContext) -> torch.Tensor:
        calls.append("scatter")
        first, second = values.chunk(2, dim=1)
        return first + second

    monkeypatch.setattr(tensor_parallel, "_gathered", gathered)
    monkeypatch.setattr(tensor_parallel, "_scattered", scattered)
    found = []
    for checkpointing in (Checkpointing.NONE, Checkpointing.SELECTIVE):
        calls.clear()
        block = _block(model, checkpointing, tensor_degree=2, splits_sequences=True)
        gradients = _gradients(block, _inputs(model, 32))
        found.append((list(calls), gradients))
    (usual, expected), (selective, gradients) = found
    # In each half once on the way there, once on the way back and once for the gradients of weights; then the ends.
    assert sorted(selective) == sorted(usual) == ["gather"] * 6 + ["scatter"] * 4
    assert all(torch.equal(a, b) for a, b in zip(gradients, expected, strict=True))


def test_what_is_computed_again_is_so_once_a_pass_and_forgotten() -> None:
    times: list[int] = []
    values, weights = torch.randn(3, 4), [torch.randn(5, 4, requires_grad=True) for _ in range(3)]

    def doubled() -> torch.Tensor:
        times.append(1)
        return 2 * values

    again = Again(doubled)
    given = 2 * values
    with recomputed((given, again)):
        # A view, too, and none that is something else.
        results = [
            functional.linear(each, weight) for each, weight in zip((given, given[1:], values), weights, strict=True)
        ]
    del given
    total = sum(result.sum() for result in results)
    assert isinstance(total, torch.Tensor)
    for passes in (1, 2):
        found = torch.autograd.grad(total, weights, retain_graph=True)
        assert len(times) == passes
        assert again._made is None
    for gradient, rows in zip(found, (2 * values, 2 * values[1:], values), strict=True):
        torch.testing.assert_close(gradient, rows.sum(dim=0).expand(5, 4))


def test_what_comes_of_it_asks_once_for_all() -> None:
    times: list[int] = []
    weights = [torch.randn(4, requires_grad=True) for _ in range(2)]
    values = torch.randn(4)

    def doubled() -> torch.Tensor:
        times.append(1)
        return 2 * values

    again = Again(doubled)
    squared = again.then(torch.square)
    first, second = 2 * values, (2 * values).square()
    with recomputed((first, again), (second, squared)):
        result = (first * weights[0] + second * weights[1]).sum()
    found = torch.autograd.grad(result, weights)
    torch.testing.assert_close(found, (2 * values, 4 * values.square()))
    assert len(times) == 1


@pytest.mark.parametrize("function", [torch.no_grad, torch.inference_mode])
def test_without_gradients_nothing_is_kept(function: Callable[[], Any]) -> None:
    block, values = _block(_LLAMA, Checkpointing.SELECTIVE), _inputs(_LLAMA)
    with function(), _Computed() as computed:
        result = block(values)
    assert computed.kept_bytes(values, result, *block.parameters()) == 0


def _saved(result: torch.Tensor) -> list[torch.Tensor]:
    """What the backward pass of a compiled function was left, by the graph of its result."""
    found, ahead, seen = [], [result.grad_fn], set()
    while ahead:
        node = ahead.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found += [each for each in getattr(node, "saved_tensors", ()) if isinstance(each, torch.Tensor)]
            ahead += [following for following, _ in node.next_functions]
    return found


@pytest.mark.parametrize("model", [_GPT, _LLAMA])
def test_a_compiled_layer_is_one_graph_and_keeps_what_plans_assume(model: Transformer) -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    expected = _gradients(_block(model, Checkpointing.NONE), _inputs(model))
    block = _block(model, Checkpointing.SELECTIVE)
    block.compile(backend="aot_eager", dynamic=False)
    found = _gradients(block, _inputs(model))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
    weights = {parameter.untyped_storage()._cdata for parameter in block.parameters()}
    values = _inputs(model)
    kept = {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in _saved(block(values))}
    cost = profile_of(replace(model, checkpointing=Checkpointing.SELECTIVE)).layers[0]
    assumed = len(values) * (cost.partitioned_activation_bytes + cost.replicated_activation_bytes)
    assert sum(size for key, size in kept.items() if key not in weights) == pytest.approx(assumed, rel=0.1)
    torch._dynamo.reset()
