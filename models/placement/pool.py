"""Free GPUs of the nodes of one type, with the placeability rows kept up to date while jobs are placed."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul

from models.placement.occupancy import Slices


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One chosen configuration to be placed.

    now: where the job runs, on nodes of this type that still take work. stays: it may keep exactly these GPUs.
    """

    job_id: str
    num_nodes: int
    num_gpus: int
    whole: bool
    now: Slices = ()
    stays: bool = False


@lru_cache
def _in_blocks(most: int, blocks: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(num_free // block * block for num_free in range(most + 1)) for block in blocks)


class Pool:
    """Free GPUs per node (`free`: node -> mask) against the demands that are not placed yet.

    Nodes are counted by their free GPUs and demands by their size, from which the sums of the placeability rows (see
    `models.placement.placeability`) follow for every block size 2^k < R.
    """

    def __init__(
        self, *, node_size: int, sizes: Mapping[int, int], free: Mapping[int, int], demands: Iterable[Demand]
    ) -> None:
        self.node_size = node_size
        self.blocks = tuple(1 << k for k in range((node_size - 1).bit_length()))
        self._sizes = sizes
        # Of each size of blocks, and of each number of free GPUs of a node, how many are in blocks.
        self._in_blocks = _in_blocks(max(sizes.values(), default=0), self.blocks)
        self.free = dict(free)
        self._count_all()
        self._partial_gpus = [0] * len(self.blocks)
        self._whole_needed = 0
        self._need(demands, 1)

    def take(self, demand: Demand, slices: Slices) -> None:
        """Place the demand on these GPUs."""
        for node, mask in slices:
            self._set(node, self.free[node] & ~mask)
        self._need((demand,), -1)

    def take_own(self, demands: Sequence[Demand]) -> None:
        """Place demands where they are; many at once."""
        free = self.free
        for demand in demands:
            for node, mask in demand.now:
                free[node] &= ~mask
        self._need(demands, -1)
        self._count_all()

    def hand_out(self, slices: Slices) -> Slices:
        """Take these GPUs, which are returned. Nothing is counted: `fits` and `shortages` do not hold afterwards."""
        for node, mask in slices:
            self.free[node] &= ~mask
        return slices

    def give_back(self, demand: Demand, slices: Slices) -> None:
        """Undo `take`."""
        for node, mask in slices:
            self._set(node, self.free[node] | mask)
        self._need((demand,), 1)

    def try_take(self, demand: Demand, slices: Slices) -> bool:
        """Place the demand on these GPUs if they are free and everything else still fits afterwards."""
        if any(mask & ~self.free[node] for node, mask in slices):
            return False
        self.take(demand, slices)
        if self.fits():
            return True
        self.give_back(demand, slices)
        return False

    def fits(self) -> bool:
        """Whether all demands that are left can be placed."""
        return max(self.shortages()) <= 0

    def shortages(self) -> tuple[int, ...]:
        """Needed minus available GPUs per block size, then needed minus available whole nodes."""
        needed = [
            sum(self._partial_gpus[k:]) + self._whole_needed * (self.node_size // block * block)
            for k, block in enumerate(self.blocks)
        ]
        available = [sum(map(mul, in_blocks, self._num_nodes_with)) for in_blocks in self._in_blocks]
        blocks = (need - have for need, have in zip(needed, available, strict=True))
        return (*blocks, self._whole_needed - self._whole_available)

    def size_of(self, node: int) -> int:
        """GPUs of a node."""
        return self._sizes[node]

    def is_whole(self, node: int) -> bool:
        """Whether a whole-node configuration may take the node."""
        return self._sizes[node] == self.node_size and self.free[node].bit_count() == self.node_size

    def _set(self, node: int, mask: int) -> None:
        self._count(node, -1)
        self.free[node] = mask
        self._count(node, 1)

    def _count(self, node: int, sign: int) -> None:
        num_free = self.free[node].bit_count()
        self._num_nodes_with[num_free] += sign
        if num_free == self.node_size == self._sizes[node]:
            self._whole_available += sign

    def _count_all(self) -> None:
        self._num_nodes_with = [0] * (1 + max(self._sizes.values(), default=0))
        self._whole_available = 0
        alike = Counter(zip(map(int.bit_count, self.free.values()), self._sizes.values(), strict=True))
        for (num_free, size), num_nodes in alike.items():
            self._num_nodes_with[num_free] += num_nodes
            if num_free == self.node_size == size:
                self._whole_available += num_nodes

    def _need(self, demands: Iterable[Demand], sign: int) -> None:
        partial = self._partial_gpus
        for demand in demands:
            if demand.whole:
                self._whole_needed += sign * demand.num_nodes
            else:
                # Under the largest block that is not above its size.
                partial[demand.num_gpus.bit_length() - 1] += sign * demand.num_gpus
