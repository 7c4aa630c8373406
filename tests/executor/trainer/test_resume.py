"""A run that ends, by plan or by a fault, goes on where its last good checkpoint stands: the losses are those of a run
that never stopped.
"""

import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from executor.checkpoints import PARTIAL, UNIVERSAL, last_good, tag_of
from executor.deepspeed_conversion import convert_share
from executor.outcome import NOT_SAVED, OUTCOME_FILE, PEER_LOST, WRONG_INPUT, End, Outcome
from executor.records import read_record
from executor.run_files import PREPARE_VARIABLE, READY_FOLDER, STOP_FILE, WAIT_VARIABLE, Preparation
from executor.timeline import START_FILE, Activity, Start
from executor.training_job import TrainingJob
from models.transformer import Transformer
from tests.executor.jobs import GPT, LLAMA, tiny_job
from tests.executor.trainer.hooks import KILL_AT
from tests.executor.trainer.launching import Ended, Ranks, run_job, steps_of
from tests.executor.trainer.reference import reference
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.training]

HOOK = "tests.executor.trainer.hooks:layers"


def _job(folder: Path, run: str, model: Transformer = GPT, **more: Any) -> TrainingJob:
    return tiny_job(model, checkpoint_folder=str(folder / "checkpoints"), metrics_folder=str(folder / run), **more)


