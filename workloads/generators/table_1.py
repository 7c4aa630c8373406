"""The models of Suika's Table 1 with their default plans, and how they are trained here."""

from collections.abc import Mapping
from math import prod
from types import MappingProxyType

# Pipeline, data, tensor.
Degrees = tuple[int, int, int]
TABLE_1: Mapping[str, Mapping[str, Degrees]] = MappingProxyType(
    {
        "S": {
            "gpt2-350m": (1, 1, 1),
            "gpt2-1.3b": (1, 4, 1),
            "gpt2-2.6b": (1, 4, 1),
            "qwen2-0.5b": (1, 1, 1),
            "qwen2-1.5b": (1, 4, 1),
        },
        "M": {"gpt2-6.7b": (1, 4, 2), "llama2-7b": (1, 4, 2), "qwen2-7b": (1, 4, 2)},
        "L": {"gpt2-15b": (1, 4, 4), "llama2-13b": (1, 4, 4)},
        "XL": {
            "gpt2-39b": (2, 4, 4),
            "llama-30b": (2, 4, 4),
            "gpt2-76b": (2, 4, 8),
            "llama-65b": (2, 4, 8),
            "qwen2-72b": (2, 4, 8),
            "llama2-70b": (3, 8, 8),
            "gpt2-175b": (4, 8, 8),
        },
    }
)
# The paper does not state them.
GLOBAL_BATCH: Mapping[str, int] = MappingProxyType({"S": 256, "M": 512, "L": 512, "XL": 1024})


def basic_demand(degrees: Degrees) -> int:
    """GPUs of a plan."""
    return prod(degrees)
