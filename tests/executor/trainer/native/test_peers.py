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
    assert receivers(job, Coordinates(0, 0, 0), 1, 1) == (Peer(2, 0, 2), Peer(3, 2, 3))
    assert receivers(job, Coordinates(0, 1, 0), 1, 1) == (Peer(3, 0, 1),)
    assert senders(job, Coordinates(1, 1, 0), 0, 10) == (Peer(0, 0, 10), Peer(1, 10, 20))


def test_one_rank_hears_a_slice_from_each_of_two_that_hear_all_from_it() -> None:
    job = _job((1, (4,)), (2, (4,)))
    assert receivers(job, Coordinates(0, 0, 0), 1, 1) == (Peer(1, 0, 4), Peer(2, 0, 4))
    assert senders(job, Coordinates(0, 0, 0), 1, 1) == (Peer(1, 0, 2), Peer(2, 2, 4))
    assert receivers(job, Coordinates(1, 0, 1), 0, 1) == (Peer(0, 2, 4),)


# Elements of a sample: as many as any group has ranks.
_SIZE = 4


@given(
    cuts=st.tuples(*(st.sets(st.integers(1, 7), max_size=3) for _ in range(2))),
    tp=st.tuples(*(2 * [st.sampled_from([1, 2, 4])])),
)
@settings(max_examples=60, deadline=None)
def test_what_one_sends_another_receives(cuts: tuple[set[int], set[int]], tp: tuple[int, int]) -> None:
    bounds = [[0, *sorted(cut), 8] for cut in cuts]
    batches = [tuple(b - a for a, b in pairwise(bound)) for bound in bounds]
    job = _job((tp[0], batches[0]), (tp[1], batches[1]))
    pairs = []
    for source, target in ((0, 1), (1, 0)):
        sent: Counter[tuple[int, ...]] = Counter()
        received: Counter[tuple[int, ...]] = Counter()
        for rank in range(job.num_ranks):
            place = job.coordinates(rank)
            first = _SIZE * job.stages[place.pipe].interval(place.data)[0]
            if place.pipe == source:
                said = receivers(job, place, target, _SIZE)
                sent.update((rank, peer.rank, first + peer.start, first + peer.end) for peer in said)
            else:
                heard = senders(job, place, source, _SIZE)
                received.update((peer.rank, rank, first + peer.start, first + peer.end) for peer in heard)
                elements = [element for peer in heard for element in range(peer.start, peer.end)]
                assert sorted(elements) == list(range(_SIZE * job.stages[target].batches[place.data]))
        assert sent == received
        pairs.append({frozenset(key[:2]) for key in sent})
    # Whoever sends forward receives backward.
    assert pairs[0] == pairs[1]
