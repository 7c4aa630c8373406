"""The same decisions on processes of this machine that only pretend to train as on a simulated cluster."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from executor.control.actions import Action, Place, Stop
from executor.control.controller import Controller, Step
from executor.control.events import Arrival, Completion, Event, Failure, Measurement, NodeChange
from executor.control.options import ControlOptions
from executor.deployed.backend import DeployedBackend
from executor.deployed.submission import Submission
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, Phase
from executor.metrics import metrics_path, read_metrics
from executor.simulation.backend import SimulatedBackend
from executor.simulation.progress import Submission as Simulated
from executor.supervision import Supervisor
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.workload import Job
from tests.executor.control.test_controller import given_to
from tests.executor.deployed.scenes import Linear, job_of, steps_of, submitted
from tests.executor.pretend_training import HURRY_FILE, STEP_S
from tests.models.allocation.gang.scenes import cluster
from tests.paths import PRETEND_TRAINER, ROOT
from tests.ports import free_port
from tests.waiting import eventually
from topology.cluster import NodeState

pytestmark = pytest.mark.slow

OPTIONS = ControlOptions(parameters=GangParameters(order=QueueOrder.PRIORITY, preemption=True))
WHERE = cluster(2, 2)


def pretended(job: Job, steps: int) -> Submission:
    return submitted(
        job,
        steps,
        backend="local",
        master_port=free_port(),
        command=(sys.executable, str(PRETEND_TRAINER)),
        python=sys.executable,
        environment={"PYTHONPATH": str(ROOT)},
        grace_s=1.0,
    )


def what_happened(steps: list[Step]) -> list[tuple[list[tuple[type[Event], str]], tuple[Action, ...] | None]]:
    """Events and actions without times."""
    return [
        ([(type(event), _whose(event)) for event in step.events], step.decision.actions if step.decision else None)
        for step in steps
    ]


def _whose(event: Event) -> str:
    if isinstance(event, Arrival):
        return event.job.id
    if isinstance(event, NodeChange):
        return f"{event.node} {event.state}"
    return "" if not isinstance(event, (Completion, Failure)) else event.job_id


@contextmanager
def controlled(backend: DeployedBackend) -> Iterator[list[Step]]:
    """Control in another thread for as long as the block takes."""
    steps: list[Step] = []

    def control() -> None:
        controller = Controller(backend, OPTIONS)
        while (step := controller.step()) is not None:
            steps.append(step)

    thread = threading.Thread(target=control)
    thread.start()
    try:
        yield steps
    finally:
        backend.close()
        thread.join(60.0)
    assert not thread.is_alive()


def until_trained(supervisor: Supervisor, *, run: int) -> None:
    """Wait for the first step of a run, and that it is known."""

    def phase() -> tuple[int, Phase | None]:
        if not (supervisor.root / "state.json").exists():
            return 0, None
        state = supervisor.state()
        return len(state.runs), state.phase

    eventually(phase, lambda seen: seen == (run, Phase.RUNNING))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for folder in tmp_path.glob("*/runs/*"):
        LocalBackend().stop(folder, grace_s=1.0)


def test_processes_are_decided_on_as_in_a_simulation(root: Path) -> None:
    """The urgent job takes the GPUs of the wide one, which goes on from its checkpoint when that has ended; then a node
    of it fails, and comes back."""
    wide, urgent = job_of("wide", 4, 1000, priority=2), job_of("urgent", 2, 4, priority=1)
    jobs = [pretended(wide, 1000), pretended(urgent, 4)]
    simulated = SimulatedBackend(
        WHERE,
        [Simulated(at_s=0.0, job=wide), Simulated(at_s=10.0, job=urgent)],
        Linear(jobs),
        changes=[
            NodeChange(at_s=40.0, node="a1", state=NodeState.DOWN),
            NodeChange(at_s=50.0, node="a1", state=NodeState.UP),
        ],
    )
    expected = what_happened(steps_of(simulated, OPTIONS, num_jobs=2))
    backend, wide_one = DeployedBackend(root, WHERE, poll_s=0.1), Supervisor(root / "wide", LocalBackend())
    with controlled(backend) as steps:
        backend.submit(jobs[0])
        until_trained(wide_one, run=1)
        backend.submit(jobs[1])
        until_trained(wide_one, run=2)
        backend.change_node("a1", NodeState.DOWN)
        eventually(lambda: len(steps), lambda count: count == 4)
        backend.change_node("a1", NodeState.UP)
        until_trained(wide_one, run=3)
        (wide_one.root / HURRY_FILE).touch()
        eventually(lambda: len(steps), lambda count: count == len(expected))
    assert what_happened(steps) == expected
    assert any(isinstance(action, Stop) for _, actions in expected for action in actions or ())
    assert [run.cause for run in wide_one.state().runs] == [Cause.DEPLOYED, Cause.RESUMED, Cause.RESUMED]
    # Of the first run nothing was lost.
    done = [[one.step for one in read_metrics(metrics_path(wide_one.folder(k) / "metrics", 0))] for k in (1, 2)]
    assert done[0] + done[1] == list(range(1, done[1][-1] + 1))


def test_what_processes_measure_is_an_event(root: Path) -> None:
    """On one GPU rank 0 is all ranks; it says nothing of the 1,000 s of a step that were promised."""
    job = pretended(job_of("j", 1, 1000, remaining_s=1e6), 1000)
    backend = DeployedBackend(root, WHERE, poll_s=0.1)
    with controlled(backend) as steps:
        backend.submit(job)
        eventually(lambda: len(steps), lambda count: count >= 2)
    (event,) = steps[1].events
    assert isinstance(event, Measurement)
    assert event.remaining_s is not None
    assert 0.5 * 900 * STEP_S < event.remaining_s < 1e5
    assert backend.measured("j").calibration is not None


def test_another_controller_goes_on_with_what_runs(root: Path) -> None:
    """Its rank dies then: that is a failure, on which it is decided."""
    supervisor = Supervisor(root / "j", LocalBackend())
    first = DeployedBackend(root, WHERE, poll_s=0.1)
    with controlled(first):
        first.submit(pretended(job_of("j", 2, 1000), 1000))
        until_trained(supervisor, run=1)
    second = DeployedBackend(root, WHERE, poll_s=0.1)
    (known,) = second.facts().jobs
    assert known.allocation is not None
    with controlled(second) as steps:
        os.kill(supervisor.status().run.pids[0], signal.SIGKILL)
        until_trained(supervisor, run=2)
        (supervisor.root / HURRY_FILE).touch()
        eventually(lambda: len(steps), lambda count: count == 2)
    assert [[type(event) for event in step.events] for step in steps] == [[Failure], [Completion]]
    assert steps[1].events == (Completion(at_s=steps[1].at_s, job_id="j"),)
    assert [run.cause for run in supervisor.state().runs] == [Cause.DEPLOYED, Cause.RESUMED]


def test_a_job_that_gets_more_gpus_trains_until_its_next_run_is_prepared(root: Path) -> None:
    backend, supervisor = DeployedBackend(root, WHERE, poll_s=0.1), Supervisor(root / "j", LocalBackend())

    def goes_on(run: int) -> bool:
        """Look after the job; whether a run of it has done a step."""
        backend.wake_at(backend.now_s + 0.1)
        backend.next_events()
        known = supervisor.state().runs if (supervisor.root / "state.json").exists() else ()
        return len(known) == run and known[-1].cost_s is not None

    try:
        backend.submit(pretended(job_of("j", 1, 1000, max_gpus=4), 1000))
        backend.next_events()
        backend.act([Place(allocation=given_to("j", a0=range(2)))])
        eventually(lambda: goes_on(1))
        backend.act([Place(allocation=given_to("j", a0=range(2), a1=range(2)))])
        eventually(lambda: goes_on(2))
        assert backend.measured("j").restart_cost_s is not None
    finally:
        backend.close()
    assert [run.cause for run in supervisor.state().runs] == [Cause.DEPLOYED, Cause.RECONFIGURED]
    done = [[one.step for one in read_metrics(metrics_path(supervisor.folder(k) / "metrics", 0))] for k in (1, 2)]
    assert done[0] + done[1] == list(range(1, done[1][-1] + 1))
