"""The folder of checkpoints: only whole ones count, and only of the same training."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from executor.checkpoints import (
    MANIFEST,
    MARKER,
    PARTIAL,
    UNIVERSAL,
    Checkpoint,
    checkpoint_to_resume,
    complete_checkpoint,
    fingerprint_of,
    last_good,
    publish_universal,
    read_checkpoint,
    remove_partial,
    tag_of,
)
from executor.data.sources import Data, Source
from executor.training_job import TrainingJob
from executor.training_options import EngineName
from models.transformer import Checkpointing
from stowplan.errors import InputError
from tests.executor.jobs import GPT, LLAMA, tiny_job


def _write(folder: Path, job: TrainingJob, step: int) -> Checkpoint:
    partial = folder / (tag_of(step) + PARTIAL)
    (partial / "inner").mkdir(parents=True)
    (partial / "weights.pt").write_bytes(b"w" * step)
    (partial / "inner" / "states.pt").write_bytes(b"s" * 10)
    return complete_checkpoint(folder, job, step)


def test_newest_complete_checkpoint_is_the_last_good_one(tmp_path: Path) -> None:
    job = tiny_job(stage_layers=(3, 1))
    _write(tmp_path, job, 5)
    written = _write(tmp_path, job, 10)
    assert last_good(tmp_path) == written
    assert written.step == 10
    assert {file.path: file.num_bytes for file in written.files} == {"inner/states.pt": 10, "weights.pt": 10}


def test_empty_folder_has_none(tmp_path: Path) -> None:
    assert last_good(tmp_path) is None
    assert checkpoint_to_resume(tiny_job(checkpoint_folder=str(tmp_path), resume="last")) is None


def test_partial_one_is_never_used(tmp_path: Path) -> None:
    written = _write(tmp_path, tiny_job(), 5)
    (tmp_path / (tag_of(10) + PARTIAL)).mkdir()
    assert last_good(tmp_path) == written
    remove_partial(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, tag_of(5)]


@pytest.mark.parametrize("damage", ["cut", "lost"])
def test_damaged_one_is_passed_over(tmp_path: Path, damage: str) -> None:
    before = _write(tmp_path, tiny_job(), 5)
    _write(tmp_path, tiny_job(), 10)
    weights = tmp_path / tag_of(10) / "weights.pt"
    if damage == "cut":
        weights.write_bytes(b"w")
    else:
        weights.unlink()
    assert last_good(tmp_path) == before
    with pytest.raises(InputError, match=r"weights\.pt is missing or has not its 10 bytes"):
        read_checkpoint(tmp_path, tag_of(10))


def test_failure_before_the_end_leaves_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = _write(tmp_path, tiny_job(), 5)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("executor.checkpoints.write_record", full)
    with pytest.raises(OSError, match="No space left"):
        _write(tmp_path, tiny_job(), 10)
    assert last_good(tmp_path) == written


def test_oldest_are_removed(tmp_path: Path) -> None:
    for step in (5, 10, 15, 20):
        _write(tmp_path, tiny_job(keep_checkpoints=2), step)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, tag_of(15), tag_of(20)]


def test_a_run_that_starts_anew_keeps_what_it_writes_and_what_was_there(tmp_path: Path) -> None:
    for step in (15, 20):
        _write(tmp_path, tiny_job(keep_checkpoints=2), step)
    for step in (5, 6, 7):
        written = _write(tmp_path, tiny_job(keep_checkpoints=2), step)
        assert last_good(tmp_path) == written
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, *map(tag_of, (6, 7, 15, 20))]


def test_step_that_is_done_again_replaces_its_checkpoint(tmp_path: Path) -> None:
    _write(tmp_path, tiny_job(), 5)
    again = _write(tmp_path, tiny_job(dp=2), 5)
    assert last_good(tmp_path) == again
    assert again.dp == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, tag_of(5)]


def test_a_kill_while_a_step_is_replaced_loses_no_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, tiny_job(), 5)

    def killed(path: Path, **_: object) -> None:
        if path.exists():
            (path / "weights.pt").unlink()
            raise KeyboardInterrupt

    monkeypatch.setattr("executor.checkpoints.shutil.rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        _write(tmp_path, tiny_job(dp=2), 5)
    assert last_good(tmp_path) == read_checkpoint(tmp_path, tag_of(5))


def test_a_conversion_of_what_was_replaced_is_gone(tmp_path: Path) -> None:
    before = _write(tmp_path, tiny_job(), 5)
    (partial := tmp_path / (tag_of(5) + UNIVERSAL + PARTIAL)).mkdir()
    publish_universal(tmp_path, before, partial)
    _write(tmp_path, tiny_job(dp=2), 5)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MARKER, tag_of(5)]


def test_layout_decides_whether_it_must_be_converted(tmp_path: Path) -> None:
    written = _write(tmp_path, tiny_job(stage_layers=(3, 1)), 5)
    assert written.has_layout_of(tiny_job(stage_layers=(3, 1)))
    assert not written.has_layout_of(tiny_job(stage_layers=(2, 2)))
    assert not written.has_layout_of(tiny_job(stage_layers=(4,), dp=2))


def test_every_layout_of_the_native_engine_goes_on_and_no_other_engine(tmp_path: Path) -> None:
    native = tiny_job(stage_layers=(3, 1), engine=EngineName.NATIVE)
    written = _write(tmp_path, native, 5)
    assert written.has_layout_of(replace(native, stages=tiny_job(dp=4).stages, num_micro_batches=1))
    resumed: dict[str, Any] = {"checkpoint_folder": str(tmp_path), "resume": "last"}
    assert checkpoint_to_resume(replace(native, **resumed)) == written
    with pytest.raises(InputError, match="was written by the engine native; deepspeed cannot read it"):
        checkpoint_to_resume(tiny_job(**resumed))


def test_a_manifest_that_names_no_engine_is_of_deepspeed(tmp_path: Path) -> None:
    """So were those that were written before there was another one."""
    written = _write(tmp_path, tiny_job(), 5)
    manifest = tmp_path / written.tag / MANIFEST
    document = json.loads(manifest.read_text())
    assert document.pop("engine") == "deepspeed"
    manifest.write_text(json.dumps(document))
    assert read_checkpoint(tmp_path, written.tag) == written


def test_checkpoint_of_another_training_is_refused_with_all_differences(tmp_path: Path) -> None:
    _write(tmp_path, tiny_job(LLAMA), 5)
    other = tiny_job(replace(LLAMA, feed_forward_size=128), seed=8, checkpoint_folder=str(tmp_path), resume="last")
    with pytest.raises(InputError) as refused:
        checkpoint_to_resume(other)
    assert "feed_forward is 96 there and 128 here" in refused.value.detail
    assert "seed is 7 there and 8 here" in refused.value.detail


def test_named_checkpoint_must_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no complete checkpoint"):
        checkpoint_to_resume(tiny_job(checkpoint_folder=str(tmp_path), resume=tag_of(5)))


def test_only_what_changes_the_mathematics_changes_the_fingerprint() -> None:
    job = tiny_job()
    same = replace(GPT, name="mine", feed_forward_size=256, checkpointing=Checkpointing.FULL)
    sharded = tiny_job(replace(GPT, zero_stage=3), engine=EngineName.NATIVE)
    assert fingerprint_of(sharded) == fingerprint_of(job)
    assert fingerprint_of(tiny_job(same, stage_layers=(2, 2), dp=2)) == fingerprint_of(job)
    assert fingerprint_of(tiny_job(replace(GPT, global_batch=16), num_micro_batches=8)) == fingerprint_of(job)
    assert fingerprint_of(tiny_job(replace(GPT, tied_embeddings=False))) != fingerprint_of(job)
    assert fingerprint_of(tiny_job(seed=8)) != fingerprint_of(job)
    assert fingerprint_of(tiny_job(layers_hook="mine:layers")) != fingerprint_of(job)
    sources = (Source(path="corpus"),)
    assert fingerprint_of(tiny_job(data=Data(sources=sources))) == fingerprint_of(job)
    masked = [Data(sources=sources, **{name: True}) for name in ("document_mask", "eod_mask_loss")]
    assert len({fingerprint_of(job), *(fingerprint_of(tiny_job(data=data)) for data in masked)}) == 3
