"""Who exchanges which samples with whom: replicas of neighbouring stages whose intervals of a micro-batch overlap.

All tensor ranks of a replica have the same values. Tensor ranks t and u of two stages are connected where they are
equal modulo the smaller of both degrees: a rank of the larger group hears all from one rank, a rank of the smaller one
a slice from each of several. So whoever sends forward receives backward, which NCCL needs: torch's schedules send over
another communicator where a rank of a pair has both to do than where it has only one.

Where tensor ranks have parts of the sequences, they are connected where these overlap, too, and nothing is sent twice.
"""

from collections.abc import Iterator
from typing import NamedTuple

from executor.training_job import TrainingJob
from executor.training_layout import Coordinates


class Peer(NamedTuple):
    """A rank of another stage, and what passes between both: elements `start` to `end` of one's own part."""

    rank: int
    start: int
    end: int


def senders(job: TrainingJob, place: Coordinates, pipe: int, sample_size: int) -> tuple[Peer, ...]:
    """The ranks of stage `pipe` that a rank hears from; `sample_size`: elements of one sample, of all its tokens."""
    if job.model.splits_sequences:
        return tuple(_partners(job, place, pipe, sample_size))
    connected = _connected(place.tensor, job.stages[place.pipe].tp, job.stages[pipe].tp)
    return tuple(
        Peer(job.rank_of(Coordinates(pipe, replica, tensor)), *_slice(start, end, k, len(connected), sample_size))
        for replica, start, end in _overlaps(job, place, pipe)
        for k, tensor in enumerate(connected)
    )


def receivers(job: TrainingJob, place: Coordinates, pipe: int, sample_size: int) -> tuple[Peer, ...]:
    """The ranks of stage `pipe` that hear from a rank; likewise."""
    if job.model.splits_sequences:
        return tuple(_partners(job, place, pipe, sample_size))
    own, others = job.stages[place.pipe].tp, job.stages[pipe].tp
    found = []
    for replica, start, end in _overlaps(job, place, pipe):
        for tensor in _connected(place.tensor, own, others):
            heard = _connected(tensor, others, own)
            part = _slice(start, end, heard.index(place.tensor), len(heard), sample_size)
            found.append(Peer(job.rank_of(Coordinates(pipe, replica, tensor)), *part))
    return tuple(found)


def _partners(job: TrainingJob, place: Coordinates, pipe: int, sample_size: int) -> Iterator[Peer]:
    """The ranks of stage `pipe` whose parts of sequences overlap with those of a rank, sample by sample; all samples at
    once where both have the same parts.
    """
    own, others = job.stages[place.pipe].tp, job.stages[pipe].tp
    size = sample_size // own
    for replica, start, end in _overlaps(job, place, pipe):
        for tensor in range(others):
            first = max(place.tensor * size, tensor * sample_size // others)
            last = min((place.tensor + 1) * size, (tensor + 1) * sample_size // others)
            rank = job.rank_of(Coordinates(pipe, replica, tensor))
            if own == others and first < last:
                yield Peer(rank, start * size, end * size)
            elif first < last:
                before = first - place.tensor * size
                for sample in range(start, end):
                    yield Peer(rank, sample * size + before, sample * size + before + last - first)


def _connected(tensor: int, own: int, others: int) -> list[int]:
    """Tensor ranks of another group, of `others` ranks, that rank `tensor` of `own` is connected with."""
    smaller = min(own, others)
    return [other for other in range(others) if other % smaller == tensor % smaller]


def _slice(start: int, end: int, index: int, count: int, sample_size: int) -> tuple[int, int]:
    """Elements of slice `index` of `count` of the samples `start` to `end`."""
    first, size = start * sample_size, (end - start) * sample_size
    return first + size * index // count, first + size * (index + 1) // count


def _overlaps(job: TrainingJob, place: Coordinates, pipe: int) -> Iterator[tuple[int, int, int]]:
    """Replicas of stage `pipe`, each with the samples of one's own part that it works on, too."""
    start, end = job.stages[place.pipe].interval(place.data)
    for replica in range(job.stages[pipe].dp):
        first, last = job.stages[pipe].interval(replica)
        if max(start, first) < min(end, last):
            yield replica, max(start, first) - start, min(end, last) - start
