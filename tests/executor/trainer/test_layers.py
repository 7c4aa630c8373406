"""Layers on one rank: parameters that do not depend on the layout, sizes, positions, recomputation, hooks."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.trainer import tensor_parallel
from executor.trainer.context import LayerContext, seeded_parameter
from executor.trainer.decay import parameter_groups
from executor.trainer.layers import layers_of, transformer_layers
from executor.trainer.rotary import frequencies, rotate
from executor.trainer.tensor_parallel import ColumnParallelLinear, entered
from models.numerics import Numerics
from models.performance.iteration.architecture import profile_of
from models.transformer import Biases, Checkpointing, Transformer
from stowplan.errors import InputError
from tests.executor.jobs import GPT, LLAMA, tiny_job
from tests.executor.trainer.reference import Sequence, reference

pytestmark = [pytest.mark.slow, pytest.mark.training]

HOOKS = "tests.executor.trainer.hooks"


@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    degree=st.sampled_from([1, 2, 3, 4]),
    axis=st.sampled_from([0, 1]),
)
@settings(max_examples=40, deadline=None)
def test_parts_of_a_parameter_make_up_the_same_whole(rows: int, columns: int, degree: int, axis: int) -> None:
    """Padding, where the degree does not divide, is zero and at the end."""
    whole = seeded_parameter(LayerContext(seed=3), "layer", (rows, columns), std=0.02)
    parts = [
        seeded_parameter(
            LayerContext(tensor_rank=rank, tensor_degree=degree, seed=3), "layer", (rows, columns), std=0.02, axis=axis
        )
        for rank in range(degree)
    ]
    joined = torch.cat(list(parts), dim=axis)
    size = (rows, columns)[axis]
    assert torch.equal(joined.narrow(axis, 0, size), whole)
    assert joined.narrow(axis, size, joined.shape[axis] - size).count_nonzero() == 0
    assert len({part.shape for part in parts}) == 1


def test_seed_and_name_decide_the_numbers() -> None:
    draws = [
        seeded_parameter(LayerContext(seed=seed), name, (4, 4), std=1.0)
        for seed, name in ((1, "a"), (1, "b"), (2, "a"))
    ]
    assert not any(torch.equal(draws[i], draws[j]) for i, j in ((0, 1), (0, 2), (1, 2)))


@pytest.mark.parametrize("model", [GPT, LLAMA, replace(LLAMA, biases=Biases.QKV, head_size=24, query_key_norms=True)])
def test_planner_and_trainer_agree_on_the_number_of_parameters(model: Transformer) -> None:
    profile, layers = profile_of(model), transformer_layers(model, LayerContext())
    built = Sequence(layers)
    expected = profile.embedding.parameters + sum(c.parameters for c in profile.layers) + profile.head.parameters
    assert sum(p.numel() for p in built.parameters()) == expected
    assert sum(p.numel() for p in layers.layers[0].build().parameters()) == profile.layers[0].parameters


def test_rotary_positions_keep_lengths_and_depend_on_distance_alone() -> None:
    torch.manual_seed(0)
    query, key = torch.randn(16), torch.randn(16)
    turning = frequencies(Numerics(), 16, "cpu")
    turned = [rotate(vector.expand(1, 12, 1, 16), turning)[0, :, 0] for vector in (query, key)]
    torch.testing.assert_close(turned[0].norm(dim=-1), query.norm().expand(12))
    products = turned[0] @ turned[1].T
    torch.testing.assert_close(products[3:, 3:], products[:-3, :-3], rtol=1e-4, atol=1e-4)
    assert products[0, 5] != pytest.approx(products[0, 6])


def test_no_token_sees_those_behind_it() -> None:
    model = Sequence(transformer_layers(LLAMA, LayerContext(seed=1)))
    tokens = torch.arange(8).unsqueeze(0)
    changed = tokens.clone()
    changed[0, 5] = 90
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


@pytest.mark.parametrize("model", [GPT, LLAMA])
@pytest.mark.parametrize("checkpointing", [Checkpointing.SELECTIVE, Checkpointing.FULL])
def test_recomputed_activations_change_nothing(model: Transformer, checkpointing: Checkpointing) -> None:
    kept = reference(tiny_job(model, num_steps=2))
    recomputed = reference(tiny_job(replace(model, checkpointing=checkpointing), num_steps=2))
    assert recomputed == kept


def test_of_a_split_sequence_the_part_alone_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks with equal parts, of which one is here; its gradients are those of both."""
    gathers: list[torch.Size] = []

    def gathered(part: torch.Tensor, _: LayerContext) -> torch.Tensor:
        gathers.append(part.shape)
        return torch.cat([part, part], dim=1)

    def scattered(values: torch.Tensor, _: LayerContext) -> torch.Tensor:
        first, second = values.chunk(2, dim=1)
        return first + second

    monkeypatch.setattr(tensor_parallel, "_gathered", gathered)
    monkeypatch.setattr(tensor_parallel, "_scattered", scattered)
    context = LayerContext(tensor_degree=2, splits_sequences=True)
    up, gate = (ColumnParallelLinear(context, name, 8, 6, std=1.0, bias=False) for name in ("up", "gate"))
    part = torch.randn(3, 5, 8, requires_grad=True)
    for gather_again, times in ((True, 2), (False, 1)):
        gathers.clear()
        with entered(part, context, gather_again=gather_again) as whole:
            result = (up(whole) * gate(whole)).square().sum()
        found = torch.autograd.grad(result, [part, up.weight, gate.weight])
        assert gathers == [part.shape] * times
        doubled = torch.cat([part, part], dim=1)
        expected = torch.autograd.grad((up(doubled) * gate(doubled)).square().sum(), [part, up.weight, gate.weight])
        torch.testing.assert_close(found, expected)


