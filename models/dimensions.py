"""Sizes of a transformer's parts, with what the user left out filled in: the one place that knows these defaults."""

from dataclasses import dataclass

from models.transformer import Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """Sizes that layers are built with and costs derived from.

    `head`: size of a head's query and key, `value_head`: of its value. `feed_forward`: inner size of the feed-forward
    part, `expert`: of one expert.
    """

    hidden: int
    heads: int
    kv_heads: int
    head: int
    feed_forward: int
    value_head: int
    expert: int

    @classmethod
    def of(cls, model: Transformer) -> "Dimensions":
        """Fill in the defaults that `Transformer` documents."""
        heads = model.num_heads or max(1, model.hidden_size // 64)
        head = model.head_size or model.hidden_size // heads
        feed_forward = model.feed_forward_size or 4 * model.hidden_size
        return cls(
            hidden=model.hidden_size,
            heads=heads,
            kv_heads=model.num_kv_heads or heads,
            head=head,
            feed_forward=feed_forward,
            value_head=model.value_head_size or head,
            expert=model.expert_feed_forward_size or feed_forward,
        )
