"""A training that Suika grows, shrinks and moves while it runs, on ranks that train: its losses go on as if nothing
had happened, and later decisions know what the changes have cost."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.service.growing_scene import LONG, SLOW, Loop, cluster_of, long_job, rigid_job
from executor.change import RunChange
from executor.control.actions import Place
from executor.deployed.submission import Submission
from executor.deployment import LaunchOptions, TrainingOptions
from executor.training_options import Device, EngineName, Schedule
from models import plan
from models.parallel_plan import ParallelPlan
from tests.executor.jobs import GPT, tiny_job
from tests.executor.pretend_training import HURRY_FILE
from tests.executor.trainer.forking import forking
from tests.executor.trainer.launching import PREPARED_BY
from tests.executor.trainer.reference import reference
from tests.paths import PRETEND_TRAINER, ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.training]

MODEL = replace(GPT, vocabulary_size=96)
# Losses fall until the end.
SCHEDULE = Schedule(learning_rate=1e-3, warmup_steps=4, decay_steps=2000, gradient_clipping=0.5)
SLOW_STEPS = {"GLOO_SOCKET_IFNAME": "lo", PREPARED_BY: "tests.executor.trainer.native.prepared:takes_its_time"}
_LIMIT_S = 120.0


@pytest.fixture
def command() -> Iterator[tuple[str, ...]]:
    """Starts ranks of the trainer."""
    with forking() as ranks:
        yield ranks(())


def training(command: tuple[str, ...]) -> Submission:
    """The long job, natively."""
    return Submission(
        job=long_job(MODEL),
        training=TrainingOptions(
            num_steps=100_000, seed=7, engine=EngineName.NATIVE, device=Device.CPU, schedule=SCHEDULE
        ),
        launch=LaunchOptions(master_port=free_port(), command=command, environment=SLOW_STEPS, grace_s=5.0),
    )


def pretending(id_: str) -> Submission:
    """Processes that only pretend to train, until they are told to hurry."""
    return Submission(
        job=rigid_job(id_, MODEL),
        training=TrainingOptions(num_steps=1000, device=Device.CPU),
        launch=LaunchOptions(
            master_port=free_port(),
            command=(sys.executable, str(PRETEND_TRAINER)),
            python=sys.executable,
            environment={"PYTHONPATH": str(ROOT)},
            grace_s=1.0,
        ),
    )


def given(loop: Loop) -> list[tuple[plan.Change, ParallelPlan]]:
    """What the long job was given, one after the other."""
    places = [action.allocation for one in loop.decided for action in one.actions if isinstance(action, Place)]
    own = [(known.change, known.parallel_plan) for known in places if known.job_id == LONG]
    return [(change, found) for change, found in own if found is not None]


def test_a_training_grows_shrinks_and_moves_as_suika_decides(tmp_path: Path, command: tuple[str, ...]) -> None:
    with Loop(tmp_path, cluster_of(("f1", "f2", "f3"), ("s1", "s2"))) as loop:
        loop.submit(pretending("short"))
        loop.submit(training(command))
        loop.until_trained(1, 3, _LIMIT_S)
        (tmp_path / "short" / HURRY_FILE).touch()
        loop.until_trained(2, 5, _LIMIT_S)
        loop.submit(pretending("urgent"))
        loop.until_trained(3, 5, _LIMIT_S)
        loop.drain("f2")
        loop.until_trained(4, 5, _LIMIT_S)
        runs, losses = loop.runs(), loop.losses()
    kinds, plans = zip(*given(loop), strict=True)
    assert kinds == (plan.Change.STARTED, plan.Change.RESCALED, plan.Change.RESCALED, plan.Change.RETYPED)
    assert [found.num_gpus for found in plans] == [4, 6, 4, 4]
    assert [found.is_symmetric for found in plans][:2] == [True, False]
    assert {replica.gpu_type for stage in plans[3].stages for replica in stage.replicas} == {SLOW}
    assert [run.plan for run in runs] == [found.notation() for found in plans]
    # Who has to leave its GPUs is given the plan to start with.
    assert [run.change for run in runs] == [RunChange.START, RunChange.RESCALE, RunChange.RESCALE, RunChange.DEGREES]
    for run in runs[1:]:
        assert run.stall is not None
        assert run.cost_s == pytest.approx(run.stall.total_s)
        # Prepared beside the run before, from whose ranks it has the state.
        assert run.movement is not None
        assert run.stall.saving_s == run.stall.loading_s == 0.0
        assert run.stall.launch_s == run.stall.imports_s == run.stall.building_s == 0.0
    # The prices that the decisions were told: none, the start, and what the changes before have cost.
    told = [one.prices_s[LONG] for one in loop.decided if LONG in one.prices_s]
    assert told == [0.0, *(run.cost_s for run in runs[:-1])]
    expected = reference(replace(tiny_job(MODEL, num_steps=len(losses)), schedule=SCHEDULE))
    np.testing.assert_allclose(losses, [step.loss for step in expected], rtol=0, atol=1e-5)
