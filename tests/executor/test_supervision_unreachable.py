"""Deployments whose runs cannot be reached, or do not get ready; nothing runs here, the backend only pretends."""

import errno
import time
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from executor.deployment import Deployment
from executor.launch.base import LaunchBackend, LaunchError, RunState, RunStatus
from executor.lifecycle import Cause, Phase
from executor.rank_table import hosts_of
from executor.run_files import GO_FILE, READY_FOLDER, STOP_FILE
from executor.supervision import QUEUE_LIMIT_S, READY_LIMIT_S, STOP_LIMIT_S, Supervisor
from executor.watch import Watch
from tests.executor.test_supervision import deployed

pytestmark = pytest.mark.slow


class _Backend(LaunchBackend):
    """Runs by the names of their folders; nothing can be started or ended while the host is away."""

    name: ClassVar[str] = "pretended"

    def __init__(self) -> None:
        self.is_away = False
        self.states: dict[str, RunState] = {}
        self.ended: list[str] = []
        self.unavailable: dict[str, tuple[str, ...]] = {}
        self.is_queue_empty = False
        self.is_silent = False

    def start(self, folder: Path) -> None:
        self._reach()
        self.states[folder.name] = RunState.RUNNING

    def stop(self, folder: Path, grace_s: float = 10.0) -> None:  # noqa: ARG002 - ends at once
        self._reach()
        self.ended.append(folder.name)
        if folder.name in self.states and not self.states[folder.name].final:
            self.states[folder.name] = RunState.STOPPED

    def status(self, folder: Path) -> RunStatus:
        state = self.states[folder.name]
        unavailable = self.unavailable.get(folder.name, ())
        return RunStatus(
            state=state,
            is_queued=state is RunState.STARTING and not self.is_queue_empty and not self.is_silent,
            is_unknown=self.is_silent,
            unavailable=unavailable,
            detail="no word yet from a" if self.is_queue_empty else " ".join(unavailable),
        )

    def _reach(self) -> None:
        if self.is_away:
            raise LaunchError("host a cannot be reached")


class _Scene:
    """A deployment with one run, and a clock."""

    def __init__(self, root: Path, deployment: Deployment | None = None) -> None:
        self.backend = _Backend()
        self.now_s = 0.0
        self.backend.watch = Watch(lambda: self.now_s)
        self.supervisor = Supervisor(root, self.backend)
        self.supervisor.deploy(deployment or deployed(2, 1))

    def folder(self, number: int) -> Path:
        return self.supervisor.folder(number)

    def lose(self, number: int, *hosts: str) -> None:
        """Let a run wait for hosts that take no job."""
        self.backend.states[f"{number:04d}"], self.backend.unavailable[f"{number:04d}"] = RunState.STARTING, hosts

    def hosts(self) -> list[str]:
        return list(hosts_of(self.supervisor.deployment().ranks()))

    def change(self) -> None:
        self.supervisor.reconfigure(deployed(1, 2))

    def pass_s(self, seconds: float) -> None:
        self.supervisor.advance()
        self.now_s += seconds

    def get_ready(self) -> None:
        (self.folder(2) / READY_FOLDER).mkdir()
        for rank in range(2):
            (self.folder(2) / READY_FOLDER / str(rank)).touch()


def with_spares(*spares: str) -> Deployment:
    """On hosts a and b."""
    deployment = deployed(2, 2)
    return replace(deployment, launch=replace(deployment.launch, spares=spares))


@pytest.fixture
def scene(tmp_path: Path) -> _Scene:
    return _Scene(tmp_path / "job")


def test_a_run_that_could_not_be_ended_is_ended_before_the_next_one_starts(scene: _Scene) -> None:
    scene.backend.is_away, scene.backend.states["0001"] = True, RunState.LOST
    state = scene.supervisor.advance()
    assert (state.phase, len(state.runs)) == (Phase.STARTING, 1)
    assert "run 1 could not be ended: host a cannot be reached; tried again after 15 s" in state.detail
    scene.pass_s(15.0)
    assert len(scene.supervisor.advance().runs) == 1
    scene.backend.is_away = False
    scene.pass_s(60.0)
    state = scene.supervisor.advance()
    assert ([run.number for run in state.runs], scene.backend.ended) == ([1, 2], ["0001"])


