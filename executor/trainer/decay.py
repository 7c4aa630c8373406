"""Which parameters decay: matrices, not norms and biases, whose scale no other parameter makes up for."""

from typing import Any

from torch import nn


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Trainable parameters in groups of an optimiser, those that decay first; no group is empty."""
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    decaying = [parameter for parameter in trained if decays(parameter)]
    others = [parameter for parameter in trained if not decays(parameter)]
    groups = [{"params": decaying, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def decays(parameter: nn.Parameter) -> bool:
    """Whether weight decay applies."""
    return parameter.dim() > 1
