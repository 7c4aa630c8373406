"""The native engine under the launchers of clusters: a plan that is not symmetric, and a training that grows to one."""

import getpass
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.placement.slurm_cluster import NODES, missing
from benchmarks.service.growing_scene import Loop, cluster_of, long_job
from executor.bundle import write_bundle
from executor.change import RunChange
from executor.deployed.submission import Submission
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.base import LaunchBackend, RunState
from executor.launch.slurm import SlurmBackend
from executor.launch.slurm_options import SlurmOptions
from executor.launch.ssh import SshBackend
from executor.lifecycle import Cause
from executor.training_options import Device, EngineName
from models.parallel_plan import ParallelPlan, Replica, Stage
from tests.executor.deployed.test_growing import MODEL, SCHEDULE, SLOW_STEPS, given, pretending
from tests.executor.jobs import tiny_job
from tests.executor.pretend_training import HURRY_FILE
from tests.executor.trainer.forking import forking
from tests.executor.trainer.launching import steps_of
from tests.executor.trainer.reference import reference
from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.training]
needs_slurm = pytest.mark.skipif(missing() is not None, reason=f"needs Slurm: {missing()}")

_LIMIT_S = 120.0
_OPTIONS = TrainingOptions(num_steps=6, seed=7, engine=EngineName.NATIVE, device=Device.CPU, schedule=SCHEDULE)


@pytest.fixture(scope="module")
def command() -> Iterator[tuple[str, ...]]:
    """Starts ranks of the trainer."""
    with forking() as ranks:
        yield ranks(())


def launched(command: tuple[str, ...], backend: str, address: str = "127.0.0.1") -> LaunchOptions:
    """Every node is this machine."""
    return LaunchOptions(
        backend=backend,
        addresses=dict.fromkeys(NODES, address),
        master_port=free_port(),
        python=sys.executable,
        command=command,
        environment={"GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)},
        grace_s=5.0,
        # Nodes are shared, so that the next run begins beside the old one.
        slurm=SlurmOptions(exclusive=False, cpus_per_node=1, memory_bytes=2**20),
    )


def uneven() -> ParallelPlan:
    """Shares of three and one on n3, then a tensor group on n1, of another type."""
    first = (Replica(node="n3", gpu_type="old", gpus=(k,), local_batch=batch) for k, batch in enumerate((3, 1)))
    second = Replica(node="n1", gpu_type="new", gpus=(0, 1), local_batch=4)
    stages = (Stage(num_layers=3, replicas=tuple(first)), Stage(num_layers=1, replicas=(second,)))
    return ParallelPlan(stages=stages, num_micro_batches=2)


def trains(backend: LaunchBackend, launch: LaunchOptions, folder: Path) -> None:
    """A plan that is not symmetric trains as one process does, with its ranks where it says."""
    deployment = Deployment(name="job", model=MODEL, plan=uneven(), training=_OPTIONS, launch=launch)
    write_bundle(deployment, folder, folder / "checkpoints")
    backend.start(folder)
    try:
        status = eventually(lambda: backend.status(folder), lambda status: status.state.final, limit_s=_LIMIT_S)
    finally:
        backend.stop(folder, grace_s=1.0)
    assert status.state is RunState.SUCCEEDED, status
    expected = reference(replace(tiny_job(MODEL, num_steps=6), schedule=SCHEDULE))
    for rank in range(4):
        steps = steps_of(folder / "metrics", rank)
        np.testing.assert_allclose([s.loss for s in steps], [s.loss for s in expected], rtol=0, atol=1e-5)
    assert {path.stem for path in (folder / "status").glob("*.json")} == {"n1", "n3"}


@needs_slurm
@pytest.mark.usefixtures("cluster")
def test_under_slurm_a_plan_that_is_not_symmetric_trains(tmp_path: Path, command: tuple[str, ...]) -> None:
    trains(SlurmBackend(), launched(command, "slurm"), tmp_path / "run")


def test_over_ssh_a_plan_that_is_not_symmetric_trains(
    tmp_path: Path, command: tuple[str, ...], daemon: tuple[str, ...]
) -> None:
    trains(SshBackend(daemon), launched(command, "ssh", f"{getpass.getuser()}@127.0.0.1"), tmp_path / "run")


@needs_slurm
@pytest.mark.usefixtures("cluster")
def test_under_slurm_a_training_grows_onto_released_gpus(tmp_path: Path, command: tuple[str, ...]) -> None:
    with Loop(tmp_path, cluster_of(("n1", "n2", "n3"))) as loop:
        short, training = pretending("short"), replace(_OPTIONS, num_steps=100_000)
        loop.submit(replace(short, launch=launched(short.launch.command or (), "slurm")))
        launch = launched(command, "slurm")
        launch = replace(launch, environment={**launch.environment, **SLOW_STEPS})
        loop.submit(Submission(job=long_job(MODEL), training=training, launch=launch))
        loop.until_trained(1, 3, _LIMIT_S)
        (tmp_path / "short" / HURRY_FILE).touch()
        loop.until_trained(2, 5, _LIMIT_S)
        runs, losses = loop.runs(), loop.losses()
    (_, before), (_, after) = given(loop)
    assert (before.num_gpus, after.num_gpus, after.is_symmetric) == (4, 6, False)
    assert [(run.cause, run.change) for run in runs] == [
        (Cause.DEPLOYED, RunChange.START),
        (Cause.RECONFIGURED, RunChange.RESCALE),
    ]
    assert runs[1].stall is not None
    assert runs[1].stall.launch_s == runs[1].stall.imports_s == runs[1].stall.building_s == 0.0
    expected = reference(replace(tiny_job(MODEL, num_steps=len(losses)), schedule=SCHEDULE))
    np.testing.assert_allclose(losses, [step.loss for step in expected], rtol=0, atol=1e-5)
