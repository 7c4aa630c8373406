"""Constants of models: what is none is refused."""

from typing import Any

import pytest

from models.numerics import Activation, Numerics, RotaryScaling
from stowplan.errors import InputError


def test_activation_follows_the_gate_where_none_is_given() -> None:
    assert Numerics().activation_of(gated=True) is Activation.SILU
    assert Numerics().activation_of(gated=False) is Activation.GELU
    assert Numerics(activation=Activation.GELU_TANH).activation_of(gated=True) is Activation.GELU_TANH


@pytest.mark.parametrize("name", ["rotary_base", "norm_epsilon"])
def test_constants_are_above_zero(name: str) -> None:
    values: dict[str, Any] = {name: 0.0}
    with pytest.raises(InputError) as refused:
        Numerics(**values)
    assert [issue.pointer for issue in refused.value.issues] == [f"/{name}"]


@pytest.mark.parametrize("changes", [{"factor": 0.0}, {"high_factor": 1.0}, {"original_length": 0}])
def test_scaling_has_waves_between_the_factors(changes: dict[str, Any]) -> None:
    values: dict[str, Any] = {"factor": 8.0, "low_factor": 1.0, "high_factor": 4.0, "original_length": 8192}
    RotaryScaling(**values)
    with pytest.raises(InputError, match="high_factor above low_factor"):
        RotaryScaling(**(values | changes))
