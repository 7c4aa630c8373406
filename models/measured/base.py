"""What readers of measurements give, and the time of settled iterations."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stowplan.errors import FileFormatError

# Iterations at the beginning that load, compile and allocate, and how many must be left to speak of a time.
WARM_UP = 3
LEAST = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Bandwidth of large messages. num_nodes: that took part, None where the text does not say; of one, it is of the
    links of a GPU, else of the network of a node. is_port: of one network port instead.

    saturation_bytes: the least message that reaches nine tenths of it.
    """

    bytes_per_s: float
    num_nodes: int | None
    saturation_bytes: float
    is_port: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Settled iterations of a training: their number and the median of their time, or of tokens/s of a GPU where that
    is what the log has. global_batch: of these iterations, None where it does not say.
    """

    num_iterations: int
    iteration_s: float | None = None
    tokens_per_s: float | None = None
    global_batch: int | None = None


Finding = Bandwidth | Training


def settled(values: Sequence[float], batches: Sequence[int | None]) -> tuple[float, int, int | None]:
    """Median, number, and global batch of the values behind the first ones; of several batches, of the usual one.

    Raises
    ------
    FileFormatError
        When too few are left, or one is not above 0.
    """
    behind = list(zip(values, batches, strict=True))[WARM_UP:]
    batch = Counter(size for _, size in behind).most_common(1)[0][0] if behind else None
    left = [value for value, size in behind if size == batch]
    if len(left) < LEAST:
        raise FileFormatError(
            f"has {len(left)} settled iterations behind the first {WARM_UP}; at least {LEAST} of one global batch are "
            "needed: train longer, or log more often"
        )
    if not (np.isfinite(left).all() and min(left) > 0):
        raise FileFormatError(f"has an iteration with {min(left)}; times and rates are above 0")
    return float(np.median(left)), len(left), batch
