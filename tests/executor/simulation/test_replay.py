"""Tiny traces replayed by hand; conservation; the same seed, the same replay; going on from a state."""

import json
import sys
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from executor.control import controller
from executor.simulation.figures import ReplayResult
from executor.simulation.replay import Replay, ReplayState
from executor.simulation.truth import Estimates, TruthParameters
from models.allocation.gang.formulation import GangFormulation
from models.allocation.gang.parameters import Backfill, GangParameters, QueueOrder
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from models.policies import policy_of
from models.workload import Snapshot
from stowplan.errors import InputError, UnverifiedPlanError
from stowplan.records import from_document, to_json
from tests.executor.simulation.scenes import Watched, gantt, setup_of
from tests.growth import work
from tests.workloads.jobs import jobs_of, trace_job
from workloads.generators.failures import FailureParameters, NodeFailure
from workloads.trace import Trace, sorted_trace

# a runs, b needs the whole node, c ends before b can start, d does not.
FOUR = jobs_of((0, 4, 100), (10, 8, 50), (20, 4, 30), (25, 4, 200))


def without_cpu(result: ReplayResult) -> ReplayResult:
    """What does not depend on the machine."""
    decisions = replace(result.decisions, total_cpu_s=0.0, cpu_s=result.completion_s)
    return replace(result, decisions=decisions, other_cpu_s=0.0)


def test_easy_backfill_by_hand() -> None:
    """A node of 8 GPUs:

           0   20   50        100       150                  350
    0-3    aaaaaaaaaaaaaaaaaaaabbbbbbbbbbddddddddddddddddddddd
    4-7        cccccc          bbbbbbbbbb

    c is backfilled, since it ends before a does, for which b waits; d would not.
    """
    assert gantt(Replay(setup_of(FOUR, 8))) == {"a": (0, 100), "b": (100, 150), "c": (20, 50), "d": (150, 350)}


def test_first_come_first_served_by_hand() -> None:
    """Without backfill c waits behind b, and then runs beside d:

           0         100  150  180        350
    0-3    aaaaaaaaaaabbbbbccccc
    4-7               bbbbbdddddddddddddddd
    """
    first_come = GangParameters(backfill=Backfill.NONE)
    assert gantt(Replay(setup_of(FOUR, 8, gang=first_come))) == {
        "a": (0, 100),
        "b": (100, 150),
        "c": (150, 180),
        "d": (150, 350),
    }


def test_figures_by_hand() -> None:
    result = Replay(setup_of(FOUR, 8)).run()
    waited = {job.id: job.waited_s for job in result.jobs}
    assert waited == {"a": 0, "b": 90, "c": 0, "d": 125}
    assert result.completion_s.mean == pytest.approx((100 + 140 + 30 + 325) / 4)
    assert (result.completion_s.median, result.completion_s.most) == (120, 325)
    assert result.floor_completion_s == pytest.approx((100 + 50 + 30 + 200) / 4)
    gpu_s = 4 * 100 + 8 * 50 + 4 * 30 + 4 * 200
    assert result.makespan_s == 350
    assert result.utilisation == pytest.approx(gpu_s / (8 * 350))
    assert result.gpu_hours == pytest.approx(gpu_s / 3600)
    assert (result.num_jobs, result.num_finished, result.restarts) == (4, 4, {})
    # a, c, b and d start, and d could have when c ended; nothing could at 10, at 25 and at 180.
    assert (result.decisions.num_planned, result.decisions.num_skipped) == (5, 3)


def test_jobs_that_do_not_end_count_until_the_horizon() -> None:
    result = Replay(setup_of(FOUR, 8, horizon_s=160.0)).run()
    by_id = {job.id: job for job in result.jobs}
    assert (by_id["d"].ended_s, by_id["d"].completion_s, by_id["d"].waited_s, by_id["d"].gpu_s) == (None, 135, 125, 40)
    assert (result.num_jobs, result.num_finished, result.makespan_s) == (4, 3, 160)


def test_a_job_that_fits_nowhere_holds_nobody_up() -> None:
    trace = jobs_of((0, 16, 10), (1, 8, 10))
    result = Replay(setup_of(trace, 8)).run()
    assert [job.ended_s for job in result.jobs] == [None, 11]
    assert result.num_finished == 1


