"""Parameters that two stages share: both sum their gradients, each rank those elements whose optimiser state it has.

The stages may have other degrees, so that their ranks have other intervals of the parameter; ranks whose intervals
overlap exchange the overlap. a + b is b + a to the last bit, so that both stages apply the same update.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from executor.trainer.native.flat import Entry, FlatParameters
from executor.training_layout import Coordinates
from stowplan.errors import InputError


class _Held(NamedTuple):
    """Elements `start` to `end` of a whole tied parameter, whose optimiser state a rank of stage `pipe` has."""

    name: str
    pipe: int
    start: int
    end: int


class Ties:
    """Collective over all ranks; only where a model has ties.

    Parameters
    ----------
    place
        Of this rank, one of `tensor_degree`.

    Raises
    ------
    InputError
        When tensor ranks hold a tied parameter whole, or share it along another axis than the first.
    """

    def __init__(self, flats: Sequence[FlatParameters], place: Coordinates, tensor_degree: int) -> None:
        own = {}
        tied = [(flat, *held) for flat in flats for held in flat.held() if held[0].is_tied]
        for flat, entry, start, end in tied:
            _refuse_unsplit(entry, tensor_degree)
            offset = place.tensor * entry.size
            held = _Held(entry.name, place.pipe, offset + start, offset + end)
            before = entry.start - flat.shard.start
            own[held] = flat.summed[before + start : before + end]
        everybody: list[list[_Held]] = [[]] * dist.get_world_size()
        dist.all_gather_object(everybody, sorted(own))
        self._parts = [
            (rank, own[mine][max(mine.start, other.start) - mine.start : min(mine.end, other.end) - mine.start])
            for mine in sorted(own)
            for rank, held in enumerate(everybody)
            for other in held
            if other.name == mine.name and other.pipe != mine.pipe
            if max(mine.start, other.start) < min(mine.end, other.end)
        ]

    def sum_gradients(self) -> None:
        """Add what the other stage has."""
        received = [torch.empty_like(part) for _, part in self._parts]
        operations = [dist.P2POp(dist.isend, part, rank) for rank, part in self._parts]
        operations += [
            dist.P2POp(dist.irecv, into, rank) for into, (rank, _) in zip(received, self._parts, strict=True)
        ]
        for work in dist.batch_isend_irecv(operations) if operations else ():
            work.wait()
        for into, (_, part) in zip(received, self._parts, strict=True):
            part += into


def _refuse_unsplit(entry: Entry, tensor_degree: int) -> None:
    if tensor_degree > 1 and entry.axis != 0:
        raise InputError(f"{entry.name} is in two stages; tensor ranks must share it along its first axis")
