from collections.abc import Callable

from stowplan.arrays import FloatArray, IntArray, Mask

_Arrays = tuple[IntArray | FloatArray | Mask, ...]
_Exposed = Callable[[bytes, bytes, bytes, bytes], tuple[FloatArray, FloatArray]]

SOURCE: str

def choices(
    tables: _Arrays,
    nodes: _Arrays,
    plans: _Arrays,
    num_expanded: int,
    num_folded: int,
    available: IntArray,
    most_stages: int,
    anew: bool,
    limits_s: FloatArray,
    best_s: float,
    within: float,
    exposed: _Exposed,
    /,
) -> list[tuple[int, int, float, bytes, bytes, bytes, bytes, bytes]]: ...
def time_s(
    tables: _Arrays, nodes: _Arrays, plans: _Arrays, layers: IntArray, batch: int, exposed: _Exposed, /
) -> float: ...