def test_no_other_plan_starts_beside_a_run_that_could_not_be_ended(
    scene: _Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise LaunchError("host a cannot be reached")

    scene.backend.states["0001"] = RunState.LOST
    with monkeypatch.context() as patch:
        patch.setattr(scene.backend, "stop", stop)
        scene.supervisor.advance()
        with pytest.raises(LaunchError, match="run 1 could not be ended: host a cannot be reached"):
            scene.change()
    scene.change()
    assert ([run.number for run in scene.supervisor.state().runs], scene.backend.ended) == ([1, 2], ["0001"])


def test_nothing_waits_for_a_run_that_ended_by_itself(scene: _Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise LaunchError("host a cannot be reached")

    monkeypatch.setattr(scene.backend, "stop", stop)
    scene.backend.states["0001"] = RunState.FAILED
    assert [run.number for run in scene.supervisor.advance().runs] == [1, 2]


def test_the_next_run_does_not_go_while_the_old_one_cannot_be_ended(scene: _Scene) -> None:
    scene.change()
    scene.get_ready()
    scene.supervisor.advance()
    assert (scene.folder(1) / STOP_FILE).exists()
    scene.backend.is_away = True
    scene.pass_s(STOP_LIMIT_S + 1.0)
    state = scene.supervisor.advance()
    assert (state.phase, state.detail) == (
        Phase.RECONFIGURING,
        "run 1 could not be ended: host a cannot be reached",
    )
    assert not (scene.folder(2) / GO_FILE).exists()
    scene.backend.is_away = False
    assert scene.supervisor.advance().phase is Phase.RUNNING
    assert (scene.folder(2) / GO_FILE).exists()
    assert scene.backend.states["0001"] is RunState.STOPPED


_LEFT = "run 2 could not be ended: host a cannot be reached; it ends by itself"


def test_a_next_run_that_cannot_be_reached_ends_itself_when_the_change_is_stopped(scene: _Scene) -> None:
    scene.change()
    scene.backend.is_away = True
    scene.supervisor.stop()
    state = scene.supervisor.state()
    assert (state.phase, len(state.runs), state.detail) == (Phase.STOPPING, 1, _LEFT)
    assert all((scene.folder(number) / STOP_FILE).exists() for number in (1, 2))
    assert not (scene.folder(2) / GO_FILE).exists()


def test_a_next_run_that_does_not_start_ends_itself_where_it_cannot_be_reached(scene: _Scene) -> None:
    scene.change()
    scene.backend.is_away, scene.backend.states["0002"] = True, RunState.FAILED
    state = scene.supervisor.advance()
    assert (state.phase, len(state.runs)) == (Phase.RUNNING, 1)
    assert state.detail.endswith(f"did not start: failed; {_LEFT}")
    assert (scene.folder(2) / STOP_FILE).exists()


def test_a_change_fails_when_its_next_run_is_lost(scene: _Scene) -> None:
    scene.change()
    scene.backend.states["0002"] = RunState.LOST
    state = scene.supervisor.advance()
    assert (state.phase, len(state.runs), scene.backend.ended) == (Phase.RUNNING, 1, ["0002"])
    assert state.detail.endswith("did not start: lost")


@pytest.mark.parametrize("was", [RunState.STARTING, RunState.RUNNING])
def test_a_change_fails_when_its_next_run_does_not_get_ready(scene: _Scene, was: RunState) -> None:
    scene.change()
    scene.backend.states["0002"] = was
    scene.pass_s(READY_LIMIT_S)
    assert scene.supervisor.advance().phase is Phase.RECONFIGURING
    scene.now_s += 1.0
    state = scene.supervisor.advance()
    assert (state.phase, len(state.runs), scene.backend.ended) == (Phase.RUNNING, 1, ["0002"])
    assert state.detail.endswith(f"did not start: not ready after 30 min: {was}")


def test_a_run_whose_host_never_says_anything_is_started_again(scene: _Scene) -> None:
    limit_s = scene.supervisor.deployment().training.start_limit_s
    scene.backend.states["0001"] = RunState.STARTING
    # A queue may take as long as it likes.
    scene.pass_s(10 * limit_s)
    assert len(scene.supervisor.advance().runs) == 1
    scene.backend.is_queue_empty = True
    scene.pass_s(limit_s)
    assert len(scene.supervisor.advance().runs) == 1
    scene.now_s += 1.0
    state = scene.supervisor.advance()
    assert ([run.cause for run in state.runs], scene.backend.ended) == ([Cause.DEPLOYED, Cause.RESTARTED], ["0001"])
    assert state.detail == "no word yet from a for more than 1200 s"


@pytest.mark.parametrize("was", [RunState.STARTING, RunState.LOST])
def test_a_run_waits_for_a_scheduler_that_does_not_answer(scene: _Scene, was: RunState) -> None:
    scene.backend.states["0001"] = RunState.STARTING
    scene.pass_s(1.0)
    scene.backend.states["0001"], scene.backend.is_silent, scene.backend.is_away = was, True, True
    for _ in range(5):
        scene.pass_s(1000.0)
    # It waits in the queue still.
    scene.backend.states["0001"], scene.backend.is_silent, scene.backend.is_away = RunState.STARTING, False, False
    for _ in range(5):
        scene.pass_s(1000.0)
    state = scene.supervisor.advance()
    assert (state.phase, len(state.runs), scene.backend.ended) == (Phase.STARTING, 1, [])


def test_silence_counts_on_while_the_scheduler_does_not_answer(scene: _Scene) -> None:
    limit_s = scene.supervisor.deployment().training.start_limit_s
    scene.backend.states["0001"], scene.backend.is_queue_empty = RunState.STARTING, True
    scene.pass_s(limit_s)
    scene.backend.is_silent = True
    scene.pass_s(1.0)
    scene.backend.is_silent = False
    assert len(scene.supervisor.advance().runs) == 2


def test_a_stop_waits_for_a_scheduler_that_does_not_answer(scene: _Scene) -> None:
    scene.backend.states["0001"] = RunState.STARTING
    scene.backend.is_silent = scene.backend.is_away = True
    scene.supervisor.stop()
    scene.pass_s(60.0)
    assert scene.supervisor.advance().phase is Phase.STOPPING
    scene.backend.is_silent = scene.backend.is_away = False
    assert scene.supervisor.advance().phase is Phase.STOPPED
    assert scene.backend.ended == ["0001"]


@pytest.mark.parametrize("waited_s", [0.0, 1300.0])
def test_a_run_that_never_spoke_is_stopped_at_once(scene: _Scene, waited_s: float) -> None:
    scene.backend.states["0001"], scene.backend.is_queue_empty = RunState.STARTING, True
    scene.pass_s(waited_s)
    scene.supervisor.stop()
    assert (scene.supervisor.advance().phase, scene.backend.ended) == (Phase.STOPPED, ["0001"])


def test_a_run_that_is_started_by_hand_may_wait(scene: _Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Backend, "starts_runs", False)
    scene.backend.states["0001"], scene.backend.is_queue_empty = RunState.STARTING, True
    scene.pass_s(1e6)
    assert len(scene.supervisor.advance().runs) == 1


def test_spares_take_the_place_of_hosts_that_take_no_job(tmp_path: Path) -> None:
    scene = _Scene(tmp_path / "job", with_spares("b", "c", "d"))
    scene.lose(1, "b")
    state = scene.supervisor.advance()
    assert (scene.hosts(), scene.backend.ended) == (["a", "c"], ["0001"])
    assert (state.phase, state.current.cause, state.faults) == (Phase.STARTING, Cause.RESTARTED, 0)
    assert state.detail == "c takes the place of b: b"
    scene.lose(2, "a", "c")
    # One spare is left for two hosts.
    assert scene.supervisor.advance() == state
    scene.lose(2, "c")
    scene.supervisor.advance()
    assert scene.hosts() == ["a", "d"]
    # None comes back that has been used.
    scene.lose(3, "d")
    assert scene.supervisor.advance().current.number == 3


def test_a_move_to_spares_is_tried_again(tmp_path: Path) -> None:
    scene = _Scene(tmp_path / "job", with_spares("c"))
    scene.lose(1, "a")
    scene.backend.is_away = True
    state = scene.supervisor.advance()
    assert "host a cannot be reached; tried again" in state.detail
    scene.backend.is_away = False
    scene.pass_s(100.0)
    scene.supervisor.advance()
    assert scene.hosts() == ["c", "b"]


def test_a_change_to_hosts_that_take_no_job_is_taken_back(scene: _Scene) -> None:
    scene.change()
    scene.lose(2, "b")
    state = scene.supervisor.advance()
    assert (state.phase, len(state.runs), scene.backend.ended) == (Phase.RUNNING, 1, ["0002"])
    assert not (scene.folder(1) / STOP_FILE).exists()


def test_a_run_that_waits_for_hosts_makes_way_at_once(scene: _Scene) -> None:
    scene.lose(1, "a")
    scene.change()
    assert scene.supervisor.advance().phase is Phase.RUNNING
    assert (scene.backend.ended, (scene.folder(2) / GO_FILE).exists()) == (["0001"], True)


def test_the_old_run_makes_way_where_there_is_no_room_for_both(scene: _Scene) -> None:
    scene.change()
    scene.backend.states["0002"] = RunState.STARTING
    scene.pass_s(QUEUE_LIMIT_S + 1.0)
    assert not (scene.folder(1) / STOP_FILE).exists()
    scene.supervisor.advance()
    assert (scene.folder(1) / STOP_FILE).exists()
    scene.backend.states["0001"] = RunState.SUCCEEDED
    assert scene.supervisor.advance().phase is Phase.RUNNING
    assert (scene.folder(2) / GO_FILE).exists()


def test_a_ready_run_waits_longer(scene: _Scene) -> None:
    scene.change()
    scene.get_ready()
    scene.pass_s(READY_LIMIT_S + 1.0)
    assert scene.supervisor.advance().phase is Phase.RECONFIGURING
    assert (scene.folder(1) / STOP_FILE).exists()


@pytest.mark.parametrize("step_s", [3600.0, -3600.0])
def test_a_step_of_the_clock_neither_ends_nor_delays_anything(
    scene: _Scene, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    began_s = time.time()
    scene.change()
    scene.backend.states["0002"] = RunState.STARTING
    scene.supervisor.advance()
    monkeypatch.setattr(time, "time", lambda: began_s + step_s)
    assert scene.supervisor.advance().phase is Phase.RECONFIGURING
    assert not (scene.folder(1) / STOP_FILE).exists()
    scene.supervisor.stop()
    scene.pass_s(STOP_LIMIT_S + 1.0)
    assert scene.supervisor.state().phase is Phase.STOPPING
    assert scene.supervisor.advance().phase is Phase.STOPPED


def test_a_stop_that_cannot_be_noted_asks_for_nothing(scene: _Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("executor.kept_deployment.write_record", full)
        with pytest.raises(OSError, match="No space left"):
            scene.supervisor.stop()
    assert not (scene.folder(1) / STOP_FILE).exists()


def test_a_stop_that_was_noted_only_is_carried_out(scene: _Scene) -> None:
    scene.supervisor.stop()
    (scene.folder(1) / STOP_FILE).unlink()
    assert scene.supervisor.advance().phase is Phase.STOPPING
    assert (scene.folder(1) / STOP_FILE).exists()