def test_rounds_decide_at_their_ticks_alone() -> None:
    """a and c, which finds room beside it, start at 60; b at 180, when a has ended, and d after it."""
    replay = Replay(setup_of(FOUR, 8, round_s=60.0))
    assert gantt(replay) == {"a": (60, 160), "b": (180, 230), "c": (60, 90), "d": (240, 440)}


def test_rounds_end_where_nothing_can_start_any_more() -> None:
    assert gantt(Replay(setup_of(jobs_of((0, 16, 10)), 8, round_s=60.0))) == {"a": (None, None)}


def test_a_job_that_is_preempted_goes_on_after_a_restart() -> None:
    """The urgent job u takes the node at 40; a has done 40 of 100, and needs 5 s to start again.

    0      40   70  75      135
    aaaaaaaauuuuuu..aaaaaaaaa
    """
    trace = sorted_trace(
        "made",
        (trace_job("a", 0, 8, duration_s=100.0, priority=2), trace_job("u", 40, 8, duration_s=30.0, priority=1)),
    )
    gang = GangParameters(order=QueueOrder.PRIORITY, preemption=True)
    result = Replay(setup_of(trace, 8, gang=gang, truth=TruthParameters(restart_s=5.0))).run()
    first, urgent = result.jobs
    assert (first.ended_s, first.waited_s, first.num_restarts, first.gpu_s) == (135, 30, 1, 8 * 105)
    assert (urgent.started_s, urgent.ended_s) == (40, 70)


def test_shortest_remaining_time_first_by_hand() -> None:
    """b is shorter than what is left of a; c is not, and waits for both.

    0    20   30      110  130
    aaaaabbbbbaaaaaaaaaccccc
    """
    trace = jobs_of((0, 4, 100), (20, 4, 10), (25, 4, 90))
    srtf = GangParameters(order=QueueOrder.SRTF, preemption=True)
    assert gantt(Replay(setup_of(trace, 4, gang=srtf))) == {"a": (0, 110), "b": (20, 30), "c": (110, 200)}


def test_least_attained_service_by_hand() -> None:
    """a has had 200 GPU seconds after 50 s; a second later (times are rounded) it makes way for b, which has had none
    and never has 200. The state is kept in between.

    0       20        51       81        130
    aaaaaaaaa(b waits)abbbbbbbbaaaaaaaaaaa
    """
    setup = setup_of(
        jobs_of((0, 4, 100), (20, 4, 30)),
        4,
        gang=GangParameters(order=QueueOrder.LAS, preemption=True, service_thresholds=(200.0,)),
    )
    assert gantt(Replay(setup)) == {"a": (0, 130), "b": (51, 81)}
    begun = Replay(setup)
    for _ in range(3):
        begun.step()
    assert begun.now_s == 51
    state = from_document(ReplayState, json.loads(to_json(begun.state())), "state")
    assert gantt(Replay(setup, state=state)) == {"a": (0, 130), "b": (51, 81)}


def test_decisions_are_charged_to_those_whom_they_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes 2 s of CPU, three times as long on the clock: b waits for the end of a, and for the decision then."""
    clock_s = [0.0]
    monkeypatch.setattr("time.process_time", lambda: clock_s[0])

    def slow(request: PlanRequest) -> PlanOutcome:
        clock_s[0] += 2.0
        return plan(request)

    setup = setup_of(jobs_of((0, 8, 100), (10, 8, 50)), 8)
    charged = replace(setup, control=replace(setup.control, charge=3.0))
    assert gantt(Replay(charged, planner=slow)) == {"a": (0, 106), "b": (106, 162)}
    with pytest.raises(InputError, match="charge is -1"):
        replace(setup.control, charge=-1)


@pytest.mark.parametrize(("checkpoint_s", "ended_s"), [(None, 155), (25.0, 105)])
def test_a_job_whose_node_fails_goes_on_from_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch, checkpoint_s: float | None, ended_s: float
) -> None:
    """It has done 55 of 100 when its node fails, and goes on at once on the other one: from 0, or from 50."""
    failure = NodeFailure(node="a0", down_s=55.0, up_s=60.0)
    monkeypatch.setattr("executor.simulation.replay.node_failures", lambda *_: (failure,))
    setup = setup_of(
        jobs_of((0, 8, 100)),
        *(8, 8),
        truth=TruthParameters(checkpoint_s=checkpoint_s),
        failures=FailureParameters(mtbf_s=1.0, repair_s=1.0),
        horizon_s=1000.0,
    )
    (job,) = Replay(setup).run().jobs
    assert (job.ended_s, job.num_failures, job.num_restarts, job.waited_s) == (ended_s, 1, 1, 0)


def test_an_illegal_plan_ends_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extraction gives the second job the GPUs of the first one."""
    extract = GangFormulation.extract

    def wrong(self: GangFormulation, *arguments: Any) -> Any:
        made = extract(self, *arguments)
        same = made.allocations[0].gpus
        return replace(made, allocations=tuple(replace(item, gpus=same) for item in made.allocations))

    monkeypatch.setattr(GangFormulation, "extract", wrong)
    replay = Replay(setup_of(jobs_of((0, 4, 100), (10, 4, 50)), 8))
    assert replay.step() is not None
    with pytest.raises(UnverifiedPlanError):
        replay.step()


