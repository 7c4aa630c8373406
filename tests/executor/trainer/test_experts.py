"""Who works on which token, and what balance costs."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from executor.routing import Routing
from executor.trainer.context import LayerContext
from executor.trainer.experts import Experts, MixtureOfExperts, Router
from models.numerics import Numerics
from models.transformer import Transformer
from tests.executor.jobs import LLAMA

_MODEL = replace(LLAMA, num_experts=3, hidden_size=3, experts_per_token=2)
# Logits of tokens: the first experts, then the second ones, of a sequence of four.
_FIRST, _SECOND = (0, 0, 0, 1), (1, 1, 2, 0)


def _router(routing: Routing, *, normalised: bool = True, model: Transformer = _MODEL) -> Router:
    """Logits are the values of a token."""
    numerics = Numerics(normalised_routing=normalised)
    router = Router(LayerContext(routing=routing, numerics=numerics, sequence_share=0.25), model, "router")
    router.weight.data = torch.eye(3)
    return router


def _tokens(first: Sequence[int], second: Sequence[int]) -> torch.Tensor:
    tokens = torch.zeros(len(first), 3)
    for k, (one, other) in enumerate(zip(first, second, strict=True)):
        tokens[k, one], tokens[k, other] = 2.0, 1.0
    return tokens.unsqueeze(0)


def test_choices_are_sorted_by_expert() -> None:
    chosen = _router(Routing())(_tokens(_FIRST, _SECOND))
    assert chosen.counts.tolist() == [4, 3, 1]
    # Choice 2 k is the first of token k, 2 k + 1 its second.
    assert chosen.order.tolist() == [0, 2, 4, 7, 1, 3, 6, 5]


@pytest.mark.parametrize(("normalised", "total"), [(True, 1.0), (False, 0.9100)])
def test_weights_of_a_token_add_up_as_the_model_says(normalised: bool, total: float) -> None:
    """Of logits 2, 1, 0 the softmax has 0.6652, 0.2447, 0.0900."""
    weights = _router(Routing(), normalised=normalised)(_tokens(_FIRST, _SECOND)).weights
    torch.testing.assert_close(weights.sum(dim=1), torch.full((4,), total), rtol=0, atol=1e-4)
    torch.testing.assert_close(weights[:, 0] / weights[:, 1], torch.full((4,), torch.e), rtol=1e-5, atol=0)


def test_later_and_second_choices_are_dropped_first() -> None:
    """Three of eight choices find room at one expert: of its first choices those of the tokens 0, 1 and 2, so that the
    second choice of token 3 is dropped. The others have room."""
    chosen = _router(Routing(capacity=1.0))(_tokens(_FIRST, _SECOND))
    assert chosen.counts.tolist() == [3, 3, 1]
    assert chosen.order.tolist() == [0, 2, 4, 1, 3, 6, 5]
    # Two at most: the third token has no first choice left, and of the second ones of expert 1 token 0 is before.
    chosen = _router(Routing(capacity=0.7))(_tokens(_FIRST, _SECOND))
    assert chosen.order.tolist() == [0, 2, 1, 6, 5]


def test_room_is_that_of_a_sequence() -> None:
    """What one sequence is denied does not depend on the other."""
    both = torch.cat([_tokens(_FIRST, _SECOND), _tokens((2, 2, 2, 2), _FIRST)])
    chosen = _router(Routing(capacity=1.0))(both)
    alone = _router(Routing(capacity=1.0))(both[1:])
    assert chosen.counts.tolist() == [a + b for a, b in zip([3, 3, 1], alone.counts.tolist(), strict=True)]
    assert alone.counts.tolist() == [3, 1, 3]


@pytest.mark.parametrize("degree", [1, 2])
def test_losses_of_balance_and_logits_reach_the_router(degree: int) -> None:
    """Whatever comes back of the weights; each of several tensor ranks has a part of it."""
    tokens = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(3), requires_grad=True)
    context = LayerContext(
        tensor_degree=degree,
        splits_sequences=degree > 1,
        routing=Routing(balance_loss=0.3, router_loss=0.2),
        sequence_share=0.25,
    )
    router = Router(context, _MODEL, "router")
    chosen = router(tokens)
    (chosen.weights * 0.0).sum().backward()
    expected = torch.zeros(())
    weight = router.weight.detach().clone().requires_grad_()
    for sequence in tokens.detach():
        logits = sequence @ weight.T
        shares = logits.softmax(dim=-1)
        of_choices = torch.bincount(shares.topk(2, dim=-1).indices.flatten(), minlength=3) / 10
        expected = expected + 0.25 * 0.3 * 3 * (of_choices * shares.mean(dim=0)).sum()
        expected = expected + 0.25 * 0.2 * (logits.exp().sum(dim=-1).log() ** 2).mean()
    expected.backward()
    torch.testing.assert_close(router.weight.grad, weight.grad / degree)


def test_balanced_experts_cost_one() -> None:
    router = _router(Routing(balance_loss=1.0))
    logits = torch.zeros(2, 6, 3)
    loss = router._loss(logits, logits.softmax(dim=-1), torch.full((2, 3), 4))
    assert float(loss) == pytest.approx(0.25 * 2)


@pytest.mark.parametrize(
    ("size", "dtype"), [(24, torch.float32), (24, torch.bfloat16), (20, torch.bfloat16), (3, torch.float32)]
)
def test_grouped_products_are_those_of_each_expert(size: int, dtype: torch.dtype) -> None:
    """Where rows are no multiples of 16 bytes there is no kernel for all experts; an expert may have no rows at all."""
    model = replace(_MODEL, hidden_size=16, expert_feed_forward_size=size)
    experts = Experts(LayerContext(), model, "experts").to(dtype)
    rows = torch.randn(7, 16, generator=torch.Generator().manual_seed(1)).to(dtype).requires_grad_()
    given = experts(rows, torch.tensor([4, 0, 3]))
    assert experts.gate is not None
    for part, found, k in ((rows[:4], given[:4], 0), (rows[4:], given[4:], 2)):
        inner = torch.nn.functional.silu(part @ experts.gate[k].T) * (part @ experts.up[k].T)
        torch.testing.assert_close(found, inner @ experts.down[k])
    given.float().square().sum().backward()
    gradient = experts.up.grad
    assert gradient is not None
    assert float(gradient[1].abs().max()) == 0.0 < float(gradient[2].abs().max())
    assert experts(rows[:0], torch.tensor([0, 0, 0])).shape == (0, 16)


def test_dropped_tokens_get_what_the_shared_expert_gives() -> None:
    model = replace(_MODEL, hidden_size=16, feed_forward_size=24, shared_expert_size=8)
    tokens = torch.randn(1, 1, 16, generator=torch.Generator().manual_seed(1)).expand(1, 4, 16)
    layer = MixtureOfExperts(LayerContext(routing=Routing(capacity=0.3)), model, "mixture")
    with torch.no_grad():
        first, *others = layer(tokens)[0]
        assert layer.shared is not None
        torch.testing.assert_close(torch.stack(others), layer.shared(tokens)[0, 1:])
        assert float((first - others[0]).abs().max()) > 0
