"""Deployments through faults and changes of plan, on local processes that only pretend to train."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from executor.checkpoints import last_good
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.agent import log_file
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, DeploymentState, Phase
from executor.metrics import metrics_path, read_metrics
from executor.supervision import Supervisor
from executor.training_options import Device
from models.parallel_plan import symmetric_plan
from models.transformer import Transformer
from stowplan.errors import InputError
from tests.executor.pretend_training import HURRY_FILE
from tests.paths import PRETEND_TRAINER, ROOT
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.slow

MODEL = Transformer(num_layers=4, hidden_size=128, vocabulary_size=100, sequence_length=32, global_batch=8)


def deployed(pp: int, dp: int, num_steps: int = 1000, **environment: str) -> Deployment:
    """A deployment on pp x dp GPUs of hosts a and b."""
    gpus = tuple((node, gpu) for node in ("a", "b") for gpu in range(2))[: pp * dp]
    plan = symmetric_plan(
        num_layers=4, pp=pp, dp=dp, tp=1, global_batch=8, num_micro_batches=2, gpu_type="cpu", gpus=gpus
    )
    launch = LaunchOptions(
        master_port=free_port(),
        command=(sys.executable, str(PRETEND_TRAINER)),
        python=sys.executable,
        environment={"PYTHONPATH": str(ROOT), **environment},
        grace_s=1.0,
    )
    training = TrainingOptions(num_steps=num_steps, device=Device.CPU, checkpoint_interval=5)
    return Deployment(name="job", model=MODEL, plan=plan, training=training, launch=launch)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    made = Supervisor(tmp_path / "job", LocalBackend())
    yield made
    for folder in sorted((tmp_path / "job" / "runs").iterdir()):
        LocalBackend().stop(folder, grace_s=1.0)


def drive(supervisor: Supervisor, until: Callable[[DeploymentState], bool]) -> DeploymentState:
    """Advance until the condition holds."""
    return eventually(supervisor.advance, until, poll_s=0.1)


def to_the_end(supervisor: Supervisor, number: int) -> DeploymentState:
    """Advance until the deployment is over; when run `number` trains, nothing needs time any more."""
    drive(supervisor, lambda state: state.phase.final or (state.phase is Phase.RUNNING and len(state.runs) >= number))
    (supervisor.root / HURRY_FILE).touch()
    return drive(supervisor, lambda state: state.phase.final)


def steps(supervisor: Supervisor, number: int) -> list[int]:
    return [step.step for step in read_metrics(metrics_path(supervisor.folder(number) / "metrics", 0))]


def test_a_run_that_ends_well_is_finished(supervisor: Supervisor) -> None:
    plan = deployed(2, 1, num_steps=7)
    supervisor.deploy(plan)
    assert supervisor.state().phase is Phase.STARTING
    assert drive(supervisor, lambda state: state.phase.final).phase is Phase.FINISHED
    status = supervisor.status()
    assert status.step == 7
    assert status.loss == pytest.approx(1 / 7)
    assert supervisor.advance() == status.state


def test_a_killed_rank_goes_on_from_the_last_good_checkpoint(supervisor: Supervisor) -> None:
    plan = deployed(2, 2, num_steps=12, PRETEND_FAULT="8")
    supervisor.deploy(plan)
    state = drive(supervisor, lambda state: state.phase.final)
    assert state.phase is Phase.FINISHED
    assert [(run.cause, run.from_step) for run in state.runs] == [(Cause.DEPLOYED, 0), (Cause.RESTARTED, 5)]
    assert state.runs[1].detail == "rank 0 on host a was killed by SIGKILL"
    # Steps 6 to 8 were done twice: what stands behind the checkpoint is lost, nothing else.
    assert (steps(supervisor, 1), steps(supervisor, 2)) == (list(range(1, 9)), list(range(6, 13)))
    assert state.runs[1].cost_s is not None
    assert state.runs[1].cost_s > 0


def test_a_rank_that_hangs_costs_what_stands_behind_the_last_good_checkpoint(supervisor: Supervisor) -> None:
    plan = deployed(2, 2, num_steps=30)
    supervisor.deploy(replace(plan, training=replace(plan.training, hang_limit_s=2.0)))
    drive(supervisor, lambda _: supervisor.status().step >= 6)
    os.kill(supervisor.status().run.pids[0], signal.SIGSTOP)
    state = to_the_end(supervisor, 2)
    assert state.phase is Phase.FINISHED
    assert [(run.cause, run.from_step % 5) for run in state.runs] == [(Cause.DEPLOYED, 0), (Cause.RESTARTED, 0)]
    assert "host a hangs: rank 0 is stopped by a signal" in state.runs[1].detail
    assert "in train\n" in log_file(supervisor.folder(1), 0).read_text()
    assert steps(supervisor, 2) == list(range(state.runs[1].from_step + 1, 31))


def test_a_change_of_plan_loses_no_step(supervisor: Supervisor) -> None:
    first, second = deployed(2, 1), deployed(1, 2, num_steps=40)
    supervisor.deploy(first)
    drive(supervisor, lambda state: state.phase is Phase.RUNNING and supervisor.status().step >= 3)
    supervisor.reconfigure(second)
    assert supervisor.state().phase is Phase.RECONFIGURING
    with pytest.raises(InputError, match="is reconfiguring"):
        supervisor.reconfigure(first)
    state = to_the_end(supervisor, 2)
    assert state.phase is Phase.FINISHED
    assert [run.cause for run in state.runs] == [Cause.DEPLOYED, Cause.RECONFIGURED]
    assert steps(supervisor, 1) + steps(supervisor, 2) == list(range(1, 41))
    cost_s = state.runs[1].cost_s
    assert cost_s is not None
    # The processes were up before the old ones ended: less than it takes to start Python anew twice.
    assert 0 <= cost_s < 5


def test_a_new_plan_that_does_not_start_leaves_the_old_one_alone(supervisor: Supervisor) -> None:
    first = deployed(2, 1, num_steps=60)
    broken = replace(first, launch=replace(first.launch, command=("/bin/false",), master_port=free_port()))
    supervisor.deploy(first)
    drive(supervisor, lambda state: state.phase is Phase.RUNNING)
    supervisor.reconfigure(broken)
    state = drive(supervisor, lambda state: state.phase is not Phase.RECONFIGURING)
    assert (state.phase, len(state.runs)) == (Phase.RUNNING, 1)
    assert "did not start" in state.detail
    assert to_the_end(supervisor, 1).phase is Phase.FINISHED
    assert steps(supervisor, 1) == list(range(1, 61))


def test_a_new_plan_that_breaks_after_the_old_one_ended(supervisor: Supervisor) -> None:
    first = deployed(2, 1, num_steps=60)
    late = "mkdir -p ready; touch ready/$RANK; while [ ! -f ../0001/stop ]; do sleep 0.02; done; exit 9"
    broken = replace(first, launch=replace(first.launch, command=("/bin/sh", "-c", late)))
    supervisor.deploy(first)
    drive(supervisor, lambda state: state.phase is Phase.RUNNING)
    supervisor.reconfigure(broken)
    state = drive(supervisor, lambda state: state.phase.final)
    assert state.phase is Phase.FINISHED
    # The second run did no step; whether it broke before or after it was let go is a matter of milliseconds.
    done = [step for run in state.runs if run.number != 2 for step in steps(supervisor, run.number)]
    assert done == list(range(1, 61))


def test_stopping_writes_a_checkpoint_first(supervisor: Supervisor) -> None:
    plan = deployed(1, 2)
    supervisor.deploy(plan)
    drive(supervisor, lambda state: state.phase is Phase.RUNNING and supervisor.status().step >= 2)
    supervisor.stop()
    assert drive(supervisor, lambda state: state.phase.final).phase is Phase.STOPPED
    checkpoint = last_good(supervisor.checkpoints)
    assert checkpoint is not None
    assert checkpoint.step == steps(supervisor, 1)[-1]
    supervisor.stop()


def test_runs_that_keep_breaking_are_given_up(supervisor: Supervisor) -> None:
    plan = deployed(1, 1)
    plan = replace(plan, launch=replace(plan.launch, command=("/bin/sh", "-c", "echo no such device; exit 4")))
    supervisor.deploy(plan)
    state = drive(supervisor, lambda state: state.phase.final)
    assert (state.phase, len(state.runs)) == (Phase.FAILED, 4)
    assert "given up after 3 restarts" in state.detail
    assert "rank 0 on host a ended with exit code 4" in state.detail


def test_another_supervisor_goes_on(supervisor: Supervisor) -> None:
    plan = deployed(1, 1, num_steps=20)
    supervisor.deploy(plan)
    drive(supervisor, lambda state: state.phase is Phase.RUNNING)
    other = Supervisor(supervisor.root, LocalBackend())
    # The rank dies while nobody looks.
    os.kill(other.status().run.pids[0], signal.SIGKILL)
    assert drive(other, lambda state: state.phase.final).phase is Phase.FINISHED
    assert [run.cause for run in other.state().runs] == [Cause.DEPLOYED, Cause.RESTARTED]


def test_what_is_refused(supervisor: Supervisor, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as a deployment"):
        supervisor.state()
    plan = deployed(1, 1, num_steps=3)
    supervisor.deploy(plan)
    with pytest.raises(InputError, match="holds a deployment already"):
        supervisor.deploy(plan)
    drive(supervisor, lambda state: state.phase.final)
    with pytest.raises(InputError, match="is finished"):
        supervisor.reconfigure(plan)
    assert json.loads((tmp_path / "job" / "state.json").read_text())["phase"] == "finished"
