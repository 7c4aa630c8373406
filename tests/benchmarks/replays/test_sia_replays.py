"""The traces of Sia are replayed by the rules that the command states."""

import math
from dataclasses import replace

import pytest

from benchmarks.replays.sia_replays import setup_of
from benchmarks.workloads.published.sia_traces import DATA
from executor.simulation.replay import Replay
from executor.simulation.truth import Profiling, TruthParameters
from stowplan.errors import InputError

TRUTH = TruthParameters(profiling=Profiling.RELEASED)

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the published traces of Sia are not at {DATA}")


def test_the_rules() -> None:
    setup = setup_of("helios/workload-1", "sia", TRUTH)
    known = {profile.application: profile for profile in setup.profiles or ()}
    assert set(known) == {"bert", "cifar10", "deepspeech2", "imagenet", "yolov3"}
    cifar10 = known["cifar10"]
    assert (cifar10.restart_s, cifar10.planned_restart_s, cifar10.slowdown) == (50, 30, 1.8)
    assert {kind.gpu_type: kind.max_local_batch for kind in known["deepspeech2"].types}["rtx"] == 57
    assert (setup.control.round_s, setup.control.settle) == (60, True)
    with pytest.raises(InputError, match="'best' is no policy"):
        setup_of("helios/workload-1", "best", TRUTH)


@pytest.mark.slow
def test_all_jobs_of_a_trace_end_and_none_sooner_than_alone() -> None:
    """Under a policy of sizes, whose jobs keep what they asked for."""
    setup = setup_of("helios/workload-1", "gang", TRUTH)
    # Most of the work is the floor of each application: one of them will do.
    result = Replay(replace(setup, trace=setup.trace.where(lambda job: job.application == "cifar10"))).run()
    assert (result.num_finished, result.num_left_out) == (result.num_jobs, 0)
    assert result.num_jobs > 50
    assert all(job.completion_s >= job.alone_s * (1 - 1e-9) for job in result.jobs)
    assert result.gpu_hours == pytest.approx(math.fsum(job.gpu_s for job in result.jobs) / 3600)
    assert result.num_restarts == 0
