"""Deployments that follow decisions, on runs without processes."""

import json
import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from executor.control.actions import Place, Stop
from executor.control.backend import JobFacts
from executor.control.controller import Controller
from executor.control.events import Arrival, CalendarChange, Completion, Event, Failure, NodeChange, Tick
from executor.control.options import ControlOptions
from executor.deployed.backend import DeployedBackend
from executor.deployment import Deployment, deployment_name
from executor.launch.base import LaunchError
from executor.lifecycle import Cause, DeploymentState
from executor.records import read_record
from executor.supervision import Supervisor
from models.allocation.gang.parameters import GangParameters
from stowplan.errors import InputError
from tests.executor.control.test_controller import given_to
from tests.executor.deployed.scenes import Deployed, job_of, submitted
from tests.executor.deployed.scripted import ScriptedBackend
from tests.growth import work
from tests.models.allocation.gang.scenes import cluster
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import NodeState


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Deployed]:
    """Two nodes of two GPUs; jobs j and k of 100 steps on two GPUs have come."""
    made = Deployed.of(tmp_path, cluster(2, 2))
    for name in ("j", "k"):
        made.backend.submit(submitted(job_of(name)))
    assert [type(event) for event in made.backend.next_events()] == [Arrival, Arrival]
    yield made
    made.backend.close()


def place(scene: Deployed, **nodes: str) -> None:
    """Give each of these jobs both GPUs of a node."""
    both: dict[str, dict[str, Any]] = {name: {node: range(2)} for name, node in nodes.items()}
    scene.backend.act([Place(allocation=given_to(name, **gpus)) for name, gpus in both.items()])


def at(scene: Deployed, at_s: float) -> Sequence[Event]:
    """What happens until then."""
    scene.backend.wake_at(at_s)
    return scene.backend.next_events()


def state(scene: Deployed, name: str) -> DeploymentState:
    return read_record(DeploymentState, scene.root / name / "state.json", "deployment")


def runs(scene: Deployed, name: str) -> list[tuple[Cause, int]]:
    return [(run.cause, run.from_step) for run in state(scene, name).runs]


def facts(scene: Deployed) -> dict[str, JobFacts]:
    return {facts.job.id: facts for facts in scene.backend.facts().jobs}


def test_two_jobs_change_places_through_checkpoints(scene: Deployed) -> None:
    """j and k do 2 steps a second; no run has the GPUs of another (the double asserts it); 100 - 20 steps take 40 s."""
    place(scene, j="a0", k="a1")
    assert at(scene, 10.0) == (Tick(at_s=10.0),)
    place(scene, j="a1", k="a0")
    done = [Completion(at_s=50.0, job_id=name) for name in ("j", "k")]
    assert [*scene.backend.next_events()] == done
    assert runs(scene, "j") == runs(scene, "k") == [(Cause.DEPLOYED, 0), (Cause.RESUMED, 20)]
    assert not scene.backend.facts().jobs


def test_a_job_moves_to_free_gpus_without_standing_still(scene: Deployed) -> None:
    place(scene, j="a0")
    at(scene, 10.0)
    place(scene, j="a1")
    assert [*scene.backend.next_events()] == [Completion(at_s=50.0, job_id="j")]
    assert runs(scene, "j") == [(Cause.DEPLOYED, 0), (Cause.RECONFIGURED, 20)]


