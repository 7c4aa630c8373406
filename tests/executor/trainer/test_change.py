"""A change of plan of a real training: the next run is prepared beside the one that trains.

That losses go on as if nothing had happened is in `test_resume`.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.change import RunChange
from executor.checkpoints import last_good
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, Phase
from executor.supervision import Supervisor
from executor.training_options import Device
from models.parallel_plan import symmetric_plan
from tests.executor.jobs import GPT, SCHEDULE
from tests.executor.trainer.forking import forking
from tests.executor.trainer.launching import steps_of
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.training]

_LIMIT_S = 300.0


@pytest.fixture
def command() -> Iterator[tuple[str, ...]]:
    """Starts ranks of the trainer."""
    with forking() as ranks:
        yield ranks(())


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    """Of a deployment whose runs are ended."""
    made = Supervisor(tmp_path / "job", LocalBackend())
    yield made
    for folder in sorted((tmp_path / "job" / "runs").iterdir()):
        LocalBackend().stop(folder, grace_s=1.0)


def _deployment(command: tuple[str, ...], pp: int, dp: int) -> Deployment:
    plan = symmetric_plan(
        num_layers=GPT.num_layers,
        pp=pp,
        dp=dp,
        tp=1,
        global_batch=GPT.global_batch,
        num_micro_batches=4 // dp,
        gpu_type="cpu",
        gpus=tuple(("here", gpu) for gpu in range(pp * dp)),
    )
    return Deployment(
        name="llm",
        model=GPT,
        plan=plan,
        training=TrainingOptions(num_steps=100_000, device=Device.CPU, schedule=SCHEDULE, checkpoint_interval=0),
        launch=LaunchOptions(master_port=free_port(), command=command, grace_s=1.0),
    )


def test_only_the_checkpoint_is_left_to_be_loaded(supervisor: Supervisor, command: tuple[str, ...]) -> None:
    supervisor.deploy(_deployment(command, 1, 2))
    eventually(lambda: (supervisor.advance(), supervisor.status().step)[1] >= 2, limit_s=_LIMIT_S)
    supervisor.reconfigure(_deployment(command, 2, 1))
    eventually(lambda: supervisor.advance().current.cost_s is not None, limit_s=_LIMIT_S, poll_s=0.02)
    supervisor.stop()
    state = eventually(supervisor.advance, lambda state: state.phase.final, limit_s=_LIMIT_S)
    first, second = state.runs
    assert (second.cause, second.change) == (Cause.RECONFIGURED, RunChange.DEGREES)
    assert first.change is RunChange.START
    assert set(state.costs_s) == {RunChange.START, RunChange.DEGREES}
    stall = second.stall
    assert stall is not None
    assert second.cost_s == pytest.approx(stall.total_s)
    assert stall.launch_s == stall.imports_s == stall.meeting_s == stall.building_s == 0.0
    assert min(stall.saving_s, stall.handover_s, stall.conversion_s, stall.loading_s) > 0.0
    done = [step for number in (1, 2) for step in steps_of(supervisor.folder(number) / "metrics")]
    assert [step.step for step in done] == list(range(1, len(done) + 1))


def test_a_prepared_rank_that_is_killed_leaves_the_old_run_alone(
    supervisor: Supervisor, command: tuple[str, ...]
) -> None:
    supervisor.deploy(_deployment(command, 1, 2))
    eventually(lambda: (supervisor.advance(), supervisor.status().step)[1] >= 2, limit_s=_LIMIT_S)
    supervisor.reconfigure(_deployment(command, 2, 1))
    following = supervisor.folder(2)
    pids = eventually(lambda: LocalBackend().status(following).pids, lambda pids: len(pids) == 2, limit_s=_LIMIT_S)
    os.kill(pids[1], signal.SIGKILL)
    state = eventually(supervisor.advance, lambda state: state.phase is not Phase.RECONFIGURING, limit_s=_LIMIT_S)
    assert (state.phase, len(state.runs)) == (Phase.RUNNING, 1)
    assert "rank 1 on host here was killed by SIGKILL" in state.detail
    assert not LocalBackend().status(following).pids
    # Whatever the killed run had begun, the old one goes on and writes its checkpoint.
    step = supervisor.status().step
    eventually(lambda: (supervisor.advance(), supervisor.status().step)[1] > step, limit_s=_LIMIT_S)
    supervisor.stop()
    eventually(supervisor.advance, lambda state: state.phase.final, limit_s=_LIMIT_S)
    found = last_good(supervisor.checkpoints)
    assert found is not None
    assert found.step == steps_of(supervisor.folder(1) / "metrics")[-1].step
