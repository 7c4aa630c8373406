"""Selective recomputation: of a tensor that costs little, how it is computed is kept in place of the tensor.

What matrix products and attention give is kept, of norms, rotations and activation functions the inputs; what these
give is computed again where the backward pass asks for it. `torch.utils.checkpoint` with a policy would do the same,
but goes through the forward pass of a whole layer for it, with its collectives and the choice of experts, and keeps
outputs of products that nobody asks for.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch


class Again:
    """Computes a tensor once more, for the first who asks for it in a backward pass, and forgets it behind the last.

    Parameters
    ----------
    make
        Gives the same numbers in the same order of memory; called without recording gradients. What it refers to is
        kept, so that it must be what others keep anyway, detached.
    """

    def __init__(self, make: Callable[[], torch.Tensor]) -> None:
        self._make = make
        self._made: torch.Tensor | None = None
        self._num_users = self._num_served = 0

    def promised(self) -> "Again":
        """The same, with one more who will ask in every backward pass."""
        self._num_users += 1
        return self

    def __call__(self) -> torch.Tensor:
        """The tensor."""
        made = self._made
        if made is None:
            with torch.no_grad():
                made = self._made = self._make()
        self._num_served += 1
        if self._num_served % self._num_users == 0:
            self._made = None
        return made

    def then(self, function: Callable[[torch.Tensor], torch.Tensor]) -> "Again":
        """What a function makes of it."""
        given = self.promised()
        return Again(lambda: function(given()))


class _Place(NamedTuple):
    """Where in a tensor that is computed again another one lies."""

    again: Again
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


@contextmanager
def recomputed(*tensors: tuple[torch.Tensor, Again | None]) -> Iterator[None]:
    """Of each of the tensors, and of views of it, what is computed within keeps for the backward pass how to compute it
    again; without that, None, it stays. Of several such contexts within one another the innermost alone is in force.
    """
    known = {tensor.untyped_storage()._cdata: again for tensor, again in tensors if again is not None}
    if not known or not torch.is_grad_enabled():
        yield
        return

    def pack(saved: torch.Tensor) -> torch.Tensor | _Place:
        again = known.get(saved.untyped_storage()._cdata)
        if again is None:
            return saved
        return _Place(again.promised(), saved.size(), saved.stride(), saved.storage_offset())

    with torch.autograd.graph.saved_tensors_hooks(pack, _unpack):
        yield


def _unpack(kept: torch.Tensor | _Place) -> torch.Tensor:
    if isinstance(kept, torch.Tensor):
        return kept
    return kept.again().as_strided(kept.size, kept.stride, kept.offset)
