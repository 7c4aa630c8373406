"""What a transformer computes that changes neither its size nor its time: trainers must know it, planners need not."""

from dataclasses import dataclass
from enum import StrEnum

from stowplan.errors import InputError, Issue


class Activation(StrEnum):
    """Function of the feed-forward part; `gelu_tanh` is GELU by its approximation with tanh (GPT-2)."""

    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"


@dataclass(frozen=True, slots=True, kw_only=True)
class RotaryScaling:
    """How LLaMA 3.1 stretches rotary positions beyond the sequences of pre-training (`rope_type` llama3).

    Waves longer than `original_length` / `low_factor` tokens turn `factor` times slower, those shorter than
    `original_length` / `high_factor` as before, and those between by a mixture.
    """

    factor: float
    low_factor: float
    high_factor: float
    original_length: int

    def __post_init__(self) -> None:
        if min(self.factor, self.low_factor, self.original_length) <= 0 or self.high_factor <= self.low_factor:
            detail = (
                f"has factor {self.factor}, low_factor {self.low_factor}, high_factor {self.high_factor} and "
                f"original_length {self.original_length}; all must be above 0, and high_factor above low_factor"
            )
            raise InputError(
                "the scaling of rotary positions is none", [Issue(code="rotary_scaling", pointer="", detail=detail)]
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """Constants and functions of a transformer.

    `rotary_base`: the theta of rotary positions (Su et al. 2021). `norm_epsilon`: added to the variance in norms.
    `activation` None: SiLU in a gated feed-forward part, else GELU. `normalised_routing`: the weights of the experts
    that a token has chosen, probabilities among all of them, are made to add up to 1 (Mixtral: the softmax of their
    logits alone). `gated_shared_expert`: what the shared expert gives is multiplied by a sigmoid of the token (Qwen2).
    """

    rotary_base: float = 10_000.0
    rotary_scaling: RotaryScaling | None = None
    norm_epsilon: float = 1e-5
    activation: Activation | None = None
    normalised_routing: bool = True
    gated_shared_expert: bool = False

    def __post_init__(self) -> None:
        issues = [
            Issue(code="not_positive", pointer=f"/{name}", detail=f"is {getattr(self, name)}; must be above 0")
            for name in ("rotary_base", "norm_epsilon")
            if getattr(self, name) <= 0
        ]
        if issues:
            raise InputError("the constants of the model are none", issues)

    def activation_of(self, *, gated: bool) -> Activation:
        """The function of a feed-forward part."""
        return self.activation or (Activation.SILU if gated else Activation.GELU)
