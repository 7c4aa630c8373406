"""Shapes of configurations; shapes and times in words."""

from models.allocation.horizon.outlook import Outlook, Shape
from models.configurations import ConfigurationSet
from models.wording import counted

_S_PER_MINUTE = 60.0
_S_PER_HOUR = 3600.0


def shapes_of(configurations: ConfigurationSet) -> list[Shape]:
    """Of every configuration."""
    it = configurations
    types = [it.gpu_types[t] for t in it.type_index.tolist()]
    return [*zip(types, it.num_nodes.tolist(), it.num_gpus.tolist(), it.bandwidth_fraction.tolist(), strict=True)]


def gpus_of(shape: Shape, outlook: Outlook) -> str:
    """GPUs, and within what they lie."""
    gpu_type, num_nodes, num_gpus, share = shape
    gpus = counted(num_gpus, f"{gpu_type} GPU")
    if outlook.tiers is None or num_nodes == 1:
        return gpus
    tier = outlook.tiers.get((gpu_type, share))
    return f"{gpus} across the fabric" if tier is None else f"{gpus} within one {tier}"


def about(time_s: float) -> str:
    """A time, rounded."""
    if time_s < 2 * _S_PER_MINUTE:
        return f"{time_s:.0f} s"
    if time_s < 2 * _S_PER_HOUR:
        return f"{time_s / _S_PER_MINUTE:.0f} minutes"
    return f"{time_s / _S_PER_HOUR:.1f} h"