@st.composite
def loads(draw: st.DrawFn) -> Trace:
    """Up to six jobs for two nodes of four GPUs."""
    jobs = draw(
        st.lists(st.tuples(st.integers(0, 40), st.sampled_from([1, 2, 3, 4, 6, 8]), st.integers(0, 60)), max_size=6)
    )
    return sorted_trace(
        "drawn",
        (
            trace_job(f"j{k}", float(at_s), size, duration_s=float(length_s), priority=1 + k % 3)
            for k, (at_s, size, length_s) in enumerate(jobs)
        ),
    )


GANGS = [
    GangParameters(),
    GangParameters(backfill=Backfill.NONE),
    GangParameters(order=QueueOrder.PRIORITY, preemption=True),
    GangParameters(order=QueueOrder.SRTF, preemption=True),
    GangParameters(order=QueueOrder.LAS, preemption=True, service_thresholds=(20.0, 100.0)),
]


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(
    trace=loads(), gang=st.sampled_from(GANGS), noise=st.sampled_from([0.0, 1.0]), delay_s=st.sampled_from([0.0, 7.0])
)
def test_work_and_gpus_are_conserved(trace: Trace, gang: GangParameters, noise: float, delay_s: float) -> None:
    """Every job has its GPUs for its work, its delays, and what it lost; every snapshot is legal."""
    watched = Watched()
    truth = TruthParameters(noise=noise, start_s=delay_s, restart_s=delay_s)
    setup = setup_of(trace, 4, 4, gang=gang, truth=truth)
    result = Replay(setup, planner=watched).run()
    durations = {job.id: job.duration_s for job in trace.jobs if job.duration_s is not None}
    for job in result.jobs:
        assert job.ended_s is not None
        held_s = job.completion_s - job.waited_s
        # Of a start that was cut off the delay is paid in part.
        least_s, most_s = delay_s, (1 + job.num_restarts) * delay_s
        assert durations[job.id] + least_s - 1e-6 <= held_s <= durations[job.id] + most_s + 1e-6
        assert job.gpu_s == pytest.approx(job.num_gpus * held_s)
        assert job.completion_s >= job.alone_s - 1e-6
    assert result.gpu_hours * 3600 <= 8 * result.makespan_s + 1e-6
    for request in watched.requests:
        Snapshot(cluster=request.snapshot.cluster, jobs=request.snapshot.jobs)


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(trace=loads(), gang=st.sampled_from(GANGS))
def test_what_is_not_planned_would_change_nothing(trace: Trace, gang: GangParameters) -> None:
    """A policy that is asked at every event decides the same."""
    setup = setup_of(trace, 4, 4, gang=gang)
    expected = Replay(setup).run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(controller, "policy_of", lambda parameters: replace(policy_of(parameters), may_start=None))
        asked = Replay(setup).run()
    assert asked.jobs == expected.jobs
    assert asked.decisions.num_planned >= expected.decisions.num_planned


def failing(seed: int, **more: Any) -> Replay:
    """A busy hour in which nodes fail, and durations are guessed."""
    trace = sorted_trace(
        "made", (trace_job(f"j{k}", 40.0 * k, 1 + 3 * k % 8, duration_s=100.0 + 37 * k % 400) for k in range(12))
    )
    setup = setup_of(
        trace,
        *(8, 8),
        truth=TruthParameters(noise=0.5, restart_s=10.0, checkpoint_s=60.0),
        failures=FailureParameters(mtbf_s=400.0, repair_s=100.0),
        horizon_s=2000.0,
        seed=seed,
    )
    return Replay(setup, **more)


