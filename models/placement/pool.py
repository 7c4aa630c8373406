"""Free GPUs of the nodes of one type, with the placeability rows kept up to date while jobs are placed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    now: Slices
    stays: bool


class Pool:
    """Free GPUs per node (`free`: node -> mask) against the demands that are not placed yet.

    The sums of the placeability rows (see `models.placement.placeability`) are kept per block size 2^k < R.
    """

    def __init__(
        self, *, node_size: int, sizes: Mapping[int, int], free: Mapping[int, int], demands: Iterable[Demand]
    ) -> None:
        self.node_size = node_size
        self.blocks = tuple(1 << k for k in range((node_size - 1).bit_length()))
        self._sizes = sizes
        self.free: dict[int, int] = {}
        self._available = [0] * len(self.blocks)
        self._whole_available = 0
        self._needed = [0] * len(self.blocks)
        self._whole_needed = 0
        for node, mask in free.items():
            self._set(node, mask)
        for demand in demands:
            self._need(demand, 1)

    def take(self, demand: Demand, slices: Slices) -> None:
        """Place the demand on these GPUs."""
        for node, mask in slices:
            self._set(node, self.free[node] & ~mask)
        self._need(demand, -1)

    def give_back(self, demand: Demand, slices: Slices) -> None:
        """Undo `take`."""
        for node, mask in slices:
            self._set(node, self.free[node] | mask)
        self._need(demand, 1)

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
        return self._whole_needed <= self._whole_available and all(
            needed <= available for needed, available in zip(self._needed, self._available, strict=True)
        )

    def shortages(self) -> tuple[int, ...]:
        """Needed minus available GPUs per block size, then needed minus available whole nodes."""
        blocks = (needed - available for needed, available in zip(self._needed, self._available, strict=True))
        return (*blocks, self._whole_needed - self._whole_available)

    def is_whole(self, node: int) -> bool:
        """Whether a whole-node configuration may take the node."""
        return self._sizes[node] == self.node_size and self.free[node].bit_count() == self.node_size

    def _set(self, node: int, mask: int) -> None:
        if node in self.free:
            self._count(node, -1)
        self.free[node] = mask
        self._count(node, 1)

    def _count(self, node: int, sign: int) -> None:
        num_free = self.free[node].bit_count()
        for k, block in enumerate(self.blocks):
            self._available[k] += sign * (num_free // block * block)
        if self.is_whole(node):
            self._whole_available += sign

    def _need(self, demand: Demand, sign: int) -> None:
        for k, block in enumerate(self.blocks):
            if demand.whole:
                self._needed[k] += sign * demand.num_nodes * (self.node_size // block * block)
            elif demand.num_gpus >= block:
                self._needed[k] += sign * demand.num_gpus
        if demand.whole:
            self._whole_needed += sign * demand.num_nodes
