"""What deployed jobs measure, and that policies are told of it. A step takes a GPU second, whatever a job says."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from executor.control.actions import Place, Stop
from executor.control.controller import Controller
from executor.control.events import Arrival, Completion, Failure, Measurement, NodeChange, Tick
from executor.control.options import ControlOptions
from executor.deployed.backend import DeployedBackend
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputObservations,
    GradientStatistics,
    Observation,
    TableEntry,
    ThroughputParameters,
    ThroughputTable,
    TypeProfile,
)
from models.performance.iteration.coefficients import Calibration, GpuCoefficients
from models.performance.iteration.modelling import performance_model
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from models.workload import Adaptivity
from tests.executor.control.test_controller import given_to
from tests.executor.deployed.scenes import MODEL, Deployed, job_of, submitted
from tests.executor.deployed.scripted import ScriptedBackend
from tests.executor.deployed.test_backend import at, facts, place
from tests.growth import work
from tests.models.allocation.gang.scenes import cluster
from topology.cluster import NodeState

# Samples/s of a batch of 8: half of what is true on two GPUs.
_TABLE = ThroughputTable(entries=tuple(TableEntry(gpu_type="a", num_gpus=n, value=4.0 * n) for n in (1, 2, 4)))
_OTHER = GpuCoefficients(compute_s=1.0, backward_ratio=2.0, optimizer_s=1.0, overlap=1.0)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Deployed]:
    """j has 100 steps, which take 50 s on two GPUs; it said 100 s."""
    made = Deployed.of(tmp_path, cluster(2, 2, 4))
    ScriptedBackend.measures = True
    said = Calibration(gpus={"b": _OTHER})
    made.backend.submit(submitted(job_of("j", remaining_s=100.0, performance=_TABLE, calibration=said)))
    assert [type(event) for event in made.backend.next_events()] == [Arrival]
    yield made
    made.backend.close()


def test_what_is_measured_is_told_once(scene: Deployed) -> None:
    """At 2 s it has done 4 steps, one behind the warm-up; at 4 s there are 92 left, of half a second each."""
    place(scene, j="a0")
    assert at(scene, 2.0) == (Tick(at_s=2.0),)
    assert scene.backend.measured("j").calibration is None
    assert at(scene, 4.0) == (Measurement(at_s=4.0, job_id="j", remaining_s=46.0), Tick(at_s=4.0))
    now = scene.backend.measured("j")
    assert now.calibration is not None
    # What it came with for GPUs that it has not seen stays.
    assert now.calibration.gpus["b"] == _OTHER
    running = facts(scene)["j"].allocation
    assert running is not None
    deployed = scene.backend._jobs["j"]._deployment
    assert deployed is not None
    model = performance_model(MODEL, scene.cluster, now.calibration)
    assert model.iteration(deployed.plan).total_s == pytest.approx(0.5, rel=0.02)
    # Twice as fast on two GPUs: so are one and four, where it was not measured.
    assert isinstance(now.performance, ThroughputTable)
    assert [entry.value for entry in now.performance.entries] == [8.0, 16.0, 32.0]
    for at_s in (10.0, 20.0, 40.0):
        assert at(scene, at_s) == (Tick(at_s=at_s),)
    assert scene.backend.measured("j").iterations_left == 20


def test_what_was_measured_stays_known(scene: Deployed) -> None:
    """While the job waits, and when other processes take over, whose clocks begin at 21 s and at 23 s. Of 100 steps 40
    were done before it was stopped: 60 of half a second are left."""
    place(scene, j="a0")
    at(scene, 20.0)
    told = scene.backend.measured("j")
    assert told.calibration is not None
    scene.backend.act([Stop(job_id="j")])
    at(scene, 21.0)
    assert facts(scene)["j"].remaining_s == 30
    after = scene.taken_over()
    # What the start has cost, nothing here, was seen with the next look.
    assert after.backend.measured("j") == replace(told, restart_cost_s=0.0)
    assert facts(after)["j"].remaining_s == 30
    # It goes on as it was decided before that, and not anew.
    place(after, j="a1")
    at(after, 2.0)
    again = after.taken_over()
    assert at(again, 80.0) == (Completion(at_s=28.0, job_id="j"),)
    again.backend.close()


def test_who_is_not_to_learn_from_steps_is_told_of_changes_alone(scene: Deployed) -> None:
    """Also of what was measured before it took over."""
    place(scene, j="a0")
    at(scene, 20.0)
    scene.backend.close()
    quiet = DeployedBackend(scene.root, scene.cluster, poll_s=1e9, clock=scene.clock, learns=False)
    after = replace(scene, backend=quiet)
    quiet.act([Stop(job_id="j")])
    assert at(after, 21.0) == (Tick(at_s=21.0),)
    place(after, j="a1")
    assert at(after, 30.0) == (Tick(at_s=30.0),)
    told = quiet.measured("j")
    assert (told.calibration, told.performance, told.restart_cost_s) == (None, None, 0.0)
    quiet.close()


def test_a_job_that_breaks_needs_the_measured_time_for_what_is_left(scene: Deployed) -> None:
    """A checkpoint has 30 of its 40 steps."""
    place(scene, j="a0")
    at(scene, 20.0)
    scene.backend.change_node("a0", NodeState.DOWN)
    assert scene.backend.next_events() == (
        Failure(at_s=20.0, job_id="j", remaining_s=35.0),
        NodeChange(at_s=20.0, node="a0", state=NodeState.DOWN),
    )


def test_other_gpus_are_measured_for_themselves(scene: Deployed) -> None:
    """On four GPUs a step takes a quarter of a second, as the corrected table and half the measured time say."""
    place(scene, j="a0")
    at(scene, 4.0)
    scene.backend.act([Place(allocation=given_to("j", a2=range(4)))])
    events = at(scene, 8.0)
    assert Measurement(at_s=8.0, job_id="j", remaining_s=(100 - 8 - 16) / 4) in events
    now = scene.backend.measured("j")
    assert isinstance(now.performance, ThroughputTable)
    assert [entry.value for entry in now.performance.entries] == [8.0, 16.0, 32.0]


@pytest.mark.parametrize("faulty", ["{}\n", "a step\n", None], ids=["field", "json", "time"])
def test_what_cannot_be_read_harms_nobody(
    scene: Deployed, caplog: pytest.LogCaptureFixture, faulty: str | None
) -> None:
    place(scene, j="a0")
    at(scene, 2.0)
    path = scene.root / "j" / "runs" / "0001" / "metrics" / "metrics-rank1.jsonl"
    whole = path.read_text()
    path.write_text(faulty or whole.replace('"step_s": 0.5', '"step_s": 0.0'))
    with caplog.at_level(logging.ERROR):
        assert at(scene, 10.0) == (Tick(at_s=10.0),)
        assert "what job j has measured cannot be read" in caplog.text
        after = scene.taken_over()
    assert "0001 cannot be read" in caplog.text
    path.write_text(whole)
    assert at(after, 60.0)[-1] == Completion(at_s=40.0, job_id="j")
    after.backend.close()


def test_the_next_decision_knows_what_was_measured(tmp_path: Path) -> None:
    """j runs on two of two GPUs and said that it takes 100 s. A plan follows the measurement at once, and is told."""
    scene = Deployed.of(tmp_path, cluster(2), (0.0, submitted(job_of("j", remaining_s=100.0))))
    ScriptedBackend.measures = True
    scene.tell(10.0, submitted(job_of("k")))
    asked: list[PlanRequest] = []

    def planner(request: PlanRequest) -> PlanOutcome:
        asked.append(request)
        return plan(request)

    # With preemption any plan may change what runs, so that it is asked after every event.
    parameters = GangParameters(order=QueueOrder.PRIORITY, preemption=True)
    controller = Controller(scene.backend, ControlOptions(parameters=parameters), planner)
    kinds = [[type(event) for event in step.events] for step in (controller.step(), controller.step()) if step]
    assert kinds == [[Arrival], [Measurement, Arrival]]
    assert [job.remaining_s for job in asked[0].snapshot.jobs] == [100.0]
    job, _ = asked[1].snapshot.jobs
    assert (job.remaining_s, job.remaining_iterations) == (40.0, 80)
    assert job.calibration == scene.backend.measured("j").calibration
    assert job.calibration is not None
    scene.backend.close()


def test_reading_costs_the_ranks_and_not_the_steps(tmp_path: Path) -> None:
    """Of a file ten times as long the end is read."""
    counts = []
    for num_steps in (400, 4000):
        scene = Deployed.of(tmp_path / str(num_steps), cluster(2))
        ScriptedBackend.measures = True
        scene.backend.submit(submitted(job_of("j", steps=10_000), 10_000))
        scene.backend.next_events()
        place(scene, j="a0")
        at(scene, 0.1)
        for run in ScriptedBackend.runs.values():
            run.go_on(num_steps / 2)
        scene.backend.wake_at(0.2)
        counts.append(work(scene.backend.next_events))
        scene.backend.close()
    assert counts[1] <= 1.3 * counts[0]


def test_models_and_observations_are_set_right(tmp_path: Path) -> None:
    """Two replicas of one GPU, four micro-batches of one sample each: one takes an eighth of a second, and no tenth."""
    fast = ThroughputParameters(alpha_c=0.1, beta_c=0.0, alpha_r=0.0, beta_r=0.0, alpha_n=0.0, beta_n=0.0, gamma=1.0)
    batch, gradient = BatchRange(initial=8, maximum=8), GradientStatistics(squared_norm=1.0, variance=1.0)
    model = GoodputModel(
        batch=batch, gradient=gradient, profiles={"a": TypeProfile(parameters=fast, max_local_batch=8)}
    )
    alone = Observation(gpu_type="a", num_nodes=1, num_replicas=1, local_batch=8, step_time_s=0.1, sync_time_s=0.0)
    observed = GoodputObservations(batch=batch, gradient=gradient, observations=(alone,))
    scene = Deployed.of(tmp_path, cluster(2, 2))
    ScriptedBackend.measures = True
    for name, performance in (("j", model), ("k", observed)):
        job = job_of(name, performance=performance, adaptivity=Adaptivity.STRONG_SCALING)
        scene.backend.submit(submitted(job))
    scene.backend.next_events()
    place(scene, j="a0", k="a1")
    at(scene, 10.0)
    found, more = (scene.backend.measured(name).performance for name in ("j", "k"))
    assert isinstance(found, GoodputModel)
    assert isinstance(more, GoodputObservations)
    assert found.profiles["a"].parameters.alpha_c == pytest.approx(0.125)
    # Over one replica's samples and over all the squared norm is 1: there is no noise.
    assert found.gradient == more.gradient == GradientStatistics(squared_norm=1.0, variance=0.0)
    newest, before = more.observations
    assert before == alone
    assert (newest.num_replicas, newest.local_batch) == (2, 1)
    assert newest.step_time_s == pytest.approx(0.125)
    scene.backend.close()
