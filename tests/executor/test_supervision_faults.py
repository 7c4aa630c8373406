"""Changes that fail, stops that are taken back, and launches that have to wait; on processes that pretend to train."""

import errno
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from executor.deployment import Deployment
from executor.launch.agent import hold_port
from executor.launch.base import LaunchError
from executor.launch.kubernetes import KubernetesBackend
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, DeploymentState, Phase, PhaseError
from executor.metrics import first_metrics, metrics_path
from executor.run_files import STOP_FILE
from executor.supervision import STOP_LIMIT_S, Supervisor
from executor.watch import Watch
from stowplan.errors import InputError
from tests.executor.test_supervision import deployed, drive, steps, to_the_end

pytestmark = pytest.mark.slow

# Gets ready; rank 1 breaks as soon as it is let go.
_BREAKS = "mkdir -p ready; touch ready/$RANK; while [ ! -f go ]; do sleep 0.02; done; [ $RANK = 0 ] && exec sleep 60; "
_BREAKS += "echo no memory; exit 9"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    yield from watched(tmp_path / "job")


def watched(root: Path) -> Iterator[Supervisor]:
    yield Supervisor(root, LocalBackend(), pause_s=0.3)
    for folder in sorted((root / "runs").iterdir()):
        LocalBackend().stop(folder, grace_s=1.0)


def with_command(deployment: Deployment, script: str) -> Deployment:
    return replace(deployment, launch=replace(deployment.launch, command=("/bin/sh", "-c", script)))


def causes(state: DeploymentState) -> list[Cause]:
    return [run.cause for run in state.runs]


def running(supervisor: Supervisor, deployment: Deployment) -> None:
    supervisor.deploy(deployment)
    drive(supervisor, lambda state: state.phase is Phase.RUNNING and supervisor.status().step >= 2)


def test_a_change_whose_ranks_break_before_a_step_is_taken_back(supervisor: Supervisor) -> None:
    first = deployed(2, 1, num_steps=40)
    running(supervisor, first)
    supervisor.reconfigure(with_command(deployed(1, 2, num_steps=40), _BREAKS))
    state = drive(supervisor, lambda state: len(state.runs) == 3 and state.phase is Phase.RUNNING)
    assert causes(state) == [Cause.DEPLOYED, Cause.RECONFIGURED, Cause.RETURNED]
    assert supervisor.deployment() == first
    assert state.detail == (
        "the change to PP1 DP2 TP1 (4 layers, 2 x 4) failed (rank 1 on host a ended with exit code 9): back to "
        "PP2 DP1 TP1 (2+2 layers, 2 x 4)"
    )
    assert state.fault is not None
    assert state.fault.run == 2
    assert [(dead.rank, dead.exit_code, dead.last_lines) for dead in state.fault.dead] == [(1, 9, ("no memory",))]
    # A fault is no price of a change.
    assert (state.change_cost_s, state.runs[1].cost_s) == (None, None)
    assert to_the_end(supervisor, 3).phase is Phase.FINISHED
    assert steps(supervisor, 1) + steps(supervisor, 3) == list(range(1, 41))


def test_a_change_that_keeps_breaking_before_a_checkpoint_is_taken_back(supervisor: Supervisor) -> None:
    first, second = (
        replace(plan, training=replace(plan.training, checkpoint_interval=0))
        for plan in (deployed(2, 1, num_steps=30), deployed(1, 2, num_steps=30, PRETEND_STEPS="2"))
    )
    running(supervisor, first)
    supervisor.reconfigure(second)
    state = to_the_end(supervisor, 6)
    assert state.phase is Phase.FINISHED
    assert causes(state) == [Cause.DEPLOYED, Cause.RECONFIGURED, *[Cause.RESTARTED] * 3, Cause.RETURNED]
    assert steps(supervisor, 1) + steps(supervisor, 6) == list(range(1, 31))


def test_a_new_plan_with_a_checkpoint_of_its_own_stays(supervisor: Supervisor) -> None:
    running(supervisor, deployed(2, 1, num_steps=30))
    # Seven steps hold a checkpoint.
    supervisor.reconfigure(deployed(1, 2, num_steps=30, PRETEND_STEPS="7"))
    state = drive(supervisor, lambda state: state.phase.final)
    assert state.phase is Phase.FINISHED
    assert set(causes(state)[2:]) == {Cause.RESTARTED}
    assert state.fallback is None