def test_degree_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="up: 10 does not divide by the tensor-parallel degree 4"):
        ColumnParallelLinear(LayerContext(tensor_degree=4), "up", 8, 10, std=0.02, bias=False)


def test_first_and_last_stage_hold_embedding_and_head() -> None:
    # GPT: embedding, positions, 4 blocks, norm, head; LLaMA has no table of positions.
    assert transformer_layers(GPT, LayerContext()).bounds((3, 1)) == [0, 5, 8]
    assert transformer_layers(LLAMA, LayerContext()).bounds((1, 2, 1)) == [0, 2, 4, 7]
    assert transformer_layers(LLAMA, LayerContext()).bounds((4,)) == [0, 7]


@pytest.mark.parametrize(
    ("hook", "detail"),
    [
        ("tests.executor.nowhere:layers", "cannot be imported"),
        (f"{HOOKS}:nowhere", "cannot be imported"),
        (f"{HOOKS}:nothing", "gave NoneType, not PipelineLayers"),
        (f"{HOOKS}:too_few", "gave 3 layers; the model has 4"),
    ],
)
def test_wrong_hook_is_refused(hook: str, detail: str) -> None:
    with pytest.raises(InputError, match=detail):
        layers_of(tiny_job(layers_hook=hook), LayerContext())


@pytest.mark.parametrize("model", [GPT, replace(LLAMA, biases=Biases.QKV, query_key_norms=True)])
def test_matrices_decay_and_norms_and_biases_do_not(model: Transformer) -> None:
    module = Sequence(transformer_layers(model, LayerContext()))
    decaying, others = parameter_groups(module, 0.1)
    assert (decaying["weight_decay"], others["weight_decay"]) == (0.1, 0.0)
    assert len(decaying["params"]) + len(others["params"]) == len(list(module.parameters()))
    assert {p.stored_name for p in others["params"]} == {
        p.stored_name for p in module.parameters() if p.stored_name.endswith(("norm", ".bias"))
    }
