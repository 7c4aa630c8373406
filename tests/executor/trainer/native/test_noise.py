"""Squared norms of gradients are brought to one batch, whatever the shares of replicas."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.trainer.native.noise import noise_squares
from executor.training_job import TrainingJob
from executor.training_layout import StageLayout
from executor.training_options import EngineName
from tests.executor.jobs import GPT, tiny_job


def _job(*shares: tuple[int, ...]) -> TrainingJob:
    stages = tuple(StageLayout(num_layers=2, tp=1, batches=batches) for batches in shares)
    return tiny_job(GPT, stages=stages, num_micro_batches=8 // sum(shares[0]), engine=EngineName.NATIVE)


@given(
    first=st.sampled_from([(2, 2), (3, 1), (1, 3), (2, 1, 1)]),
    second=st.sampled_from([(2, 2), (1, 1, 1, 1), (1, 2, 1)]),
    signal=st.floats(0, 10),
    noise=st.floats(0, 10),
    apart=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_what_follows_the_law_is_found_at_the_common_batch(
    first: tuple[int, ...], second: tuple[int, ...], signal: float, noise: float, apart: bool
) -> None:
    """Of both stages the squared norm over b sequences is signal + noise / b, whether the gradients of micro-batches
    are seen apart or summed."""
    job = _job(first, second)
    small = large = 0.0
    for rank in range(job.num_ranks):
        place = job.coordinates(rank)
        layout = job.stages[place.pipe]
        parts = job.num_micro_batches if apart else 1
        own = layout.batches[place.data] * job.num_micro_batches // parts
        # The rank's gradient is a part of the mean over the batch; of the sum it has as much as each other replica.
        alone = parts * (signal + noise / own) * (own / job.global_batch) ** 2
        found = noise_squares(job, place, alone, (signal + noise / job.global_batch) / layout.dp, parts)
        small, large = small + found[0], large + found[1]
    assert small == pytest.approx(2 * (signal + noise / job.small_batch))
    assert large == pytest.approx(2 * (signal + noise / job.global_batch))


def test_one_replica_in_a_stage_says_nothing() -> None:
    job = _job((2, 2), (4,))
    assert job.small_batch == job.global_batch
    assert noise_squares(job, job.coordinates(0), 3.0, 2.0) == (2.0, 2.0)
