"""Sizes of a transformer's parts, with what the user left out filled in: the one place that knows these defaults."""

from dataclasses import dataclass

from models.transformer import Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimensions:
    """Sizes that layers are built with and costs derived from.

    `head`: size of one head. `feed_forward`: inner size of the feed-forward part.
    """

    hidden: int
    heads: int
    kv_heads: int
    head: int
    feed_forward: int

    @classmethod
    def of(cls, model: Transformer) -> "Dimensions":
        """Fill in the defaults that `Transformer` documents."""
        heads = model.num_heads or max(1, model.hidden_size // 64)
        return cls(
            hidden=model.hidden_size,
            heads=heads,
            kv_heads=model.num_kv_heads or heads,
            head=model.head_size or model.hidden_size // heads,
            feed_forward=model.feed_forward_size or 4 * model.hidden_size,
        )