def _check_losses(folder: Path, alone: TrainingJob, *, first: int, last: int) -> None:
    """Steps first .. last, counted from 1, were done in this run, and as in the reference."""
    steps = steps_of(folder)
    assert [step.step for step in steps] == list(range(first, last + 1))
    expected = [step.loss for step in reference(alone)[first - 1 : last]]
    np.testing.assert_allclose([step.loss for step in steps], expected, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of a run over two uneven stages after step 4; for reading and copying."""
    folder = tmp_path_factory.mktemp("trained")
    run_job(_job(folder, "run", stage_layers=(3, 1), num_steps=4), folder / "run")
    return folder / "checkpoints"


@pytest.fixture(scope="module")
def as_replicas(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a run that went on from `trained` as two replicas, which converted its checkpoint; for reading."""
    folder = tmp_path_factory.mktemp("as_replicas")
    shutil.copytree(trained, folder / "checkpoints")
    run_job(_resume(folder, dp=2), folder / "second")
    return folder


@pytest.fixture
def four_steps(trained: Path, tmp_path: Path) -> Path:
    """A folder whose checkpoints are those of `trained`."""
    shutil.copytree(trained, tmp_path / "checkpoints")
    return tmp_path


@pytest.fixture
def converted(as_replicas: Path, four_steps: Path) -> Path:
    """The same with the checkpoint converted: that takes longer than a tiny training."""
    shutil.copytree(_universal(as_replicas), _universal(four_steps))
    return four_steps


def _universal(folder: Path) -> Path:
    return folder / "checkpoints" / (tag_of(4) + UNIVERSAL)


def _resume(folder: Path, model: Transformer = GPT, **more: Any) -> TrainingJob:
    return _job(folder, "second", model, **{"resume": "last", "num_steps": 8} | more)


def test_pipeline_goes_on_as_replicas(as_replicas: Path) -> None:
    _check_losses(as_replicas / "second", tiny_job(), first=5, last=8)
    names = sorted(path.name for path in (as_replicas / "checkpoints").glob("[!.]*"))
    assert names == ["last_good", tag_of(4), tag_of(4) + UNIVERSAL, tag_of(8)]


@pytest.mark.parametrize(
    ("model", "before", "after"),
    [
        pytest.param(GPT, {"tp": 2}, {"stage_layers": (2, 2)}, id="TP2-to-PP2"),
        pytest.param(LLAMA, {"dp": 2}, {"stage_layers": (1, 3), "tp": 2}, id="DP2-to-uneven-PP2xTP2"),
    ],
)
def test_training_goes_on_with_another_layout(
    model: Transformer, before: dict[str, Any], after: dict[str, Any], tmp_path: Path
) -> None:
    run_job(_job(tmp_path, "first", model, **before, num_steps=4), tmp_path / "first")
    run_job(_resume(tmp_path, model, **after), tmp_path / "second")
    _check_losses(tmp_path / "second", tiny_job(model), first=5, last=8)


def test_shares_are_what_the_library_converts(trained: Path, tmp_path: Path) -> None:
    """All that two shares write is what DeepSpeed's own converter writes, to the last bit."""
    source, own, theirs = trained / tag_of(4), tmp_path / "own", tmp_path / "theirs"
    for share in (1, 0):
        convert_share(source, own, share, 2)
    command = [sys.executable, "-P", "-m", "deepspeed.checkpoint.ds_to_universal", "--num_extract_workers", "1"]
    command += ["--num_merge_workers", "1", "--input_folder", str(source), "--output_folder", str(theirs)]
    subprocess.run(command, check=True, capture_output=True)
    files = [{str(path.relative_to(folder)) for path in folder.rglob("*.pt")} for folder in (own, theirs)]
    assert files[0] == files[1]
    assert len(files[0]) > 3 * 4
    for name in files[0]:
        ours, found = (torch.load(folder / name, weights_only=False) for folder in (own, theirs))
        assert _is_same(ours, found), name


def _is_same(one: Any, other: Any) -> bool:
    """Whether two files of a checkpoint say the same; objects of the library are left out."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_is_same(one[name], other[name]) for name in one)
    if torch.is_tensor(one):
        return torch.equal(one, other)
    return not isinstance(one, (int, float, str)) or bool(one == other)


def test_stage_bounds_are_those_of_the_job(trained: Path) -> None:
    files = [trained / tag_of(4) / f"mp_rank_0{stage}_model_states.pt" for stage in (0, 1)]
    shapes = [torch.load(file, weights_only=False)["param_shapes"] for file in files]
    layers = [{name.split(".")[0] for group in stage for name in group} for stage in shapes]
    # Specifications: 0 embedding, 1 positions, 2-5 blocks, 6 norm; the embedding is tied to the head.
    assert layers == [{"tied_modules", "1", "2", "3", "4"}, {"tied_modules", "5", "6"}]


def test_checkpoint_of_another_model_is_refused(four_steps: Path) -> None:
    with Ranks(_resume(four_steps, replace(GPT, feed_forward_size=128), dp=2), four_steps / "second") as running:
        ended = running.wait()
    assert ended.codes == [WRONG_INPUT, WRONG_INPUT]
    assert all("feed_forward is 256 there and 128 here" in output for output in ended.output)


def test_rank_that_is_killed_in_a_step_costs_only_the_steps_behind_the_checkpoint(tmp_path: Path) -> None:
    job = _job(tmp_path, "first", stage_layers=(2, 2), num_steps=6, checkpoint_interval=3, layers_hook=HOOK)
    # Second micro-batch of step 5.
    with Ranks(job, tmp_path / "first", environment={KILL_AT: str(4 * 4 + 2)}) as running:
        ended = running.wait()
    assert ended.codes == [PEER_LOST, -signal.SIGKILL], "\n".join(ended.output)
    assert [step.step for step in steps_of(tmp_path / "first")] == list(range(1, 5))
    again = replace(job, resume="last", metrics_folder=str(tmp_path / "second"))
    run_job(again, tmp_path / "second")
    _check_losses(tmp_path / "second", tiny_job(), first=4, last=6)


# Of one operation between ranks: 1.5 times the longest limit.
_LIMITS: dict[str, Any] = {"start_limit_s": 5.0, "save_limit_s": 5.0, "hang_limit_s": 5.0}
_TIMEOUT_S = 1.5 * 5.0


def _convert_beyond_the_timeout(ready: Path, rank: int) -> None:
    def slow(source: Path, target: Path, share: int, num_shares: int) -> None:  # noqa: ARG001 - those of the converter
        if share == rank == 0:
            shutil.copytree(ready, target)
            time.sleep(_TIMEOUT_S + 2.0)

    patch = pytest.MonkeyPatch()
    patch.setattr("executor.trainer.deepspeed_engine.convert_share", slow)


def test_a_conversion_may_take_longer_than_any_operation(four_steps: Path, as_replicas: Path) -> None:
    slow = partial(_convert_beyond_the_timeout, _universal(as_replicas))
    with Ranks(_resume(four_steps, dp=2, num_steps=5, **_LIMITS), four_steps / "second", prepare=slow) as running:
        ended = running.wait()
    assert ended.codes == [0, 0], "\n".join(ended.output)
    _check_losses(four_steps / "second", tiny_job(), first=5, last=5)


def _limit_files(rank: int) -> None:
    """Files of rank 1 end at 100 kB, as on a full disk; its optimiser states are larger."""
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))


def test_full_disk_on_one_rank_leaves_the_last_good_checkpoint(converted: Path) -> None:
    job = _resume(converted, dp=2, num_steps=7, checkpoint_interval=2)
    with Ranks(job, converted / "second", prepare=_limit_files) as running:
        ended = running.wait()
    assert ended.codes == [NOT_SAVED, NOT_SAVED], "\n".join(ended.output)
    assert "checkpoint of step 6 could not be written, the one before stays" in ended.output[0]
    _check_losses(converted / "second", tiny_job(), first=5, last=7)
    outcome = read_record(Outcome, converted / "second" / OUTCOME_FILE, "outcome")
    assert outcome.end is End.FINISHED
    assert outcome.checkpoint_failure is not None
    found = last_good(converted / "checkpoints")
    assert found is not None
    assert found.step == 4
    assert not list((converted / "checkpoints").glob("*" + PARTIAL))


def _check_stopped(folder: Path, ended: Ended) -> None:
    """All ranks have stopped behind the same step, and that is the last good checkpoint."""
    assert set(ended.codes) == {0}, "\n".join(ended.output)
    outcome = read_record(Outcome, folder / "run" / OUTCOME_FILE, "outcome")
    found = last_good(folder / "checkpoints")
    assert found is not None
    assert (outcome.end, outcome.step) == (End.STOPPED, found.step)
    assert {steps_of(folder / "run", rank)[-1].step for rank in range(len(ended.codes))} == {found.step}


def test_signal_to_any_rank_stops_all_with_a_checkpoint(tmp_path: Path) -> None:
    with Ranks(_job(tmp_path, "run", stage_layers=(2, 2), num_steps=100_000), tmp_path / "run") as running:
        _wait_for_steps(tmp_path / "run", running)
        running.processes[1].terminate()
        _check_stopped(tmp_path, running.wait())


@pytest.mark.parametrize("preparation", Preparation)
def test_files_start_and_stop_a_run(tmp_path: Path, preparation: Preparation) -> None:
    """Ranks that were told to wait begin when the file is there; the file `stop` beside the job ends them."""
    job, go = _job(tmp_path, "run", dp=2, num_steps=100_000), tmp_path / "go"
    environment = {WAIT_VARIABLE: str(go), PREPARE_VARIABLE: preparation.value}
    with Ranks(job, tmp_path / "run", environment=environment) as running:
        eventually(lambda: all((tmp_path / READY_FOLDER / str(rank)).exists() for rank in range(2)))
        go.touch()
        _wait_for_steps(tmp_path / "run", running)
        (tmp_path / "run" / STOP_FILE).touch()
        _check_stopped(tmp_path, running.wait())
    assert steps_of(tmp_path / "run")[0].started_at_s > go.stat().st_mtime
    spans = read_record(Start, tmp_path / "run" / START_FILE, "start").spans
    built = next(span for span in spans if span.activity is Activity.BUILDING)
    assert (built.to_s < go.stat().st_mtime) is (preparation is Preparation.ENGINE)
    saving = read_record(Outcome, tmp_path / "run" / OUTCOME_FILE, "outcome").saving
    assert saving is not None
    assert saving.from_s >= steps_of(tmp_path / "run")[-1].started_at_s


def test_prepared_ranks_leave_when_the_change_is_off(tmp_path: Path) -> None:
    job, go = _job(tmp_path, "run", dp=2), tmp_path / "go"
    environment = {WAIT_VARIABLE: str(go), PREPARE_VARIABLE: Preparation.ENGINE.value}
    with Ranks(job, tmp_path / "run", environment=environment) as running:
        eventually(lambda: all((tmp_path / READY_FOLDER / str(rank)).exists() for rank in range(2)))
        (tmp_path / STOP_FILE).touch()
        assert running.wait().codes == [0, 0]
    assert not steps_of(tmp_path / "run")


def _wait_for_steps(folder: Path, running: Ranks) -> None:
    """Until two steps are done, or a rank has ended."""
    eventually(lambda: len(steps_of(folder)) >= 2 or not running.complete)