@pytest.mark.slow
def test_a_seed_makes_a_replay() -> None:
    first, again, other = (without_cpu(failing(seed).run()) for seed in (3, 3, 4))
    assert first == again
    assert first.jobs != other.jobs
    assert first.failures > 0


@pytest.mark.slow
@pytest.mark.parametrize("num_steps", [1, 13, 25])
def test_a_replay_goes_on_from_its_state(num_steps: int) -> None:
    """Written as JSON and read again, in the middle of delays, failures and guesses."""
    in_one_go = without_cpu(failing(3).run())
    replay = failing(3)
    for _ in range(num_steps):
        assert replay.step() is not None
    state = from_document(ReplayState, json.loads(to_json(replay.state())), "state")
    assert without_cpu(failing(3, state=state).run()) == in_one_go
    with pytest.raises(InputError, match="another replay"):
        failing(4, state=state)


def test_a_replay_in_rounds_goes_on_from_its_state() -> None:
    setup = setup_of(FOUR, 8, round_s=60.0)
    in_one_go = gantt(Replay(setup))
    replay = Replay(setup)
    for _ in range(5):
        replay.step()
    assert gantt(Replay(setup, state=replay.state())) == in_one_go


def test_policies_are_told_what_the_estimates_say() -> None:
    trace = sorted_trace("made", [trace_job("a", 0, 4, duration_s=100.0, time_limit_s=500.0)])
    told = {}
    for estimates in Estimates:
        watched = Watched()
        Replay(setup_of(trace, 8, truth=TruthParameters(estimates=estimates)), planner=watched).run()
        told[estimates] = watched.requests[0].snapshot.jobs[0].remaining_s
    assert told == {Estimates.EXACT: 100, Estimates.LIMIT: 500, Estimates.NONE: None}


def test_what_has_no_gpus_or_no_duration_is_left_out() -> None:
    result = Replay(setup_of(jobs_of((0, 0, 10), (1, 1, None), (2, 1, 3)), 8)).run()
    assert (result.num_left_out, [job.id for job in result.jobs]) == (2, ["c"])


@pytest.mark.parametrize(
    ("wrong", "detail"),
    [
        ({"horizon_s": 0.0}, "the horizon is 0.0 s"),
        ({"failures": FailureParameters(mtbf_s=1.0, repair_s=1.0)}, "give one"),
        ({"round_s": 0.0}, "round_s is 0.0"),
    ],
)
def test_what_is_wrong_is_told(wrong: dict[str, Any], detail: str) -> None:
    with pytest.raises(InputError, match=detail):
        setup_of(FOUR, 8, **wrong)


@pytest.mark.slow
def test_a_replay_grows_with_its_events() -> None:
    """Twice the jobs over twice the time on the same cluster: without planning, which does the same every time."""

    def cost(num_jobs: int) -> int:
        jobs = (trace_job(f"j{k}", 10.0 * k, 1 + k % 4, duration_s=30.0) for k in range(num_jobs))

        def planner(request: PlanRequest) -> PlanOutcome:
            counter = sys.gettrace()
            sys.settrace(None)
            try:
                return plan(request)
            finally:
                sys.settrace(counter)

        replay = Replay(setup_of(sorted_trace("made", jobs), 8, 8), planner=planner)
        return work(lambda: replay.run())

    cost(2)
    assert cost(32) <= 2.3 * cost(16)


def test_a_replay_that_is_stopped_is_one_up_to_a_horizon_there() -> None:
    """It loses nothing of what it did: at 25 s a and c have GPUs, b and d wait."""
    stopped = Replay(setup_of(FOUR, 8)).run(is_over=iter([False, False, False, True]).__next__)
    horizon = Replay(setup_of(FOUR, 8, horizon_s=25.0)).run()
    assert stopped.stopped_s == 25.0
    assert without_cpu(replace(stopped, horizon_s=25.0, stopped_s=None)) == without_cpu(horizon)
    assert {job.id: (job.gpu_s, job.waited_s) for job in stopped.jobs} == {
        "a": (100, 0),
        "b": (0, 15),
        "c": (20, 0),
        "d": (0, 0),
    }


def test_a_replay_that_has_ended_was_not_stopped() -> None:
    result = Replay(setup_of(jobs_of((0, 8, 10)), 8)).run(is_over=iter([False, True]).__next__)
    assert (result.stopped_s, result.num_finished) == (None, 1)
