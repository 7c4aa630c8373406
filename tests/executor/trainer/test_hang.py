"""A rank that stops in a real training: the others wait for it in a collective, and all are started again."""

import os
import signal
import sys
from pathlib import Path

import pytest

from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.agent import log_file
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, Phase
from executor.supervision import Supervisor
from executor.training_job import Device
from models.parallel_plan import symmetric_plan
from tests.executor.jobs import GPT
from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.training]

_LIMIT_S = 300.0


def test_a_stopped_rank_is_told_with_the_stacks_of_all_and_the_run_goes_on(tmp_path: Path) -> None:
    # On one host, whose agent sees both that one rank waits and that the other one is stopped.
    gpus = (("a", 0), ("a", 1))
    deployment = Deployment(
        name="job",
        model=GPT,
        plan=symmetric_plan(
            num_layers=4, pp=2, dp=1, tp=1, global_batch=8, num_micro_batches=4, gpu_type="cpu", gpus=gpus
        ),
        training=TrainingOptions(num_steps=100_000, device=Device.CPU, checkpoint_interval=0, hang_limit_s=5.0),
        launch=LaunchOptions(
            python=sys.executable,
            master_port=free_port(),
            grace_s=60.0,
            environment={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        ),
    )
    backend = LocalBackend()
    supervisor = Supervisor(tmp_path / "job", backend)
    try:
        supervisor.deploy(deployment)
        eventually(lambda: (supervisor.advance(), supervisor.status().step)[1] > 10, limit_s=_LIMIT_S)
        os.kill(supervisor.status().run.pids[1], signal.SIGSTOP)
        state = eventually(
            supervisor.advance, lambda state: len(state.runs) == 2 and state.phase is Phase.RUNNING, limit_s=_LIMIT_S
        )
        # What was stopped is woken for its stack, so that all can write a checkpoint before they end.
        assert state.current.cause is Cause.RESTARTED
        assert state.current.from_step > 10
        assert "host a hangs: rank 1 is stopped by a signal" in state.current.detail
        for rank in (0, 1):
            assert "in train_batch\n" in log_file(supervisor.folder(1), rank).read_text()
        supervisor.stop()
        assert eventually(supervisor.advance, lambda state: state.phase.final, limit_s=_LIMIT_S).phase is Phase.STOPPED
    finally:
        # Whatever happened, no rank goes on.
        for run in (tmp_path / "job" / "runs").iterdir():
            backend.stop(run, grace_s=1.0)