@pytest.mark.parametrize("changes", [False, True])
def test_what_was_stopped_goes_on(supervisor: Supervisor, changes: bool) -> None:
    first = deployed(2, 1, num_steps=30)
    running(supervisor, first)
    supervisor.stop()
    drive(supervisor, lambda state: state.phase is Phase.STOPPED)
    time.sleep(1.0)
    supervisor.reconfigure(deployed(1, 2, num_steps=30) if changes else first)
    state = to_the_end(supervisor, 2)
    assert (state.phase, causes(state)) == (Phase.FINISHED, [Cause.DEPLOYED, Cause.RESUMED])
    assert steps(supervisor, 1) + steps(supervisor, 2) == list(range(1, 31))
    # The time between is nobody's price.
    assert state.change_cost_s is None
    with pytest.raises(PhaseError, match="is finished"):
        supervisor.reconfigure(first)
    with pytest.raises(InputError, match="is finished; choose another folder"):
        supervisor.deploy(first)


def test_a_resumed_plan_that_breaks_returns_to_the_one_that_was_stopped(supervisor: Supervisor) -> None:
    running(supervisor, deployed(2, 1, num_steps=30))
    supervisor.stop()
    drive(supervisor, lambda state: state.phase is Phase.STOPPED)
    supervisor.reconfigure(with_command(deployed(1, 2, num_steps=30), "exit 9"))
    state = to_the_end(supervisor, 3)
    assert (state.phase, causes(state)) == (Phase.FINISHED, [Cause.DEPLOYED, Cause.RESUMED, Cause.RETURNED])


def test_wrong_input_is_not_tried_again(supervisor: Supervisor) -> None:
    supervisor.deploy(with_command(deployed(1, 1), "echo there are no tokens; exit 2"))
    state = drive(supervisor, lambda state: state.phase.final)
    assert (state.phase, causes(state)) == (Phase.FAILED, [Cause.DEPLOYED])
    assert state.detail == "not started again, since its input is wrong: rank 0 on host a ended with exit code 2"
    assert state.fault is not None
    assert state.fault.dead[0].last_lines == ("there are no tokens",)


def test_a_change_to_wrong_input_is_taken_back_at_once(supervisor: Supervisor) -> None:
    running(supervisor, deployed(2, 1, num_steps=30))
    supervisor.stop()
    drive(supervisor, lambda state: state.phase is Phase.STOPPED)
    # It does two steps before it comes to what it cannot read.
    second = deployed(1, 2, num_steps=30, PRETEND_STEPS="2", PRETEND_CODE="2")
    supervisor.reconfigure(replace(second, training=replace(second.training, checkpoint_interval=0)))
    state = to_the_end(supervisor, 3)
    assert (state.phase, causes(state)) == (Phase.FINISHED, [Cause.DEPLOYED, Cause.RESUMED, Cause.RETURNED])


def test_what_has_failed_goes_on_with_another_plan(supervisor: Supervisor) -> None:
    supervisor.deploy(with_command(deployed(1, 1, num_steps=5), "exit 4"))
    assert drive(supervisor, lambda state: state.phase.final).phase is Phase.FAILED
    with pytest.raises(InputError, match=r"`stowplan redeploy .*/job` goes on with it"):
        supervisor.deploy(deployed(1, 1))
    supervisor.reconfigure(deployed(1, 2, num_steps=5))
    assert drive(supervisor, lambda state: state.phase.final).phase is Phase.FINISHED


def test_a_run_that_a_scheduler_asked_to_stop_goes_on(supervisor: Supervisor) -> None:
    running(supervisor, deployed(2, 1, num_steps=40))
    (supervisor.folder(1) / STOP_FILE).touch()
    state = to_the_end(supervisor, 2)
    assert (state.phase, causes(state)) == (Phase.FINISHED, [Cause.DEPLOYED, Cause.RESTARTED])
    assert state.runs[1].detail == "ended as asked before its last step"
    assert steps(supervisor, 1) + steps(supervisor, 2) == list(range(1, 41))


