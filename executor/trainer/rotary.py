"""Rotary positions (Su et al. 2021), stretched as LLaMA 3.1 does."""

import math

import torch

from models.numerics import Numerics


def frequencies(numerics: Numerics, head: int, device: str) -> torch.Tensor:
    """Radians per position of every pair of a head's numbers, (head / 2,), fp32.

    With scaling, waves that fit into the original sequence fewer than `low_factor` times turn `factor` times slower,
    those that fit more than `high_factor` times stay, and between both the change is linear.
    """
    steps = torch.arange(0, head, 2, dtype=torch.float32, device=device)
    plain = numerics.rotary_base ** (-steps / head)
    scaling = numerics.rotary_scaling
    if scaling is None:
        return plain
    waves = scaling.original_length * plain / (2 * math.pi)
    kept = ((waves - scaling.low_factor) / (scaling.high_factor - scaling.low_factor)).clamp(0.0, 1.0)
    return plain * (kept + (1.0 - kept) / scaling.factor)


def rotate(values: torch.Tensor, frequencies: torch.Tensor, positions: torch.Tensor | None = None) -> torch.Tensor:
    """Turn halves of every head against each other, in fp32.

    Parameters
    ----------
    values
        (batch, sequence, heads, head size). The result lies so in memory, too, and what fused attention makes of it,
        whose heads are then joined where they are.
    frequencies
        (head size / 2,)
    positions
        Of the tokens, (batch, sequence); None: their places in the sequence.
    """
    if positions is None:
        places = torch.arange(values.shape[1], device=values.device, dtype=torch.float32)
        angles = torch.outer(places, frequencies)[:, None]
    else:
        angles = positions[:, :, None, None].float() * frequencies
    sine, cosine = angles.sin(), angles.cos()
    first, second = (half.float() for half in values.chunk(2, dim=-1))
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(values.dtype)
