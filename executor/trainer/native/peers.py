"""Who exchanges which samples with whom: replicas of neighbouring stages whose intervals of a micro-batch overlap."""

from collections.abc import Iterator
from typing import NamedTuple

from executor.training_job import Coordinates, TrainingJob


class Peer(NamedTuple):
    """A rank of another stage, and the samples that both work on: rows `start` to `end` of one's own part."""

    rank: int
    start: int
    end: int


def senders(job: TrainingJob, place: Coordinates, pipe: int) -> tuple[Peer, ...]:
    """The ranks of stage `pipe` that a rank hears from: one for every replica that shares samples.

    All tensor ranks of a replica have the same values; tensor rank t hears from rank t modulo their degree.
    """
    degree = job.stages[pipe].tp
    return tuple(
        Peer(job.rank_of(Coordinates(pipe, replica, place.tensor % degree)), start, end)
        for replica, start, end in _overlaps(job, place, pipe)
    )


def receivers(job: TrainingJob, place: Coordinates, pipe: int) -> tuple[Peer, ...]:
    """The ranks of stage `pipe` that hear from a rank."""
    own = job.stages[place.pipe].tp
    return tuple(
        Peer(job.rank_of(Coordinates(pipe, replica, tensor)), start, end)
        for replica, start, end in _overlaps(job, place, pipe)
        for tensor in range(job.stages[pipe].tp)
        if tensor % own == place.tensor
    )


def _overlaps(job: TrainingJob, place: Coordinates, pipe: int) -> Iterator[tuple[int, int, int]]:
    """Replicas of stage `pipe`, each with the rows of one's own part that it works on, too."""
    start, end = job.stages[place.pipe].interval(place.data)
    for replica in range(job.stages[pipe].dp):
        first, last = job.stages[pipe].interval(replica)
        if max(start, first) < min(end, last):
            yield replica, max(start, first) - start, min(end, last) - start