def test_two_deployments_with_one_port_both_run(tmp_path: Path, supervisor: Supervisor) -> None:
    first, second = deployed(1, 2, num_steps=5), deployed(1, 2, num_steps=5)
    second = replace(second, launch=replace(second.launch, master_port=first.launch.master_port))
    supervisor.deploy(first)
    for other in watched(tmp_path / "other"):
        other.deploy(second)
        ports = [
            json.loads((each.folder(1) / "launch.json").read_text())["master_port"] for each in (supervisor, other)
        ]
        assert ports == [first.launch.master_port, first.launch.master_port + 1]
        for each in (supervisor, other):
            state = drive(each, lambda state: state.phase.final)
            assert (state.phase, len(state.runs)) == (Phase.FINISHED, 1)


def test_a_restart_takes_another_port(supervisor: Supervisor) -> None:
    plan = deployed(1, 1, num_steps=12, PRETEND_FAULT="6")
    running(supervisor, plan)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", plan.launch.master_port + 1))
        taken.listen()
        state = drive(supervisor, lambda state: state.phase.final)
    assert (state.phase, causes(state)) == (Phase.FINISHED, [Cause.DEPLOYED, Cause.RESTARTED])
    launch = json.loads((supervisor.folder(2) / "launch.json").read_text())
    assert launch["master_port"] == plan.launch.master_port + 2


def test_a_restart_without_a_free_port_waits_for_one(supervisor: Supervisor) -> None:
    plan = deployed(1, 1, num_steps=12, PRETEND_FAULT="6")
    running(supervisor, plan)
    with ExitStack() as taken:
        for port in range(plan.launch.master_port + 1, plan.launch.master_port + 10):
            taken.enter_context(hold_port("127.0.0.1", port))
        # The port of the run that is about to break is taken by somebody else, too.
        own = taken.enter_context(socket.socket())
        own.bind(("127.0.0.1", plan.launch.master_port))
        own.listen()
        state = drive(supervisor, lambda state: state.launch is not None and state.launch.failures == 2)
        assert state.phase is Phase.STARTING
        assert "rank 0 on host a was killed by SIGKILL; the next run could not be started: port" in state.detail
        assert [path.name for path in (supervisor.root / "runs").iterdir()] == ["0001"]
    state = drive(supervisor, lambda state: state.phase.final)
    assert (state.phase, causes(state)) == (Phase.FINISHED, [Cause.DEPLOYED, Cause.RESTARTED])
    first, cost_s = first_metrics(metrics_path(supervisor.folder(2) / "metrics", 0)), state.runs[1].cost_s
    assert first is not None
    assert cost_s == first.started_at_s - state.runs[1].started_at_s


class _FullDisk:
    """Stands in for what writes a run: leaves a part of it."""

    def __init__(self) -> None:
        self.attempts = 0

    def __call__(self, _: Deployment, folder: Path, *__: object, **___: object) -> None:
        self.attempts += 1
        folder.mkdir(parents=True)
        (folder / "job.json").write_text("{")
        raise InputError(f"{folder} cannot be written: No space left on device") from OSError(errno.ENOSPC, "full")


