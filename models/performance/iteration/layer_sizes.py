"""Sizes of the layers of a transformer, by their kind; symbols as in `architecture`."""

from dataclasses import dataclass, replace

from models.dimensions import Dimensions
from models.transformer import Normalisation, Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSizes:
    """Sizes of one kind of layer; `q`, `v`, `f` and `e` as in `architecture`.

    `out`: what attention gives, heads x size of a value. `attended`: tokens that one attends to. `shared`: inner size
    of the shared expert, 0 without one.
    """

    heads: int
    kv_heads: int
    q: int
    v: int
    out: int
    attended: int
    f: int
    shared: int
    matrices: int
    e: int
    norm: int

    @classmethod
    def of(cls, model: Transformer) -> "LayerSizes":
        """Of dense layers whose attention reaches all tokens."""
        sizes = Dimensions.of(model)
        return cls(
            heads=sizes.heads,
            kv_heads=sizes.kv_heads,
            q=sizes.heads * sizes.head,
            v=sizes.kv_heads * (sizes.head + sizes.value_head),
            out=sizes.heads * sizes.value_head,
            attended=model.sequence_length,
            f=sizes.feed_forward,
            shared=0,
            matrices=3 if model.gated else 2,
            e=model.precision.number_bytes,
            norm=model.hidden_size * (2 if model.normalisation is Normalisation.LAYERNORM else 1),
        )


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Whether a layer has experts, and whether its attention ends at the window."""

    experts: bool
    windowed: bool

    @classmethod
    def of(cls, model: Transformer, k: int) -> "LayerKind":
        """Kind of layer k: experts and attention to all tokens in the last of every so many layers, as GShard and
        Gemma alternate."""
        wide = model.global_attention_interval
        return cls(
            experts=model.num_experts > 1 and k >= model.first_dense_layers and (k + 1) % model.expert_interval == 0,
            windowed=model.attention_window is not None and (wide is None or (k + 1) % wide != 0),
        )


def sizes_in(model: Transformer, sizes: LayerSizes, kind: LayerKind) -> LayerSizes:
    """Sizes of a layer of this kind."""
    if kind.windowed:
        sizes = replace(sizes, attended=min(sizes.attended, model.attention_window or sizes.attended))
    if kind.experts:
        sizes = replace(sizes, f=Dimensions.of(model).expert, shared=model.shared_expert_size or 0)
    return sizes
