"""Configurations: bundles (nodes, GPUs, GPU type) that a job can be given (Sia section 3.3)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntVector = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfigurationSet:
    """C configurations over T GPU types, as dense arrays.

    gpu_types: the T names; type_index, num_nodes, num_gpus: int64 (C,). Ordered by type, then GPUs.
    """

    gpu_types: tuple[str, ...]
    type_index: IntVector
    num_nodes: IntVector
    num_gpus: IntVector

    def __len__(self) -> int:
        return int(self.type_index.size)

    def label(self, c: int) -> str:
        """Configuration `c` in the paper's notation: `(nodes,gpus,type)`."""
        return f"({self.num_nodes[c]},{self.num_gpus[c]},{self.gpu_types[self.type_index[c]]})"