def test_a_full_disk_is_waited_for_and_leaves_no_folders(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    running(supervisor, deployed(1, 1, num_steps=12, PRETEND_FAULT="6"))
    disk = _FullDisk()
    with monkeypatch.context() as patch:
        patch.setattr("executor.run_folders.write_bundle", disk)
        state = drive(supervisor, lambda state: state.launch is not None)
        assert state.launch is not None
        assert supervisor.advance() == state
        assert disk.attempts == 1
        assert [path.name for path in (supervisor.root / "runs").iterdir()] == ["0001"]
        assert "No space left on device; tried again after 0 s" in state.detail
    assert drive(supervisor, lambda state: state.phase.final).phase is Phase.FINISHED


def test_a_disk_that_stays_full_is_given_up(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    running(supervisor, deployed(1, 1, num_steps=12, PRETEND_FAULT="6"))
    disk, now, backend = _FullDisk(), [0.0], LocalBackend()
    backend.watch = Watch(lambda: now[0])
    hasty = Supervisor(supervisor.root, backend)
    pauses: dict[int, float] = {}

    def skips_pauses(state: DeploymentState) -> bool:
        if state.launch is not None:
            pauses[state.launch.failures] = state.launch.pause_s
            now[0] += state.launch.pause_s
        return state.phase.final

    with monkeypatch.context() as patch:
        patch.setattr("executor.run_folders.write_bundle", disk)
        state = drive(hasty, skips_pauses)
    assert (state.phase, disk.attempts, pauses) == (Phase.FAILED, 4, {1: 15.0, 2: 60.0, 3: 240.0})
    assert "was killed by SIGKILL; the next run could not be started: " in state.detail
    supervisor.reconfigure(deployed(1, 1, num_steps=12))
    assert drive(supervisor, lambda state: state.phase.final).phase is Phase.FINISHED


def test_a_run_that_cannot_be_noted_is_ended(supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch) -> None:
    running(supervisor, deployed(1, 1, num_steps=12, PRETEND_FAULT="6"))
    before = supervisor.state()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("executor.kept_deployment.write_record", full)
        with pytest.raises(OSError, match="No space left"):
            drive(supervisor, lambda state: state.phase.final)
        with pytest.raises(LaunchError, match="No space left"):
            supervisor.reconfigure(deployed(1, 2, num_steps=12))
        assert [path.name for path in (supervisor.root / "runs").iterdir()] == ["0001"]
        assert supervisor.state() == before
    assert drive(supervisor, lambda state: state.phase.final).phase is Phase.FINISHED


def test_a_manifest_that_was_never_applied_can_be_stopped(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path / "job", KubernetesBackend())
    supervisor.deploy(deployed(1, 1))
    assert supervisor.advance().phase is Phase.STARTING
    assert "kubectl apply -f" in supervisor.status().run.detail
    supervisor.stop()
    state = supervisor.advance()
    assert state.phase is Phase.STOPPED
    assert state.detail.startswith("what became of the run is not known: no word yet from a; kubectl apply -f")
    supervisor.reconfigure(deployed(1, 1))
    assert supervisor.state().phase is Phase.STARTING


def test_a_run_that_falls_silent_while_it_stops_is_over_some_day(tmp_path: Path) -> None:
    now, backend = [0.0], KubernetesBackend()
    backend.watch = Watch(lambda: now[0])
    supervisor = Supervisor(tmp_path / "job", backend)
    supervisor.deploy(deployed(1, 1))
    rank = {"pid": 1, "running": True, "exit_code": None, "signal": None, "ended_by_agent": False}
    report = {"host": "a", "num_beats": 1, "final": False, "stopped": False, "error": None, "ranks": {"0": rank}}
    (supervisor.folder(1) / "status").mkdir()
    (supervisor.folder(1) / "status" / "a.json").write_text(json.dumps(report))
    os.utime(supervisor.folder(1) / "status" / "a.json", (0.0, 0.0))
    supervisor.stop()
    supervisor.advance()
    now[0] += STOP_LIMIT_S
    assert supervisor.advance().phase is Phase.STOPPING
    now[0] += 1.0
    state = supervisor.advance()
    assert state.phase is Phase.STOPPED
    assert "not known: no word from a for more than 30 s" in state.detail


def test_one_process_looks_after_a_deployment(supervisor: Supervisor) -> None:
    supervisor.deploy(deployed(1, 1, num_steps=2))
    lease = supervisor.lease()
    assert lease is not None
    with lease:
        assert Supervisor(supervisor.root, LocalBackend()).lease() is None
    again = supervisor.lease()
    assert again is not None
    again.close()


def test_logs_are_those_of_the_run_that_trains(supervisor: Supervisor) -> None:
    supervisor.deploy(deployed(2, 1, num_steps=40))
    assert supervisor.training_run() == 1
    drive(supervisor, lambda state: state.phase is Phase.RUNNING)
    supervisor.reconfigure(deployed(1, 2, num_steps=40))
    assert (supervisor.state().current.number, supervisor.training_run()) == (2, 1)
    to_the_end(supervisor, 2)
    assert supervisor.training_run() == 2
    shutil.rmtree(supervisor.folder(1))
    with pytest.raises(InputError, match="cannot be read as a deployment"):
        supervisor.deployment(1)
