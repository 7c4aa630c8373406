"""The traces of Arena are replayed by the rules that the command states."""

import math

import pytest

from benchmarks.replays.arena_replays import setup_of
from benchmarks.workloads.published.arena import DIRECTORY, data_are_there
from executor.simulation.replay import Replay

pytestmark = pytest.mark.skipif(not data_are_there(), reason=f"the published traces of Arena are not at {DIRECTORY}")


@pytest.mark.slow
def test_all_jobs_of_a_trace_end_and_none_sooner_than_alone() -> None:
    """The trace asks for no more than there is: nobody waits but for the start, and GPU hours are those of the jobs."""
    result = Replay(setup_of("pai", "gang", None)).run()
    assert (result.num_jobs, result.num_finished, result.num_left_out) == (125, 125, 0)
    assert all(job.completion_s >= job.alone_s * (1 - 1e-9) for job in result.jobs)
    assert result.waited_s.most == 0
    assert result.gpu_hours == pytest.approx(math.fsum(job.gpu_s for job in result.jobs) / 3600)
    assert result.completion_s.mean > 1.5 * result.floor_completion_s
