"""A deployment whose plan changes to one that is not symmetric, and whose ranks die: the training goes on."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, Phase
from executor.metrics import StepMetrics
from executor.supervision import Supervisor
from executor.training_options import Device, EngineName
from models.parallel_plan import ParallelPlan, Replica, Stage, symmetric_plan
from tests.executor.jobs import GPT, SCHEDULE, tiny_job
from tests.executor.trainer.forking import forking
from tests.executor.trainer.launching import PREPARED_BY, steps_of
from tests.executor.trainer.native import prepared
from tests.executor.trainer.reference import reference
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.training]

_LIMIT_S = 300.0
_PAIR = symmetric_plan(
    num_layers=4, pp=2, dp=1, tp=1, global_batch=8, num_micro_batches=4, gpu_type="cpu", gpus=(("a", 0), ("a", 1))
)


def _replica(gpus: tuple[int, ...], local_batch: int, node: str = "a") -> Replica:
    return Replica(node=node, gpu_type="cpu" if node == "a" else "other", gpus=gpus, local_batch=local_batch)


# Onto two more GPUs, one of them on another host and of another type: shares of 3 and 1, then a tensor group.
_GROWN = ParallelPlan(
    stages=(
        Stage(num_layers=3, replicas=(_replica((0,), 3), _replica((1,), 1))),
        Stage(num_layers=1, replicas=(_replica((0, 1), 4, "b"),)),
    ),
    num_micro_batches=2,
)


def _steps(supervisor: Supervisor, run: int) -> list[StepMetrics]:
    return steps_of(supervisor.folder(run) / "metrics")


def test_a_running_job_grows_onto_released_gpus_and_survives_a_fault(tmp_path: Path) -> None:
    backend = LocalBackend()
    with forking() as command:
        supervisor = Supervisor(tmp_path / "job", backend)
        deployment = Deployment(
            name="job",
            model=GPT,
            plan=_PAIR,
            training=TrainingOptions(
                num_steps=100_000, seed=7, engine=EngineName.NATIVE, device=Device.CPU, schedule=SCHEDULE
            ),
            launch=LaunchOptions(
                master_port=free_port(),
                command=command(()),
                environment={"GLOO_SOCKET_IFNAME": "lo", PREPARED_BY: f"{prepared.__name__}:shares_no_memory"},
                grace_s=60.0,
            ),
        )
        try:
            supervisor.deploy(deployment)
            eventually(lambda: (supervisor.advance(), supervisor.status().step)[1] > 2, limit_s=_LIMIT_S)
            supervisor.reconfigure(replace(deployment, plan=_GROWN))
            eventually(
                supervisor.advance,
                lambda state: len(state.runs) == 2 and state.phase is Phase.RUNNING,
                limit_s=_LIMIT_S,
            )
            eventually(lambda: len(_steps(supervisor, 2)) > 5, limit_s=_LIMIT_S)
            os.kill(supervisor.status().run.pids[3], signal.SIGKILL)
            state = eventually(
                supervisor.advance,
                lambda state: len(state.runs) == 3 and state.phase is Phase.RUNNING,
                limit_s=_LIMIT_S,
            )
            eventually(lambda: len(_steps(supervisor, 3)) > 2, limit_s=_LIMIT_S)
            supervisor.stop()
            assert eventually(supervisor.advance, lambda at: at.phase.final, limit_s=_LIMIT_S).phase is Phase.STOPPED
        finally:
            for run in (tmp_path / "job" / "runs").iterdir():
                backend.stop(run, grace_s=1.0)
    change = state.runs[1]
    assert change.from_step == _steps(supervisor, 1)[-1].step
    assert change.stall is not None
    assert (change.stall.saving_s, change.stall.loading_s) == (0.0, 0.0)
    assert change.stall.transfer_s > 0.0
    assert change.movement is not None
    assert change.movement.moved_bytes == change.movement.least_bytes < change.movement.state_bytes
    assert 0 < change.movement.between_hosts_bytes < change.movement.moved_bytes
    assert [run.cause for run in state.runs] == [Cause.DEPLOYED, Cause.RECONFIGURED, Cause.RESTARTED]
    first, grown, again = (_steps(supervisor, run) for run in (1, 2, 3))
    assert [steps[0].step for steps in (grown, again)] == [first[-1].step + 1, grown[0].step]
    compared = grown[:5] + again[:2]
    expected = reference(tiny_job(num_steps=grown[4].step))
    np.testing.assert_allclose(
        [step.loss for step in compared], [expected[step.step - 1].loss for step in compared], rtol=0, atol=1e-4
    )
