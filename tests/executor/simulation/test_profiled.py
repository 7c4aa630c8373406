"""Jobs of an application that was measured: what policies are told, what is true, replays by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from executor.control.options import ControlOptions
from executor.simulation.profiled import ProfiledApplications
from executor.simulation.replay import Replay, ReplayState
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import Estimates, Profiling, Seen, TruthParameters
from models.allocation.gang.parameters import GangParameters
from models.allocation.gavel.parameters import GavelParameters
from models.allocation.sia.parameters import SiaParameters
from models.performance.goodput.spec import GoodputModel, GoodputTable, ThroughputTable
from models.performance.goodput.throughput import iteration_time_s
from models.policy import Parameters
from stowplan.errors import InputError
from stowplan.records import from_document, to_document
from tests.executor.simulation.scenes import Watched
from tests.executor.simulation.test_tabled import on
from tests.growth import work
from tests.models.allocation.gang.scenes import cluster
from tests.workloads.profiles import profiles
from workloads.profiles import ApplicationProfile
from workloads.trace import TraceJob, sorted_trace

RELEASED = TruthParameters(profiling=Profiling.RELEASED)
# Of two epochs by hand: 2 GPUs with 10 samples each.
BY_HAND_S = 100 / (4 / 3 / 1.1) + 98 / (1.6 / 1.1)


@pytest.fixture
def measured(tmp_path: Path) -> tuple[ApplicationProfile, ...]:
    return profiles(tmp_path)


def job(name: str, submit_s: float = 0, num_gpus: int = 2, **rest: Any) -> TraceJob:
    return TraceJob(**{"application": "m", "global_batch": 20, **rest}, id=name, submit_s=submit_s, num_gpus=num_gpus)


def truth_of(
    known: tuple[ApplicationProfile, ...], *jobs: TraceJob, elastic: bool = True, seed: int = 0, **parameters: Any
) -> ProfiledApplications:
    trace = sorted_trace("made", jobs)
    return ProfiledApplications(trace, known, cluster(4, 4), TruthParameters(**parameters), seed, elastic=elastic)


def setup_of(
    known: tuple[ApplicationProfile, ...], *jobs: TraceJob, parameters: Parameters | None = None, **rest: Any
) -> ReplaySetup:
    return ReplaySetup(
        **rest,
        cluster=cluster(4, 4),
        trace=sorted_trace("made", jobs),
        control=ControlOptions(parameters=parameters or SiaParameters(), round_s=60, settle=True),
        profiles=known,
    )


def test_sizes_by_hand(measured: tuple[ApplicationProfile, ...]) -> None:
    """A job keeps its GPUs and its batch; its speed changes with the epoch."""
    gang = setup_of(measured, job("x", 5), parameters=GangParameters())
    gang = replace(gang, control=replace(gang.control, round_s=None))
    result = Replay(gang).run()
    assert result.jobs[0].ended_s == pytest.approx(5 + BY_HAND_S)
    assert result.floor_completion_s == pytest.approx(100 / (4 / 3 / 0.7) + 98 / (1.6 / 0.7))
    told = truth_of(measured, job("x"), elastic=False).told("x")
    assert (told.min_gpus, told.gpu_types, told.performance) == (2, ("a",), None)
    assert told.remaining_s == pytest.approx(BY_HAND_S)
    limits = truth_of(measured, job("x", time_limit_s=9), elastic=False, estimates=Estimates.LIMIT)
    assert limits.told("x").remaining_s == 9


def test_speeds_by_type_of_a_job_that_keeps_its_size(measured: tuple[ApplicationProfile, ...]) -> None:
    """The average over both epochs; the first round is at 60 s."""
    watched = Watched()
    result = Replay(setup_of(measured, job("x", 5), parameters=GavelParameters()), planner=watched).run()
    assert result.jobs[0].ended_s == pytest.approx(60 + BY_HAND_S)
    (told,) = watched.requests[0].snapshot.jobs
    assert isinstance(told.performance, ThroughputTable)
    (entry,) = told.performance.entries
    assert (told.min_gpus, entry.gpu_type, entry.num_gpus) == (2, "a", 2)
    assert told.remaining_iterations is not None
    assert told.remaining_iterations / entry.value == pytest.approx(BY_HAND_S)


def test_slowdowns_and_starts_of_an_application(measured: tuple[ApplicationProfile, ...]) -> None:
    slow = tuple(replace(profile, restart_s=30.0, slowdown=2.0) for profile in measured)
    gang = setup_of(slow, job("x", 5), parameters=GangParameters())
    gang = replace(gang, control=replace(gang.control, round_s=None))
    assert Replay(gang).run().jobs[0].ended_s == pytest.approx(5 + 30 + 2 * BY_HAND_S)


def test_what_is_told_before_a_job_has_run(measured: tuple[ApplicationProfile, ...]) -> None:
    known = tuple(replace(profile, planned_restart_s=7.0) for profile in measured)
    told = truth_of(known, job("x", deadline_s=50, priority=2)).told("x")
    assert (told.min_gpus, told.max_gpus, told.restart_cost_s, told.deadline_s, told.priority) == (1, 1, 7, 50, 2)
    assert told.remaining_iterations == 198
    assert isinstance(told.performance, GoodputModel)
    profile = told.performance.profiles["a"]
    assert (profile.single_gpu_only, profile.min_local_batch, profile.max_local_batch) == (True, 5, 20)
    assert profile.parameters.beta_c == pytest.approx(0.1, rel=0.01)
    released = truth_of(known, job("x"), profiling=Profiling.RELEASED).told("x").performance
    assert isinstance(released, GoodputTable)
    assert [(entry.gpu_type, entry.num_gpus, entry.value) for entry in released.entries] == [("a", 1, 1.0)]


def test_jobs_learn_by_running(measured: tuple[ApplicationProfile, ...]) -> None:
    """What a model says already teaches it nothing; more replicas than ever do, and let the job have twice as many."""
    truth = truth_of(measured, job("x"), job("y"))
    first = truth.segment(on("x", a0=1), 0.0, None)
    assert first.seen == Seen(gpu_type="a", gpus=(1,), local_batch=10)
    truth.learn("x", first.seen)
    assert truth.segment(on("x", a0=1), 0.0, None).seen is None
    assert truth.measured("x", 0.0, None).max_gpus == 2
    wider = truth.segment(on("x", a0=4), 0.0, None)
    assert wider.seen is not None
    assert wider.until == min(100, 60 * wider.speed) == 100
    truth.learn("x", wider.seen)
    now = truth.measured("x", 10.0, 40)
    assert (now.max_gpus, now.iterations_left) == (8, 188)
    assert isinstance(now.performance, GoodputModel)
    assert not now.performance.profiles["a"].single_gpu_only
    # y has learned nothing of it, unless models are shared.
    assert truth.measured("y", 0.0, None).max_gpus == 1
    shared = truth_of(measured, job("x"), job("y"), shared_models=True)
    shared.learn("x", wider.seen)
    assert shared.measured("y", 0.0, None).max_gpus == 8


def test_steps_between_racks_are_slower_and_are_learned_as_such(measured: tuple[ApplicationProfile, ...]) -> None:
    """4 GPUs of each of two nodes wait 0.5 s for each other after 0.5 s, with a tenth of the bandwidth 5 s. The model
    fitted to the latter knows that they had no more, and expects far less where they have."""
    racks = replace(cluster(4, 4, per_rack=1), core_bandwidth_fraction=0.1)
    trace = sorted_trace("made", [job("x", num_gpus=8)])
    told = []
    for made in (cluster(4, 4), racks):
        truth = ProfiledApplications(trace, measured, made, TruthParameters(), 0, elastic=True)
        for allocation in (on("x", a0=1), on("x", a0=4), on("x", a0=4, a1=4)):
            segment = truth.segment(allocation, 0.0, None)
            assert segment.seen is not None
            truth.learn("x", segment.seen)
            assert segment.seen.bandwidth_fraction in (1.0, made.core_bandwidth_fraction)
        told.append(truth.measured("x", 0.0, None).performance)
    under_one_switch, between_racks = told
    assert isinstance(under_one_switch, GoodputModel)
    assert isinstance(between_racks, GoodputModel)
    full, fitted = (known.profiles["a"].parameters for known in (under_one_switch, between_racks))
    assert iteration_time_s(full, 2, 8, 5, 0) == pytest.approx(1.0, rel=0.05)
    assert iteration_time_s(fitted, 2, 8, 5, 0, 0.1) == pytest.approx(5.5, rel=0.05)
    assert iteration_time_s(fitted, 2, 8, 5, 0) < 1.2
    fixed = [
        ProfiledApplications(trace, measured, made, TruthParameters(), 0, elastic=False)
        for made in (cluster(4, 4), racks)
    ]
    fast, slow = (truth.segment(on("x", a0=4, a1=4), 0.0, None).speed for truth in fixed)
    # The batch of 20 is 3 samples a GPU, taken for the smallest that was measured: 0.5 s, and 0.5 s or 5 s of waiting.
    assert fast == pytest.approx(5.5 * slow)
    left = [truth.told("x").remaining_s or 0.0 for truth in fixed]
    assert left[1] == pytest.approx(5.5 * left[0])


def test_types_that_nobody_ran_on_are_taken_for_another_by_the_ratio_of_one_gpu(
    measured: tuple[ApplicationProfile, ...],
) -> None:
    (profile,) = measured
    (kind,) = profile.types
    steps = tuple(
        replace(step, step_time_s=2 * step.step_time_s, sync_time_s=2 * step.sync_time_s) for step in kind.steps
    )
    both = replace(profile, types=(kind, replace(kind, gpu_type="b", steps=steps)))
    mixed = cluster(4, 4)
    other = cluster(4, gpu_type="b")
    mixed = replace(mixed, gpu_types=(*mixed.gpu_types, *other.gpu_types), nodes=(*mixed.nodes, *other.nodes))
    truth = ProfiledApplications(sorted_trace("made", [job("x")]), [both], mixed, RELEASED, 0, elastic=True)
    truth.learn("x", Seen(gpu_type="a", gpus=(1,), local_batch=10))
    told = truth.measured("x", 0.0, None).performance
    assert isinstance(told, GoodputModel)
    assert told.batch.maximum == 20
    assert told.profiles["b"].parameters.beta_c == pytest.approx(2 * told.profiles["a"].parameters.beta_c)


def test_noise_is_in_what_is_told_alone(measured: tuple[ApplicationProfile, ...]) -> None:
    exact, noisy = truth_of(measured, job("x")), truth_of(measured, job("x"), noise=0.2)
    told = [truth.told("x").performance for truth in (exact, noisy)]
    assert all(isinstance(model, GoodputModel) for model in told)
    assert told[0] != told[1]
    assert exact.segment(on("x", a0=1), 0.0, None) == noisy.segment(on("x", a0=1), 0.0, None)


@pytest.mark.parametrize("truth", [TruthParameters(), RELEASED, TruthParameters(shared_models=True)])
def test_elastic_jobs_end_sooner_than_with_what_they_asked_for(
    measured: tuple[ApplicationProfile, ...], truth: TruthParameters
) -> None:
    """Two jobs on eight GPUs grow to four each, the one that is left to eight."""
    slow = tuple(replace(profile, slowdown=20.0) for profile in measured)
    result = Replay(setup_of(slow, job("x", 5), job("y", 5), truth=truth)).run()
    for record in result.jobs:
        assert record.ended_s is not None
        assert record.alone_s < record.ended_s - 5 < 20 * BY_HAND_S
        assert record.num_restarts >= 1


@pytest.mark.parametrize("num_steps", [3, 8])
def test_a_replay_goes_on_from_its_state(measured: tuple[ApplicationProfile, ...], num_steps: int) -> None:
    """What jobs have measured is in it."""
    setup = setup_of(tuple(replace(profile, slowdown=5.0) for profile in measured), job("x", 5), job("y", 100))
    whole = Replay(setup).run()
    replay = Replay(setup)
    for _ in range(num_steps):
        replay.step()
    document = to_document(replay.state())
    assert any(progress["seen"] for progress in document["simulation"]["jobs"])
    again = Replay(setup, state=from_document(ReplayState, document, "state")).run()
    assert again.jobs == whole.jobs


def test_a_job_that_is_starting_keeps_its_gpus(measured: tuple[ApplicationProfile, ...]) -> None:
    watched = Watched()
    slow = tuple(replace(profile, restart_s=90.0, slowdown=5.0) for profile in measured)
    replay = Replay(setup_of(slow, job("x", 5)), planner=watched)
    for _ in range(6):
        replay.step()
    told = [request.snapshot.jobs[0] for request in watched.requests]
    # It waits, then starts for 90 s of the rounds of 60.
    assert [(one.current is not None, one.preemptible) for one in told[:3]] == [
        (False, True),
        (True, False),
        (True, True),
    ]


def test_what_was_not_measured_is_left_out_or_refused(measured: tuple[ApplicationProfile, ...]) -> None:
    result = Replay(setup_of(measured, job("x"), job("y", application="n"))).run()
    assert ([record.id for record in result.jobs], result.num_left_out) == (["x"], 1)
    with pytest.raises(InputError, match="an application that was measured on this cluster; these were: m"):
        Replay(setup_of(measured, job("y", application="n")))
    allocation = replace(on("x", a0=2), gpu_type="h100")
    with pytest.raises(InputError, match="job 'x' gets GPUs of type 'h100', on which m is not known"):
        truth_of(measured, job("x")).segment(allocation, 0.0, None)


def test_checkpoints_are_written_with_the_epochs(measured: tuple[ApplicationProfile, ...]) -> None:
    truth = truth_of(measured, job("x"), checkpoint_s=10)
    assert [truth.kept("x", done) for done in (99.0, 100.0, 197.0)] == [0, 100, 100]
    assert truth_of(measured, job("x")).kept("x", 150.0) == 0


def test_a_replay_of_twice_as_many_jobs_costs_twice_as_much(measured: tuple[ApplicationProfile, ...]) -> None:
    """Beside planning: jobs one after another, so that each finds the same."""

    def cost(num_jobs: int) -> int:
        jobs = [job(f"j{k}", 400.0 * k) for k in range(num_jobs)]

        def ask() -> None:
            truth = truth_of(measured, *jobs)
            for one in jobs:
                truth.told(one.id)
                truth.alone(one.id)
                segment = truth.segment(on(one.id, a0=1), 0.0, None)
                assert segment.seen is not None
                truth.learn(one.id, segment.seen)
                truth.measured(one.id, 50.0, segment.batch)

        return work(ask)

    cost(2)
    assert cost(40) <= 2.2 * cost(20)


@pytest.mark.parametrize("elastic", [True, False])
def test_misjudged_work_is_told(measured: tuple[ApplicationProfile, ...], elastic: bool) -> None:
    """Twice as much, or half, for every job the same at all times; what is true stays."""
    exact = truth_of(measured, job("x"), elastic=elastic)
    wrong = truth_of(measured, job("x"), elastic=elastic, misjudged=2.0)
    half = 0.5 * exact.work("x")
    ratios = {
        (wrong.measured("x", done, None).iterations_left or 0) / (exact.measured("x", done, None).iterations_left or 1)
        for done in (0.0, half)
    }
    assert ratios in ({2.0}, {0.5})
    assert wrong.work("x") == exact.work("x")
