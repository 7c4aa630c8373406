"""The workload of Suika is made and replayed by the rules that the command states."""

import math
from dataclasses import replace

import pytest

from benchmarks.replays.suika_replays import PHILLY, setup_of, workload_of
from executor.simulation.replay import Replay
from stowplan.errors import InputError

pytestmark = pytest.mark.skipif(not PHILLY.exists(), reason=f"the published trace of Philly is not at {PHILLY}")


def test_the_rules() -> None:
    workload = workload_of(64, 0, load=1.0)
    assert math.fsum(job.gpu_s or 0.0 for job in workload.jobs) == pytest.approx(64 * 8 * 3600)
    sia, suika = (setup_of(workload, 64, name, 0.1, 60.0, seed=3) for name in ("sia", "suika"))
    assert (sia.control.round_s, suika.control.round_s) == (60, None)
    assert (suika.cluster.num_gpus, suika.seed, suika.truth.noise) == (64, 3, 0.1)
    assert suika.truth.start_s == suika.truth.restart_s == 60
    with pytest.raises(InputError, match="'best' is no policy"):
        setup_of(workload, 64, "best", 0.0, 60.0, seed=0)


def test_jobs_alone_take_their_durations_and_a_start() -> None:
    setup = setup_of(workload_of(64, 0, load=1.0), 64, "gang", 0.0, 60.0, seed=0)
    first = setup.trace.jobs[0]
    result = Replay(replace(setup, trace=replace(setup.trace, jobs=(first,)))).run()
    assert result.completion_s.mean == pytest.approx(60 + (first.duration_s or 0.0))
