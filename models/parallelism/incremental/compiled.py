"""What a prefix brings, compiled (`cpp/`), where that was built.

Most questions are small: NumPy works on some 15 candidates at a time, so that its calls are what takes time. Compiled,
the candidates of a prefix, what they cost, and the choice among them are one call, for nodes of one kind and equal
layers. The choice is the same, bit for bit. For other jobs, and where no compiler was there at the installation or
the sources have changed since, `search` has all of it in NumPy.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np

from models.parallelism.incremental.candidates import Skeleton
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.selection import Balanced, Best
from models.parallelism.incremental.tables import CostTables
from models.performance.iteration.formulas import exposed_reduction_s, scaling
from stowplan.arrays import FloatArray, IntArray, Mask


def _loaded() -> ModuleType | None:
    """The module; None where it was not built, or not from the sources that are here now."""
    try:
        from models.parallelism.incremental import compiled_search
    except ImportError:
        return None
    sources = sorted(Path(__file__).with_name("cpp").glob("*.[ch]pp"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    return compiled_search if digest == compiled_search.SOURCE else None


core = _loaded()


class CompiledSearch:
    """Choices for one job on one landscape."""

    def __init__(self, built: ModuleType, tables: CostTables, landscape: Landscape) -> None:
        self._core = built
        self._tables = tables.packed
        self._nodes = _packed_nodes(landscape)
        self._num_nodes = len(landscape.nodes)
        self._scale_loss = tables.model.coefficients.scale_loss

    @classmethod
    def of(cls, tables: CostTables, landscape: Landscape) -> "CompiledSearch | None":
        """None where there is no compiled form."""
        if core is None or len(tables.kinds) > 1 or not tables.units.equal:
            return None
        return cls(core, tables, landscape)

    def improve(
        self,
        best: Best,
        expanded: Sequence[Skeleton],
        folded: Sequence[Skeleton],
        others: Sequence[Skeleton],
        available: IntArray,
        most_stages: int,
        *,
        anew: bool,
    ) -> list[Balanced]:
        """Take expansions and growths of some skeletons, foldings of some, and others as they are, that are better than
        what is known; those that were taken and are still there. See `candidates.expansions`, `growth`, `folding` and
        `selection.improve`."""
        chosen = self._core.choices(
            self._tables,
            self._nodes,
            _packed_plans([*expanded, *folded, *others]),
            len(expanded),
            len(folded),
            available,
            most_stages,
            anew,
            best.limits_s,
            best.time_s,
            best.within,
            self._exposed,
        )
        known: dict[int, Skeleton] = {}
        taken = []
        for candidate, batch, time_s, layers, *stages in chosen:
            if candidate not in known:
                known[candidate] = _skeleton(self._num_nodes, *stages)
            counts = tuple(np.frombuffer(layers, dtype=np.int64).tolist())
            taken.append(Balanced(skeleton=known[candidate], layers=counts, batch=batch, time_s=time_s))
            best.add(taken[-1])
        return best.those_of(taken)

    def time_s(self, plan: Balanced) -> float:
        """Iteration time in seconds as `PerformanceModel.iteration` has it, but for rounding."""
        plans, layers = _packed_plans([plan.skeleton]), np.array(plan.layers)
        return float(self._core.time_s(self._tables, self._nodes, plans, layers, plan.batch, self._exposed))

    def _exposed(
        self, hiding: bytes, reduction: bytes, overlap: bytes, num_gpus: bytes
    ) -> tuple[FloatArray, FloatArray]:
        """Exposed part of the reductions of some stages, and what grows with the GPUs of some plans."""
        exposed = exposed_reduction_s(*(np.frombuffer(part) for part in (hiding, reduction, overlap)))
        return exposed, scaling(np.frombuffer(num_gpus), self._scale_loss)


def _skeleton(num_nodes: int, gpus: bytes, degree: bytes, origin: bytes, repeats: bytes) -> Skeleton:
    return Skeleton(
        gpus=np.frombuffer(gpus, dtype=np.int64).reshape(-1, num_nodes),
        degree=np.frombuffer(degree, dtype=np.int64),
        origin=tuple(stage if stage >= 0 else None for stage in np.frombuffer(origin, dtype=np.int64).tolist()),
        repeats=np.frombuffer(repeats, dtype=np.bool_),
    )


def _packed_plans(skeletons: Sequence[Skeleton]) -> tuple[IntArray | Mask, ...]:
    """What `Skeletons` of the sources reads."""
    origins = [-1 if stage is None else stage for skeleton in skeletons for stage in skeleton.origin]
    return (
        np.concatenate([skeleton.gpus for skeleton in skeletons]),
        np.concatenate([skeleton.degree for skeleton in skeletons]),
        np.array(origins),
        np.concatenate([skeleton.repeats for skeleton in skeletons]),
        np.array([skeleton.num_stages for skeleton in skeletons]),
    )


def _packed_nodes(landscape: Landscape) -> tuple[IntArray | FloatArray, ...]:
    """What `Landscape` of the sources reads."""
    units = [below.argmax(axis=1) for below in landscape.below]
    return (
        landscape.intra_bytes_per_s,
        landscape.inter_bytes_per_s,
        np.array(landscape.fractions),
        np.array(landscape.send_fractions),
        np.array(units, dtype=np.int64),
    )
