"""Every sample reaches every rank of the next stage exactly once, and its gradient comes back where it came from."""

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from executor.trainer.native.peers import Peer, receivers, senders
from executor.training_job import Coordinates, Device, EngineName, StageLayout, TrainingJob
from tests.executor.jobs import GPT, tiny_job


def _job(*stages: tuple[int, tuple[int, ...]]) -> TrainingJob:
    layouts = tuple(StageLayout(num_layers=2, tp=tp, batches=batches) for tp, batches in stages)
    return tiny_job(GPT, stages=layouts, num_micro_batches=8 // sum(stages[0][1]), engine=EngineName.NATIVE)


def test_shares_of_three_and_one_meet_halves() -> None:
    """Samples 0 1 2 | 3 on ranks 0 and 1; 0 1 | 2 3 on ranks 2 and 3."""
    job = _job((1, (3, 1)), (1, (2, 2)))
    assert job.device is Device.CPU
    assert receivers(job, Coordinates(0, 0, 0), 1) == (Peer(2, 0, 2), Peer(3, 2, 3))
    assert receivers(job, Coordinates(0, 1, 0), 1) == (Peer(3, 0, 1),)
    assert senders(job, Coordinates(1, 1, 0), 0) == (Peer(0, 0, 1), Peer(1, 1, 2))


@given(
    cuts=st.tuples(*(st.sets(st.integers(1, 7), max_size=3) for _ in range(2))),
    tp=st.tuples(*(2 * [st.sampled_from([1, 2, 4])])),
)
@settings(max_examples=60, deadline=None)
def test_what_one_sends_another_receives(cuts: tuple[set[int], set[int]], tp: tuple[int, int]) -> None:
    bounds = [[0, *sorted(cut), 8] for cut in cuts]
    batches = [tuple(b - a for a, b in pairwise(bound)) for bound in bounds]
    job = _job((tp[0], batches[0]), (tp[1], batches[1]))
    for source, target in ((0, 1), (1, 0)):
        sent: Counter[tuple[int, ...]] = Counter()
        received: Counter[tuple[int, ...]] = Counter()
        for rank in range(job.num_ranks):
            place = job.coordinates(rank)
            start = job.stages[place.pipe].interval(place.data)[0]
            if place.pipe == source:
                sent.update(
                    (rank, peer.rank, start + peer.start, start + peer.end) for peer in receivers(job, place, target)
                )
            else:
                heard = senders(job, place, source)
                received.update((peer.rank, rank, start + peer.start, start + peer.end) for peer in heard)
                rows = [row for peer in heard for row in range(peer.start, peer.end)]
                assert sorted(rows) == list(range(job.stages[target].batches[place.data]))
        assert sent == received
