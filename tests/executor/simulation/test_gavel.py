"""Rounds of Gavel over time: jobs receive the shares that are due, however long they take turns."""

import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from executor.control.options import ControlOptions
from executor.simulation.replay import Replay, ReplayState
from executor.simulation.setup import ReplaySetup
from models.allocation.gavel.parameters import GavelParameters
from models.performance.goodput.spec import ThroughputTable
from stowplan.records import from_document, to_json
from tests.executor.simulation.scenes import Watched, gantt
from tests.models.allocation.gavel.scenes import PAPER
from tests.models.placement.scenes import cluster, node
from workloads.throughputs import Throughput
from workloads.trace import Trace, TraceJob, sorted_trace

ROUND_S = 100.0
PARAMETERS = GavelParameters(round_s=ROUND_S)
TWO_TYPES = cluster(node("v", 1, "v100"), node("k", 1, "k80"))


def jobs_of(*durations_s: float) -> Trace:
    """Jobs j0, j1, ... of one GPU, at once."""
    jobs = [TraceJob(id=f"j{k}", submit_s=0.0, num_gpus=1, duration_s=t) for k, t in enumerate(durations_s)]
    return sorted_trace("made", jobs)


def setup_of(trace: Trace, round_s: float | None = ROUND_S, **rest: Any) -> ReplaySetup:
    control = ControlOptions(parameters=PARAMETERS, round_s=round_s)
    return ReplaySetup(**{"cluster": cluster(node("n0", 1)), **rest}, trace=trace, control=control)


def test_two_jobs_take_turns_on_a_gpu() -> None:
    """Both are due half of it. The first round is at 100 s; at 300 s both have had as much, and j1 is there.

    100  200  300  400  500
    j0   j1   j1   j0
    """
    assert gantt(Replay(setup_of(jobs_of(200, 200)))) == {"j0": (100, 500), "j1": (200, 400)}


def test_turns_are_kept_in_the_state_of_a_replay() -> None:
    setup = setup_of(jobs_of(200, 200))
    begun = Replay(setup)
    while begun.now_s < 300:
        begun.step()
    state = from_document(ReplayState, json.loads(to_json(begun.state())), "state")
    assert gantt(Replay(setup, state=state)) == {"j0": (100, 500), "j1": (200, 400)}


def test_without_rounds_the_policy_says_when_the_next_turn_is() -> None:
    """A second after a round, since times are rounded."""
    watched = Watched()
    done = gantt(Replay(setup_of(jobs_of(150, 150), round_s=None), planner=watched))
    assert [job.attained_s for job in watched.requests[1].snapshot.jobs] == [{"a": 101.0}, None]
    assert done == {"j0": (0, 300), "j1": (101, 251)}


def test_over_many_rounds_time_goes_by_the_shares_of_the_example_of_the_paper() -> None:
    """(5, 0), (5, 1), (1, 10) elevenths of the V100 and the K80, to within two rounds of 110 and the floor of 0.1 %."""
    rows = [
        Throughput(application=name, global_batch=1, gpu_type=gpu_type, num_gpus=1, num_nodes=1, samples_per_s=speed)
        for name, speeds in PAPER.items()
        for gpu_type, speed in zip(("v100", "k80"), speeds, strict=True)
    ]
    jobs = [
        TraceJob(id=name, submit_s=0.0, num_gpus=1, iterations=1e9, application=name, global_batch=1) for name in PAPER
    ]
    num_rounds = 110
    setup = setup_of(
        sorted_trace("paper", jobs),
        cluster=TWO_TYPES,
        throughputs=tuple(rows),
        horizon_s=(num_rounds + 1) * ROUND_S,
    )
    watched = Watched()
    Replay(setup, planner=watched).run()
    last = watched.requests[-1].snapshot
    assert all(isinstance(job.performance, ThroughputTable) for job in last.jobs)
    assert [(job.min_gpus, job.max_gpus) for job in last.jobs] == [(1, 1)] * 3
    had = [[(job.attained_s or {}).get(name, 0.0) / ROUND_S for name in ("v100", "k80")] for job in last.jobs]
    # Nobody's time is lost: at every moment both GPUs work.
    assert np.sum(had, axis=0) == pytest.approx([last.jobs[0].age_s / ROUND_S - 1] * 2)
    np.testing.assert_allclose(had, num_rounds * np.array([[5, 0], [5, 1], [1, 10]]) / 11, atol=2.5)


def test_the_time_had_is_that_of_the_spans() -> None:
    """What the controller counts is what the simulated cluster has on its books."""
    watched = Watched()
    setup = setup_of(jobs_of(500, 400, 300, 350), cluster=TWO_TYPES)
    replay = Replay(setup, planner=watched)
    type_of = {item.id: item.gpu_type for item in setup.cluster.nodes}
    had: defaultdict[tuple[str, str], float] = defaultdict(float)
    for _ in range(6):
        replay.step()
    for progress in replay.state().simulation.jobs:
        for span in progress.spans:
            had[progress.job_id, type_of[span.gpus[0].node]] += span.end_s - span.start_s
        if progress.allocation is not None:
            had[progress.job_id, progress.allocation.gpu_type] += replay.now_s - progress.since_s
    counted = {
        (job.id, name): seconds
        for job in watched.requests[-1].snapshot.jobs
        for name, seconds in (job.attained_s or {}).items()
    }
    assert counted == {key: seconds for key, seconds in had.items() if seconds}
