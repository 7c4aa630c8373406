"""Batches that are read ahead are those that are asked for."""

import pytest
import torch

from executor.token_stream import TokenStream, micro_batch, open_stream
from executor.trainer.reading import Reading
from stowplan.arrays import IntArray, Mask
from stowplan.errors import InputError
from tests.executor.jobs import tiny_job

pytestmark = [pytest.mark.slow, pytest.mark.training]


def test_any_step_may_follow_any_other() -> None:
    job = tiny_job(dp=2)
    stream = open_stream(job)
    reading = Reading(stream, job, rank=1)
    for step in (0, 1, 5, 6, 5):
        batches = reading.batches(8 * step).pairs
        assert len(batches) == job.num_micro_batches
        for index, (inputs, labels) in enumerate(batches):
            expected = torch.from_numpy(micro_batch(stream, job, first=8 * step, index=index, data=1))
            assert torch.equal(inputs, expected[:, :-1])
            assert torch.equal(labels, expected[:, 1:])


def test_stages_in_the_middle_read_nothing() -> None:
    job = tiny_job(stage_layers=(1, 2, 1))
    stream = open_stream(job)
    assert [len(Reading(stream, job, rank).batches(0).pairs) for rank in range(3)] == [4, 0, 4]


def test_fault_of_a_step_that_was_read_ahead_is_told_at_that_step() -> None:
    class Broken(TokenStream):
        def sample(self, number: int) -> IntArray:
            if number >= 8:
                raise InputError("a wrong token")
            return open_stream(tiny_job()).sample(number)

        def starts(self, number: int) -> Mask:
            raise NotImplementedError

    reading = Reading(Broken(), tiny_job(), rank=0)
    reading.batches(0)
    with pytest.raises(InputError, match="a wrong token"):
        reading.batches(8)
