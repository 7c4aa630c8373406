"""A state goes from ranks to ranks without a checkpoint, and whoever dies meanwhile costs none of it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from executor.checkpoints import last_good, tag_of
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, DeploymentState, Phase
from executor.supervision import Supervisor
from executor.training_job import read_training_job
from executor.training_options import Device, EngineName
from models.parallel_plan import ParallelPlan, Replica, Stage
from tests.executor.jobs import LLAMA, SCHEDULE, tiny_job
from tests.executor.trainer.forking import forking
from tests.executor.trainer.launching import PREPARED_BY, run_job, steps_of
from tests.executor.trainer.native import prepared
from tests.executor.trainer.reference import reference
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.training]

_LIMIT_S = 300.0


def _replica(node: str, gpus: tuple[int, ...], local_batch: int) -> Replica:
    return Replica(node=node, gpu_type="cpu", gpus=gpus, local_batch=local_batch)


# Shares of 3 and 1, then a tensor group.
_FOUR = ParallelPlan(
    stages=(
        Stage(num_layers=2, replicas=(_replica("a", (0,), 3), _replica("a", (1,), 1))),
        Stage(num_layers=2, replicas=(_replica("b", (0, 1), 4),)),
    ),
    num_micro_batches=2,
)
# The tensor group is where it was; of the first stage a layer has moved to two new ranks.
_SIX = ParallelPlan(
    stages=(
        Stage(num_layers=1, replicas=(_replica("a", (0,), 2), _replica("a", (1,), 2))),
        Stage(num_layers=1, replicas=(_replica("a", (2,), 1), _replica("a", (3,), 3))),
        Stage(num_layers=2, replicas=(_replica("b", (0, 1), 4),)),
    ),
    num_micro_batches=2,
)

_IN_B = Stage(num_layers=2, replicas=(_replica("b", (0,), 2), _replica("b", (1,), 2)))


@pytest.fixture
def supervisor(tmp_path: Path, deployment: Deployment) -> Iterator[Supervisor]:  # noqa: ARG001 - ends behind this
    """Of a deployment whose runs are ended."""
    made = Supervisor(tmp_path / "job", LocalBackend())
    yield made
    for folder in sorted((tmp_path / "job" / "runs").iterdir()):
        LocalBackend().stop(folder, grace_s=1.0)


@pytest.fixture
def deployment() -> Iterator[Deployment]:
    """On four ranks."""
    with forking() as command:
        yield Deployment(
            name="job",
            model=replace(LLAMA, zero_stage=3),
            plan=_FOUR,
            training=TrainingOptions(
                num_steps=100_000,
                seed=7,
                engine=EngineName.NATIVE,
                device=Device.CPU,
                schedule=SCHEDULE,
                checkpoint_interval=0,
                # Of a state of 1.3 MB.
                transfer_chunk_bytes=1 << 16,
            ),
            launch=LaunchOptions(
                master_port=free_port(), command=command(()), environment={"GLOO_SOCKET_IFNAME": "lo"}, grace_s=60.0
            ),
        )


def _changed(supervisor: Supervisor, deployment: Deployment, after: Deployment) -> DeploymentState:
    """Train two steps, change the plan, and wait until that is decided and what a run that trains has cost is known."""
    supervisor.deploy(deployment)
    eventually(lambda: (supervisor.advance(), supervisor.status().step)[1] >= 2, limit_s=_LIMIT_S)
    supervisor.reconfigure(after)
    # A change that was taken back leaves the old ranks as the current run until they have ended.
    return eventually(
        supervisor.advance,
        lambda now: (
            now.phase is Phase.RUNNING
            and now.current.cause is not Cause.DEPLOYED
            and now.current.cost_s is not None
            and supervisor.steps_done() > now.current.from_step + 3
        ),
        limit_s=_LIMIT_S,
    )


def _losses(folder: Path, count: int) -> list[float]:
    return [step.loss for step in steps_of(folder)[:count]]


def test_four_ranks_become_six_and_nothing_else_changes(
    supervisor: Supervisor, deployment: Deployment, tmp_path: Path
) -> None:
    """Losses behind the change are exactly those behind a checkpoint of the same step, which the old ranks have written
    while the new ones trained, and those of four ranks that go on from there. ZeRO stage 3 becomes 2."""
    state = _changed(supervisor, deployment, replace(deployment, plan=_SIX, model=replace(LLAMA, zero_stage=2)))
    old, new = state.runs
    step = steps_of(supervisor.folder(1) / "metrics")[-1].step
    assert (new.cause, new.from_step) == (Cause.RECONFIGURED, step)
    assert steps_of(supervisor.folder(2) / "metrics")[0].step == step + 1
    assert new.movement is not None
    assert new.stall is not None
    assert (new.stall.saving_s, new.stall.conversion_s, new.stall.loading_s) == (0.0, 0.0, 0.0)
    moved = new.movement
    # Of tensors that all ranks of a group hold, a checkpoint has one.
    assert moved.moved_bytes + moved.kept_bytes >= moved.state_bytes
    assert moved.between_hosts_bytes == 0 < moved.moved_bytes == moved.least_bytes < moved.kept_bytes
    _check_losses_behind(supervisor, step, tmp_path)
    assert old.movement is None


def test_experts_go_to_those_that_have_them_next(
    supervisor: Supervisor, deployment: Deployment, tmp_path: Path
) -> None:
    """Two halves of them in each of two stages become four fourths in one."""
    mixture = replace(LLAMA, num_experts=4, experts_per_token=2)
    halves = replace(_FOUR, stages=(_FOUR.stages[0], _IN_B), expert_parallel=2)
    replicas = tuple(replace(each, local_batch=1) for stage in halves.stages for each in stage.replicas)
    fourths = replace(halves, stages=(Stage(num_layers=4, replicas=replicas),), expert_parallel=4)
    before = replace(deployment, model=mixture, plan=halves)
    state = _changed(supervisor, before, replace(before, plan=fourths))
    step = steps_of(supervisor.folder(1) / "metrics")[-1].step
    assert state.current.from_step == step
    moved = state.current.movement
    assert moved is not None
    assert 0 < moved.moved_bytes == moved.least_bytes
    _check_losses_behind(supervisor, step, tmp_path)


def _check_losses_behind(supervisor: Supervisor, step: int, folder: Path) -> None:
    """Those of the second run are those of both, of a checkpoint of that step."""
    assert (supervisor.checkpoints / tag_of(step)).is_dir()
    supervisor.stop()
    eventually(supervisor.advance, lambda now: now.phase.final, limit_s=_LIMIT_S)
    behind = {}
    for run in (1, 2):
        job = replace(
            read_training_job(supervisor.folder(run) / "job.json"),
            resume=tag_of(step),
            num_steps=step + 4,
            checkpoint_interval=0,
            metrics_folder=str(folder / f"again-{run}"),
        )
        run_job(job, folder / f"again-{run}")
        behind[run] = _losses(folder / f"again-{run}", 4)
    # The learning rate does not depend on the number of steps: `SCHEDULE` says when it has fallen.
    losses = _losses(supervisor.folder(2) / "metrics", 4)
    assert losses == behind[2]
    np.testing.assert_allclose(losses, behind[1], rtol=0, atol=1e-6)


def test_an_old_rank_that_is_killed_meanwhile_leaves_the_last_checkpoint(
    supervisor: Supervisor, deployment: Deployment
) -> None:
    deployment = replace(deployment, training=replace(deployment.training, checkpoint_interval=2))
    variables = {
        **deployment.launch.environment,
        PREPARED_BY: f"{prepared.__name__}:{prepared.dies_while_sending.__name__}",
    }
    dies = replace(deployment, launch=replace(deployment.launch, environment=variables))
    state = _changed(supervisor, dies, replace(deployment, plan=_SIX))
    assert [run.cause for run in state.runs] == [Cause.DEPLOYED, Cause.RECONFIGURED]
    assert state.current.movement is None
    first, second = (steps_of(supervisor.folder(run) / "metrics") for run in (1, 2))
    # One that was due behind the last step would have been written behind the handing over.
    assert state.current.from_step == (first[-1].step - 1) // 2 * 2
    assert second[0].step == state.current.from_step + 1
    _check(second[0].step, [step.loss for step in second[:3]])


def test_a_new_rank_that_is_killed_meanwhile_lets_the_old_ones_write_a_checkpoint(
    supervisor: Supervisor, deployment: Deployment
) -> None:
    variables = {
        **deployment.launch.environment,
        PREPARED_BY: f"{prepared.__name__}:{prepared.dies_while_receiving.__name__}",
    }
    dies = replace(deployment, plan=_SIX, launch=replace(deployment.launch, environment=variables))
    state = _changed(supervisor, deployment, dies)
    # Whether the change is taken back before the old ranks have ended, or behind that.
    assert state.current.cause in (Cause.RESTARTED, Cause.RETURNED)
    assert supervisor.deployment().plan == _FOUR
    first, again = (steps_of(supervisor.folder(run.number) / "metrics") for run in (state.runs[0], state.current))
    assert again[0].step == first[-1].step + 1
    assert (
        "could not be handed over, a checkpoint is written"
        in (supervisor.folder(1) / "logs" / "rank-0.log").read_text()
    )
    found = last_good(supervisor.checkpoints)
    assert found is not None
    assert found.step == first[-1].step
    _check(again[0].step, [step.loss for step in again[:3]])


def _check(first: int, losses: list[float]) -> None:
    """Losses from a step on are those of one process."""
    expected = reference(tiny_job(LLAMA, num_steps=first + len(losses) - 1))[first - 1 :]
    np.testing.assert_allclose(losses, [step.loss for step in expected], rtol=0, atol=1e-5)
