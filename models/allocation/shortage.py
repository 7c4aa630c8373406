"""How many GPUs a job lacks beside a plan, on the configurations that it could run in."""

import numpy as np

from models.configurations import ConfigurationSet
from models.placement.placeability import takes_whole_nodes
from models.wording import counted
from stowplan.arrays import IntVector, Mask


def shortage(configurations: ConfigurationSet, among: Mask, missing: IntVector) -> tuple[dict[str, int], str]:
    """The smallest lack per GPU type, and what would help: the least of all.

    Parameters
    ----------
    among
        (C,) configurations in question, at least one.
    missing
        (C,) GPUs that each of them lacks.
    """
    counts: dict[str, int] = {"min_gpus": int(configurations.num_gpus[among].min())}
    for t, name in enumerate(configurations.gpu_types):
        of_type = among & (configurations.type_index == t)
        if of_type.any():
            counts[f"short_gpus.{name}"] = int(missing[of_type].min())
    candidates = np.flatnonzero(among)
    best = int(candidates[missing[candidates].argmin()])
    kind = configurations.gpu_types[configurations.type_index[best]]
    where = "as whole nodes" if takes_whole_nodes(configurations)[best] else "on one node"
    remedy = (
        f"{counted(int(missing[best]), 'more free GPU')} of type {kind}, {where}, would let it run as "
        f"{configurations.label(best)}"
    )
    return counts, remedy
