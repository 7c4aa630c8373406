"""A rank that stands still in a real training: the others wait for it in a collective, and all are started again."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.agent import log_file
from executor.launch.local import LocalBackend
from executor.launch.pulse import Pulse
from executor.lifecycle import Cause, Phase
from executor.supervision import Supervisor
from executor.training_options import Device, EngineName
from models.parallel_plan import symmetric_plan
from tests.executor.jobs import GPT, tiny_job
from tests.executor.trainer.forking import forking
from tests.executor.trainer.launching import Ranks, steps_of
from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.training]

_LIMIT_S = 300.0


def _deployment(training: TrainingOptions, command: tuple[str, ...]) -> Deployment:
    """Of two stages on one host, whose agent sees both that one rank waits and that the other one stands still."""
    return Deployment(
        name="job",
        model=GPT,
        plan=symmetric_plan(
            num_layers=4,
            pp=2,
            dp=1,
            tp=1,
            global_batch=8,
            num_micro_batches=4,
            gpu_type="cpu",
            gpus=(("a", 0), ("a", 1)),
        ),
        training=training,
        launch=LaunchOptions(
            python=sys.executable,
            command=command,
            master_port=free_port(),
            grace_s=60.0,
            environment={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        ),
    )


# The engine that loads faster, where a rank does so in a process of its own.
_TRAINING = TrainingOptions(
    num_steps=100_000, engine=EngineName.NATIVE, device=Device.CPU, checkpoint_interval=0, hang_limit_s=5.0
)


@contextmanager
def _supervisor(root: Path) -> Iterator[Supervisor]:
    """Whatever happens, no rank goes on."""
    backend = LocalBackend()
    try:
        yield Supervisor(root, backend)
    finally:
        for run in (root / "runs").iterdir():
            backend.stop(run, grace_s=1.0)


def test_a_stopped_rank_is_told_with_the_stacks_of_all_and_the_run_goes_on(tmp_path: Path) -> None:
    # Rank 1 is started as by users: the process that is stopped must be the one that trains.
    with forking() as command, _supervisor(tmp_path / "job") as supervisor:
        supervisor.deploy(_deployment(_TRAINING, command((1,))))
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
            assert "in run\n" in log_file(supervisor.folder(1), rank).read_text()
        supervisor.stop()
        assert eventually(supervisor.advance, lambda state: state.phase.final, limit_s=_LIMIT_S).phase is Phase.STOPPED


def test_a_rank_that_never_ends_its_checkpoint_is_found(tmp_path: Path) -> None:
    hook = "tests.executor.trainer.hooks:never_saves"
    training = replace(_TRAINING, num_steps=4, checkpoint_interval=2, save_limit_s=10.0, layers_hook=hook)
    with forking() as command, _supervisor(tmp_path / "job") as supervisor:
        deployment = _deployment(training, command(()))
        supervisor.deploy(replace(deployment, launch=replace(deployment.launch, grace_s=1.0)))
        state = eventually(supervisor.advance, lambda state: state.phase.final, limit_s=_LIMIT_S)
        assert state.phase is Phase.FINISHED
        assert [(run.cause, run.from_step) for run in state.runs] == [(Cause.DEPLOYED, 0), (Cause.RESTARTED, 0)]
        assert "has been writing to disk for more than 10 s" in state.current.detail
        assert "in stand_still\n" in log_file(supervisor.folder(1), 1).read_text()


def _note_beats(folder: Path, rank: int) -> None:
    """Write down what the rank says that it does, with the limit."""

    def beat(_: Pulse, limit_s: float, doing: str) -> None:
        with (folder / f"beats-{rank}").open("a") as file:
            file.write(f"{limit_s:.0f} s {doing}\n")

    pytest.MonkeyPatch().setattr(Pulse, "beat", beat)


def test_every_phase_of_a_run_has_its_limit(tmp_path: Path) -> None:
    job = tiny_job(
        stage_layers=(2, 2),
        num_steps=2,
        checkpoint_folder=str(tmp_path / "checkpoints"),
        metrics_folder=str(tmp_path / "first"),
        start_limit_s=600.0,
        save_limit_s=500.0,
        hang_limit_s=400.0,
    )
    changed = replace(
        job, resume="last", num_steps=3, stages=tiny_job().stages, metrics_folder=str(tmp_path / "second")
    )
    for name, run in (("first", job), ("second", changed)):
        with Ranks(run, tmp_path / name, prepare=partial(_note_beats, tmp_path / name)) as running:
            ended = running.wait()
        assert set(ended.codes) == {0}, "\n".join(ended.output)
    start = [
        "600 s loading its libraries",
        "600 s meeting the other ranks",
        "600 s building the model",
        "600 s getting its state",
        "600 s looking for a checkpoint",
    ]
    step = ["600 s doing its first step", "500 s writing to disk"]
    first = [*start, *step, "400 s doing a step", "500 s writing to disk"]
    assert (tmp_path / "first" / "beats-0").read_text().splitlines() == first
    first[4] = "inf s waiting for rank 0 to find a checkpoint"
    assert (tmp_path / "first" / "beats-1").read_text().splitlines() == first
    beats = (tmp_path / "second" / "beats-0").read_text().splitlines()
    converting = "500 s converting a checkpoint"
    assert [line for line in beats if line != converting] == [
        *start,
        "inf s waiting for others to convert a checkpoint",
        "600 s loading a checkpoint",
        *step,
    ]
    assert converting in beats
    assert [step.step for step in steps_of(tmp_path / "second")] == [3]
