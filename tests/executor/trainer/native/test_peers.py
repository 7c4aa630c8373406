"""Every sample reaches every rank of the next stage exactly once, and its gradient comes back where it came from."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from executor.trainer.native.peers import Peer, receivers, senders
from executor.training_job import TrainingJob
from executor.training_layout import Coordinates, StageLayout
from executor.training_options import Device, EngineName
from models.software import Software
from models.transformer import Transformer
from tests.executor.jobs import GPT, tiny_job

SPLIT = replace(GPT, software=Software.TORCH_EAGER)


def _job(*stages: tuple[int, tuple[int, ...]], model: Transformer = GPT) -> TrainingJob:
    layouts = tuple(StageLayout(num_layers=2, tp=tp, batches=batches) for tp, batches in stages)
    return tiny_job(model, stages=layouts, num_micro_batches=8 // sum(stages[0][1]), engine=EngineName.NATIVE)


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


def test_parts_of_sequences_go_where_they_are_needed() -> None:
    """Tokens 0 1 | 2 3 of every sample on ranks 0 and 1; 0 | 1 | 2 | 3 of samples 0 1 on ranks 2-5, of 2 3 behind."""
    job = _job((2, (4,)), (4, (2, 2)), model=SPLIT)
    assert receivers(job, Coordinates(0, 0, 0), 1, 4)[:4] == (
        *(Peer(2, 0, 1), Peer(2, 2, 3)),
        *(Peer(3, 1, 2), Peer(3, 3, 4)),
    )
    assert senders(job, Coordinates(1, 1, 3), 0, 4) == (Peer(1, 0, 1), Peer(1, 1, 2))
    alike = _job((2, (4,)), (2, (2, 2)), model=SPLIT)
    assert receivers(alike, Coordinates(0, 0, 1), 1, 4) == (Peer(3, 0, 4), Peer(5, 4, 8))


# Elements of a sample: as many as any group has ranks.
_SIZE = 4


@given(
    cuts=st.tuples(*(st.sets(st.integers(1, 7), max_size=3) for _ in range(2))),
    tp=st.tuples(*(2 * [st.sampled_from([1, 2, 4])])),
    model=st.sampled_from([GPT, SPLIT]),
)
@settings(max_examples=60, deadline=None)
def test_what_one_sends_another_receives(
    cuts: tuple[set[int], set[int]], tp: tuple[int, int], model: Transformer
) -> None:
    """Parts of sequences are compared by their place in whole ones."""
    bounds = [[0, *sorted(cut), 8] for cut in cuts]
    batches = [tuple(b - a for a, b in pairwise(bound)) for bound in bounds]
    job = _job((tp[0], batches[0]), (tp[1], batches[1]), model=model)
    pairs = []
    for source, target in ((0, 1), (1, 0)):
        sent: Counter[tuple[int, ...]] = Counter()
        received: Counter[tuple[int, ...]] = Counter()
        for rank in range(job.num_ranks):
            place = job.coordinates(rank)
            layout = job.stages[place.pipe]
            width = _SIZE // (layout.tp if model.splits_sequences else 1)
            sample, before = layout.interval(place.data)[0], place.tensor * width if width < _SIZE else 0

            def absolute(peer: Peer, *, width: int = width, sample: int = sample, before: int = before) -> list[int]:
                elements = range(peer.start, peer.end)
                return [_SIZE * (sample + e // width) + before + e % width for e in elements]

            if place.pipe == source:
                said = receivers(job, place, target, _SIZE)
                sent.update((rank, peer.rank, *absolute(peer)) for peer in said)
            else:
                heard = senders(job, place, source, _SIZE)
                received.update((peer.rank, rank, *absolute(peer)) for peer in heard)
                elements = [element for peer in heard for element in range(peer.start, peer.end)]
                assert sorted(elements) == list(range(width * layout.batches[place.data]))
        assert sent == received
        pairs.append({frozenset(key[:2]) for key in sent})
    # Whoever sends forward receives backward.
    assert pairs[0] == pairs[1]
