"""The traces of Arena are replayed by the rules that the command states."""

import math

import pytest

from benchmarks.replays.arena_replays import Rules, ended_jct_s, setup_of
from benchmarks.workloads.published.arena import DIRECTORY, ROUND_S, data_are_there
from executor.simulation.replay import Replay

pytestmark = pytest.mark.skipif(not data_are_there(), reason=f"the published traces of Arena are not at {DIRECTORY}")


@pytest.mark.slow
def test_all_jobs_of_a_trace_end_and_none_sooner_than_alone() -> None:
    """The trace asks for no more than there is: nobody waits but for the start, and GPU hours are those of the jobs."""
    result = Replay(setup_of("pai", "gang", Rules())).run()
    assert (result.num_jobs, result.num_finished, result.num_left_out) == (125, 125, 0)
    assert all(job.completion_s >= job.alone_s * (1 - 1e-9) for job in result.jobs)
    assert result.waited_s.most == 0
    assert result.gpu_hours == pytest.approx(math.fsum(job.gpu_s for job in result.jobs) / 3600)
    assert result.completion_s.mean > 1.5 * result.floor_completion_s


@pytest.mark.slow
def test_fifo_is_that_of_the_released_simulator_by_its_rules() -> None:
    """6,189 s: 400 rounds of 300 s, and of the jobs the 124 that end in them; a start on four GPUs costs a round."""
    rules = Rules(round_s=ROUND_S, num_rounds=400, start_s=300.0)
    result = Replay(setup_of("pai", 'gang:{"backfill":"none"}', rules)).run()
    assert (result.num_jobs, result.num_finished) == (125, 124)
    assert ended_jct_s(result) == pytest.approx(6189, rel=0.005)
