"""Weights and communication volumes per GPU of a GPT-like model (Arnold appendix C).

    m      = gb / (mb dp)                                               (Eq. 11)
    DP     = h (V + s) + l/pp (4 h^2 + 2 h + F),   F = 8 h^2 + 7 h       (Eq. 12, dense)
    PP     = 2 mb s h                                                   (Eq. 13)

in elements: V vocabulary, s sequence length, h hidden size, l layers, mb micro-batch, gb global batch.

Readings that the paper leaves open:
- v_w, the weights of a GPU, is the same sum as Eq. 12: what a DP group exchanges is what its GPUs hold. Embedding
  and positions are not divided by pp, as printed: the volume of the stage that holds them.
- The printed formulas know no tensor parallelism. Per GPU, weights, gradients and boundary activations are all
  1/tp of them; the ratios r1 and r2 do not depend on it.
- MoE ("replace the number of parameters with MoE layers"): F becomes E (8 h^2 + 7 h) + E h, E copies of the
  feed-forward part and a router. Every data-parallel rank holds all experts (no expert parallelism).
"""

from dataclasses import dataclass

from models.transformer import Transformer
from models.workload import Parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Volumes:
    """v_w, v_d, v_p of section 5.1, per GPU in elements. v_p is per micro-batch and stage boundary."""

    weights: float
    dp: float
    pp: float

    def ratios(self, micro_batch: int) -> tuple[float, float]:
        """r1 = mb v_w / (v_d + v_p), computation to communication, and r2 = v_d / v_p (section 5.2).

        In elements: precision is a property of the GPU type, which is matched before the ratios are.
        """
        return micro_batch * self.weights / (self.dp + self.pp), self.dp / self.pp


def num_microbatches(transformer: Transformer, parallelism: Parallelism) -> float:
    """Micro-batches m of a step per replica (Eq. 11); no whole number when the batch does not divide evenly."""
    return transformer.global_batch / (transformer.micro_batch_or_one * parallelism.dp)


def communication_volumes(transformer: Transformer, parallelism: Parallelism) -> Volumes:
    """Volumes per GPU (Eqs. 12 and 13)."""
    h = transformer.hidden_size
    embedding = h * (transformer.vocabulary_size + transformer.sequence_length)
    layer = 4 * h**2 + 2 * h + _feed_forward(h, transformer.num_experts)
    stage = embedding + transformer.num_layers / parallelism.pp * layer
    activation = 2 * transformer.micro_batch_or_one * transformer.sequence_length * h
    return Volumes(
        weights=stage / parallelism.tp,
        dp=stage / parallelism.tp,
        pp=activation / parallelism.tp,
    )


def _feed_forward(h: int, num_experts: int) -> int:
    """Parameters of the feed-forward part of one layer, router included."""
    dense = 8 * h**2 + 7 * h
    return dense if num_experts == 1 else num_experts * dense + num_experts * h