def test_a_job_trains_on_until_the_gpus_that_it_gets_more_are_free(
    scene: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host of k cannot be reached from 10 s to 30 s, so that nobody knows when its GPUs are free; j does 2 steps a
    second until then, and 4 of the 40 that are left."""
    monkeypatch.setattr("executor.supervision.STOP_LIMIT_S", -1.0)
    place(scene, j="a0", k="a1")
    at(scene, 10.0)
    ScriptedBackend.lose("k", "a1")
    scene.backend.act([Stop(job_id="k"), Place(allocation=given_to("j", a0=range(2), a1=range(2)))])
    at(scene, 30.0)
    assert runs(scene, "j") == [(Cause.DEPLOYED, 0)]
    ScriptedBackend.broken.clear()
    assert [*scene.backend.next_events()] == [Completion(at_s=40.0, job_id="j")]
    assert runs(scene, "j") == [(Cause.DEPLOYED, 0), (Cause.RECONFIGURED, 60)]


@pytest.mark.parametrize(("kept", "cause"), [(2, Cause.RECONFIGURED), (1, Cause.RESUMED)], ids=["most", "less"])
def test_a_job_that_keeps_most_of_its_gpus_trains_until_its_next_run_is_prepared(
    scene: Deployed, kept: int, cause: Cause
) -> None:
    """Until 10 s j does 4 steps a second, then k has the two GPUs of a1; who stands still for them waits no longer
    than for a checkpoint."""
    scene.backend.act([Place(allocation=given_to("j", a0=range(2), a1=range(2)))])
    at(scene, 10.0)
    scene.backend.act([Place(allocation=given_to("j", a0=range(kept))), Place(allocation=given_to("k", a1=range(2)))])
    ends = [*scene.backend.next_events(), *scene.backend.next_events()]
    assert {(event.job_id, event.at_s) for event in ends if isinstance(event, Completion)} == {
        ("j", 10.0 + 60.0 / kept),
        ("k", 60.0),
    }
    assert runs(scene, "j") == [(Cause.DEPLOYED, 0), (cause, 40)]


def test_a_new_plan_that_cannot_start_beside_the_old_run_starts_behind_it(
    scene: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    place(scene, j="a0")
    at(scene, 10.0)
    reconfigure, refused = Supervisor.reconfigure, list[str]()

    def refusing(supervisor: Supervisor, deployment: Deployment) -> None:
        if not refused:
            refused.append(deployment.name)
            raise LaunchError("no room for both")
        reconfigure(supervisor, deployment)

    monkeypatch.setattr(Supervisor, "reconfigure", refusing)
    place(scene, j="a1")
    at(scene, 11.0)
    assert [*scene.backend.next_events()] == [Completion(at_s=50.0, job_id="j")]
    assert [cause for cause, _ in runs(scene, "j")] == [Cause.DEPLOYED, Cause.RESUMED]
    assert refused == ["j"]


def test_what_was_measured_of_a_job(scene: Deployed) -> None:
    assert scene.backend.measured("j").iterations_left == 100
    place(scene, j="a0")
    assert scene.backend.measured("j").is_starting
    at(scene, 10.0)
    now = scene.backend.measured("j")
    assert (now.iterations_left, now.is_starting) == (80, False)
    told = facts(scene)["j"]
    assert (told.remaining_s, told.attained_gpu_s, told.num_starts) == (40, 20, 1)
    before = told.allocation
    assert before is not None
    scene.backend.act([Stop(job_id="j")])
    at(scene, 20.0)
    now, told = scene.backend.measured("j"), facts(scene)["j"]
    assert (now.iterations_left, now.is_starting) == (80, False)
    assert (told.allocation, told.attained_gpu_s) == (None, 20)
    assert told.attained_s == {before.gpu_type: 10.0}


def test_a_job_that_was_stopped_behind_its_last_step_has_ended(scene: Deployed) -> None:
    place(scene, j="a0")
    at(scene, 49.0)
    scene.backend.act([Stop(job_id="j")])
    scene.clock.time_s = 50.0
    assert scene.backend.next_events() == (Completion(at_s=50.0, job_id="j"),)


def test_a_run_that_breaks_is_decided_on(scene: Deployed) -> None:
    """At 20 s it has done 40 steps, of which a checkpoint has 30; without a new one it is given up after the third."""
    place(scene, j="a0")
    at(scene, 20.0)
    ScriptedBackend.kill("j")
    assert scene.backend.next_events() == (Failure(at_s=20.0, job_id="j", remaining_s=35.0),)
    for _ in range(2):
        place(scene, j="a1")
        scene.backend.wake_at(scene.clock.time_s)
        scene.backend.next_events()
        ScriptedBackend.kill("j")
        (event,) = scene.backend.next_events()
    assert isinstance(event, Completion)
    assert event.fault == (
        "given up after 2 restarts without a new checkpoint: rank 0 on host a0 ended with exit code 1"
    )
    assert runs(scene, "j") == [(Cause.DEPLOYED, 0), (Cause.RESUMED, 30), (Cause.RESUMED, 30)]
    assert list(facts(scene)) == ["k"]


def test_a_run_with_wrong_input_is_not_tried_again(scene: Deployed) -> None:
    place(scene, j="a0")
    at(scene, 1.0)
    ScriptedBackend.kill("j", exit_code=2)
    (event,) = scene.backend.next_events()
    assert isinstance(event, Completion)
    assert event.fault is not None
    assert "its input is wrong" in event.fault


def test_a_node_that_is_down_breaks_who_runs_there_or_is_about_to(scene: Deployed) -> None:
    """k runs on a1; j is to move there. Both wait, j with a checkpoint of all that it did on a0."""
    place(scene, j="a0", k="a1")
    at(scene, 20.0)
    scene.backend.act([Stop(job_id="k"), Place(allocation=given_to("j", a1=range(2)))])
    scene.backend.change_node("a1", NodeState.DOWN)
    events = scene.backend.next_events()
    assert events == (
        Failure(at_s=20.0, job_id="j", remaining_s=30.0),
        NodeChange(at_s=20.0, node="a1", state=NodeState.DOWN),
    )
    assert scene.backend.facts().cluster.nodes[1].state is NodeState.DOWN
    place(scene, k="a0")
    assert at(scene, 21.0) == (Tick(at_s=21.0),)
    assert runs(scene, "k")[1:] == [(Cause.RESUMED, 40)]


def test_a_run_on_a_node_that_is_down_is_ended_without_a_checkpoint(scene: Deployed) -> None:
    place(scene, j="a0")
    at(scene, 20.0)
    scene.backend.change_node("a0", NodeState.DOWN)
    assert scene.backend.next_events()[0] == Failure(at_s=20.0, job_id="j", remaining_s=35.0)
    place(scene, j="a1")
    at(scene, 21.0)
    assert runs(scene, "j") == [(Cause.DEPLOYED, 0), (Cause.RESUMED, 30)]
    assert state(scene, "j").phase == "running"
    with pytest.raises(InputError, match="no node 'b0'"):
        scene.backend.change_node("b0", NodeState.DOWN)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_run_that_cannot_be_reached_keeps_its_gpus(
    scene: Deployed, stopped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """k gets them when the run of j could be ended (the double asserts that no two runs have one GPU)."""
    monkeypatch.setattr("executor.supervision.STOP_LIMIT_S", -1.0)
    place(scene, j="a0")
    at(scene, 10.0)
    ScriptedBackend.lose("j", "a0")
    if stopped:
        scene.backend.act([Stop(job_id="j")])
        place(scene, k="a0")
    assert at(scene, 20.0) == (Tick(at_s=20.0),)
    assert state(scene, "j").detail == "run 1 could not be ended: ['a0'] cannot be reached"
    assert not (scene.root / "k" / "state.json").exists()
    ScriptedBackend.broken.clear()
    failure, *_ = at(scene, 30.0)
    assert failure == (Tick(at_s=30.0) if stopped else Failure(at_s=20.0, job_id="j", remaining_s=50.0))
    assert state(scene, "j").phase == "stopped"
    assert (scene.root / "k" / "state.json").exists() == stopped


def test_a_host_that_does_not_answer_holds_up_nobody_for_long(scene: Deployed) -> None:
    """It is asked from 10 s to 13 s, and rests until 40 s."""
    place(scene, j="a0", k="a1")
    at(scene, 10.0)
    ScriptedBackend.lose("j", "a0")
    ScriptedBackend.timeout_s = 3.0
    for at_s in range(11, 39):
        at(scene, float(at_s))
    assert ScriptedBackend.num_timeouts == 1
    assert scene.backend.measured("k").iterations_left == 100 - 2 * 38
    at(scene, 41.0)
    assert ScriptedBackend.num_timeouts == 2


def test_of_a_run_that_cannot_be_reached_the_node_may_be_given_up(scene: Deployed) -> None:
    place(scene, j="a0")
    at(scene, 20.0)
    ScriptedBackend.lose("j", "a0")
    scene.backend.change_node("a0", NodeState.DOWN)
    assert scene.backend.next_events()[0] == Failure(at_s=20.0, job_id="j", remaining_s=35.0)
    place(scene, j="a1")
    at(scene, 21.0)
    assert runs(scene, "j")[1:] == [(Cause.RESUMED, 30)]


def test_a_launch_that_fails_is_tried_again_and_given_up(scene: Deployed) -> None:
    """After pauses of 5 s and 20 s; the third failure is the last."""
    ScriptedBackend.broken.add("a0")
    place(scene, j="a0", k="a1")
    at(scene, 0.0)
    assert scene.backend.measured("j").is_starting
    assert at(scene, 5.0) == (Tick(at_s=5.0),)
    (event,) = at(scene, 25.0)[:1]
    assert isinstance(event, Completion)
    assert event.fault == "given up after 3 attempts: the run cannot be started: ['a0'] cannot be reached"
    assert state(scene, "k").runs[0].cause is Cause.DEPLOYED
    assert not (scene.root / "j" / "state.json").exists()


def test_what_cannot_be_deployed_as_planned_ends_with_its_fault(tmp_path: Path) -> None:
    """Three replicas for a batch of 8; who was placed with it is not held up."""
    scene = Deployed.of(tmp_path, cluster(4, 2), (0.0, submitted(job_of("j", 3))), (0.0, submitted(job_of("k"))))
    controller = Controller(scene.backend, ControlOptions(parameters=GangParameters()))
    controller.step()
    step = controller.step()
    assert step is not None
    (event,) = step.events
    assert isinstance(event, Completion)
    assert event.fault is not None
    assert event.fault.startswith("cannot be deployed as planned: job 'j' gets 3 GPUs; a batch of 8 does not divide")
    step = controller.step()
    assert step is not None
    assert step.events == (Completion(at_s=50.0, job_id="k"),)
    scene.backend.close()


def test_another_controller_takes_over(scene: Deployed, monkeypatch: pytest.MonkeyPatch) -> None:
    """l runs on a0 since 0 s; at 20 s another job comes; at 25 s l has half of its steps, and 50 GPU seconds."""
    wall_s = 1e9
    monkeypatch.setattr("executor.deployed.job.time.time", lambda: wall_s + scene.clock.time_s)
    scene.backend.submit(submitted(job_of("l")))
    scene.backend.next_events()
    place(scene, l="a0")
    at(scene, 20.0)
    with pytest.raises(InputError, match="another process controls"):
        DeployedBackend(scene.root, scene.cluster)
    before = facts(scene)["l"]
    assert before.allocation is not None
    scene.backend.submit(submitted(job_of("late")))
    scene.clock.time_s = 25.0
    after = scene.taken_over()
    known = facts(after)
    assert list(known) == ["j", "k", "l", "late"]
    assert (known["l"].allocation, known["l"].num_starts) == (before.allocation, 1)
    assert (known["l"].submitted_s, known["l"].attained_gpu_s, known["l"].remaining_s) == (-25, 50, 30)
    assert known["l"].attained_s == {before.allocation.gpu_type: 25.0}
    assert known["late"].submitted_s == -5
    Controller(after.backend, ControlOptions(parameters=GangParameters()))
    assert at(after, 100.0) == (Completion(at_s=25.0, job_id="l"),)
    # No run was ended or started for it.
    assert runs(after, "l") == [(Cause.DEPLOYED, 0)]
    after.backend.close()


def test_what_was_decided_last_comes_about_after_a_crash(scene: Deployed) -> None:
    """Decided, and not yet begun: k is to stop, j to take its place, where its last 80 steps take 40 s. Then it is
    over, and stays away."""
    place(scene, j="a0", k="a1")
    at(scene, 10.0)
    scene.backend.act([Stop(job_id="k"), Place(allocation=given_to("j", a1=range(2)))])
    after = scene.taken_over()
    assert [type(event) for event in at(after, 1.0)] == [Tick]
    assert runs(after, "j") == [(Cause.DEPLOYED, 0), (Cause.RESUMED, 20)]
    assert (state(after, "k").phase, facts(after)["k"].allocation) == ("stopped", None)
    assert at(after, 60.0) == (Completion(at_s=40.0, job_id="j"),)
    again = after.taken_over()
    assert list(facts(again)) == ["k"]
    again.backend.close()


def test_who_takes_over_is_told_of_nodes_anew(scene: Deployed) -> None:
    place(scene, j="a0", k="a1")
    at(scene, 20.0)
    nodes = tuple(replace(node, state=NodeState.DOWN) if node.id == "a0" else node for node in scene.cluster.nodes)
    after = scene.taken_over(replace(scene.cluster, nodes=nodes))
    known = facts(after)
    assert (known["j"].allocation, known["k"].allocation is None) == (None, False)
    assert [type(event) for event in at(after, 1.0)] == [Tick]
    assert state(after, "j").phase == "stopped"
    with pytest.raises(InputError, match="a1"):
        after.taken_over(cluster(2))


def test_a_calendar_becomes_known(scene: Deployed) -> None:
    """On the clock of the backend, whenever it is told; as it was told last to who takes over the control."""
    place(scene, j="a0")
    at(scene, 20.0)
    entry = CalendarEntry(name="e", kind=EntryKind.MAINTENANCE, from_s=10.0, until_s=40.0, nodes=("a0",))
    scene.backend.change_calendar([entry])
    known = replace(entry, from_s=30.0, until_s=60.0)
    assert scene.backend.next_events() == (CalendarChange(at_s=20.0, entries=(known,)),)
    assert scene.backend.facts().calendar == (known,)
    with pytest.raises(InputError, match="b0"):
        scene.backend.change_calendar([replace(entry, nodes=("b0",))])
    scene.backend.close()
    again = DeployedBackend(scene.root, scene.cluster, calendar=(entry,), clock=scene.clock)
    assert again.facts().calendar == (entry,)
    again.close()
    with pytest.raises(InputError, match="b0"):
        DeployedBackend(scene.root, scene.cluster, calendar=(replace(entry, nodes=("b0",)),), clock=scene.clock)
    # Whoever was refused holds nobody up.
    DeployedBackend(scene.root, scene.cluster, clock=scene.clock).close()


def test_a_job_that_does_not_go_with_the_cluster_is_refused(scene: Deployed) -> None:
    with pytest.raises(InputError, match="names GPU type 'b'"):
        scene.backend.submit(submitted(job_of("l", gpu_types=("b",))))
    assert not (scene.root / "l").exists()
    scene.backend.submit(submitted(job_of("l", gpu_types=("a",))))
    with pytest.raises(InputError, match="names GPU type 'a'"):
        scene.taken_over(cluster(2, 2, gpu_type="b"))


def test_a_job_has_an_id_of_its_own(scene: Deployed) -> None:
    with pytest.raises(InputError, match="job of the id 'j' already"):
        scene.backend.submit(submitted(job_of("j")))
    scene.backend.close()
    with pytest.raises(InputError, match="is closed"):
        scene.backend.submit(submitted(job_of("l")))
    assert scene.backend.next_events() == ()


def test_a_broken_folder_keeps_nobody_from_being_looked_after(
    scene: Deployed, caplog: pytest.LogCaptureFixture
) -> None:
    place(scene, j="a0", k="a1")
    at(scene, 1.0)
    path = scene.root / "j" / "state.json"
    whole = path.read_text()
    path.write_text("{")
    with caplog.at_level(logging.ERROR):
        assert at(scene, 50.0)[0] == Completion(at_s=50.0, job_id="k")
    assert "job j cannot be looked after" in caplog.text
    path.write_text(whole)
    assert scene.backend.next_events() == (Completion(at_s=50.0, job_id="j"),)


def test_a_wait_is_ended_from_outside(tmp_path: Path) -> None:
    """By the clock of this machine, in another thread."""
    backend = DeployedBackend(tmp_path, cluster(2), poll_s=60.0)
    told: list[Sequence[Event]] = []

    def listen() -> None:
        while events := backend.next_events():
            told.append(events)
            arrived.set()

    arrived, thread = threading.Event(), threading.Thread(target=listen)
    thread.start()
    backend.submit(submitted(job_of("j")))
    assert arrived.wait(30.0)
    backend.close()
    thread.join(30.0)
    assert not thread.is_alive()
    assert [type(event) for events in told for event in events] == [Arrival]


def test_a_look_at_twice_the_jobs_costs_at_most_twice_as_much(tmp_path: Path) -> None:
    counts = []
    for num_jobs in (4, 8):
        scene = Deployed.of(tmp_path / str(num_jobs), cluster(*[2] * num_jobs))
        for k in range(num_jobs):
            scene.backend.submit(submitted(job_of(f"j{k}")))
        scene.backend.next_events()
        place(scene, **{f"j{k}": f"a{k}" for k in range(num_jobs)})
        at(scene, 1.0)
        scene.backend.wake_at(1.0)
        counts.append(work(scene.backend.next_events))
        scene.backend.close()
    assert counts[1] <= 2.3 * counts[0]


def test_ids_that_are_no_names_get_folders(tmp_path: Path) -> None:
    scene = Deployed.of(tmp_path, cluster(2))
    scene.backend.submit(submitted(job_of("../etc/passwd")))
    assert json.loads((tmp_path / deployment_name("../etc/passwd") / "given.json").read_text())["number"] == 0
    scene.backend.close()
