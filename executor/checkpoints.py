"""The folder of a run's checkpoints: which are complete, which is the last good one, of which model they are.

    <folder>/step-00000020/              written by the engine, complete: it has a `checkpoint.json`
    <folder>/step-00000020.universal/    the same in DeepSpeed's universal format, for other layouts
    <folder>/*.partial/                  being written, or left by a run that died: never read
    <folder>/last_good                   the tag of the newest complete one

A checkpoint is written under a partial name, gets its `checkpoint.json`, is renamed, and only then becomes the last
good one; every step is atomic, so a crash or a full disk leaves the checkpoint before it in force.
"""

import hashlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from executor.progress import Progress
from executor.records import read_record, sync_folder, write_record, write_text
from executor.training_job import LAST, TrainingJob
from executor.training_options import EngineName
from models.dimensions import Dimensions
from models.numerics import Numerics
from models.transformer import Transformer
from stowplan.errors import InputError
from stowplan.records import to_json

MANIFEST = "checkpoint.json"
MARKER = "last_good"
PARTIAL = ".partial"
UNIVERSAL = ".universal"

# What may change between two runs of one training: how it is computed, not what. Sizes are compared filled in.
_FREE = (
    "name",
    "global_batch",
    "micro_batch",
    "checkpointing",
    "software",
    "attention",
    "sequence_parallel",
    "num_heads",
    "num_kv_heads",
    "head_size",
    "feed_forward_size",
    "expert_feed_forward_size",
    "capacity_factor",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file of a checkpoint, relative to its folder."""

    path: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What stands beside the weights. `step`: optimiser steps done. `progress`: None where all were of the model's
    batch, as in checkpoints of earlier versions.

    The layout is that of the run that wrote it, `dp` and `tp` of its first stage.
    """

    tag: str
    step: int
    model: Transformer
    seed: int
    layers_hook: str | None
    stage_layers: tuple[int, ...]
    dp: int
    tp: int
    files: tuple[StoredFile, ...]
    engine: EngineName = EngineName.DEEPSPEED
    numerics: Numerics = field(default_factory=Numerics)
    progress: Progress | None = None
    document_mask: bool = False
    eod_mask_loss: bool = False

    @property
    def done(self) -> Progress:
        """How far the training is."""
        return self.progress or Progress.plain(self.step * self.model.global_batch)

    @property
    def fingerprint(self) -> str:
        """Hash of what must be the same in every run that uses the checkpoint."""
        return _fingerprint(self)

    def has_layout_of(self, job: TrainingJob) -> bool:
        """Whether the job can load it without conversion: what the native engine has written, every layout can."""
        first = job.stages[0]
        return self.engine is EngineName.NATIVE or (
            (self.stage_layers, self.dp, self.tp) == (job.stage_layers, first.dp, first.tp)
        )


def tag_of(step: int) -> str:
    """Name of the checkpoint after `step` steps."""
    return f"step-{step:08d}"


def fingerprint_of(job: TrainingJob) -> str:
    """Hash of model, precision, seed and layers: what decides the run's mathematics, but for the batch, which may
    change."""
    return _fingerprint(job)


def checkpoint_of(
    job: TrainingJob, step: int, progress: Progress | None, files: tuple[StoredFile, ...] = ()
) -> Checkpoint:
    """What stands beside the weights of a job behind a step."""
    return Checkpoint(
        tag=tag_of(step),
        step=step,
        model=job.model,
        seed=job.seed,
        layers_hook=job.layers_hook,
        stage_layers=job.stage_layers,
        dp=job.stages[0].dp,
        tp=job.stages[0].tp,
        files=files,
        engine=job.engine,
        numerics=job.numerics,
        progress=progress,
        document_mask=job.document_mask,
        eod_mask_loss=job.eod_mask_loss,
    )


def complete_checkpoint(folder: Path, job: TrainingJob, step: int, progress: Progress | None = None) -> Checkpoint:
    """Turn the partial folder of a step into the last good checkpoint, and remove the oldest beyond those to keep.

    Checkpoints of later steps, which a run that started anew has not come to yet, stay.

    Raises
    ------
    OSError
        When the disk does not take it; the last good checkpoint is then the one before.
    """
    tag = tag_of(step)
    partial = folder / (tag + PARTIAL)
    manifest = checkpoint_of(job, step, progress, tuple(_files(partial)))
    write_record(manifest, partial / MANIFEST)
    # Of what stood there before.
    shutil.rmtree(folder / (tag + UNIVERSAL), ignore_errors=True)
    _replace_folder(partial, folder / tag)
    write_text(folder / MARKER, tag + "\n")
    _remove_old(folder, tag, job.keep_checkpoints)
    return manifest


def last_good(folder: Path) -> Checkpoint | None:
    """The checkpoint that the marker names, or, when that is damaged, the newest whole one; None without any."""
    try:
        marked = (folder / MARKER).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    tags = sorted(
        (path.name for path in folder.glob("step-*") if path.suffix not in (PARTIAL, UNIVERSAL)), reverse=True
    )
    for tag in [marked, *(tag for tag in tags if tag < marked)]:
        try:
            return read_checkpoint(folder, tag)
        except InputError:
            continue
    return None


def read_checkpoint(folder: Path, tag: str) -> Checkpoint:
    """Read and check one checkpoint.

    Raises
    ------
    InputError
        When there is none with this tag, or a file is missing or has another size than was written.
    """
    path = folder / tag
    if not (path / MANIFEST).exists():
        raise InputError(f"{path} is no complete checkpoint: it has no {MANIFEST}")
    checkpoint = read_record(Checkpoint, path / MANIFEST, "checkpoint")
    for file in checkpoint.files:
        found = path / file.path
        if not found.is_file() or found.stat().st_size != file.num_bytes:
            raise InputError(f"{path} is damaged: {file.path} is missing or has not its {file.num_bytes} bytes")
    return checkpoint


def checkpoint_to_resume(job: TrainingJob) -> Checkpoint | None:
    """The checkpoint that the job goes on from; None when it starts anew.

    Raises
    ------
    InputError
        When the named checkpoint is missing or damaged, belongs to another model or seed (all differences), or was
        written by the other engine.
    """
    if job.resume is None or job.checkpoint_folder is None:
        return None
    folder = Path(job.checkpoint_folder)
    checkpoint = last_good(folder) if job.resume == LAST else read_checkpoint(folder, job.resume)
    if checkpoint is not None:
        refuse_checkpoint(checkpoint, job, str(folder / checkpoint.tag))
    return checkpoint


def refuse_checkpoint(checkpoint: Checkpoint, job: TrainingJob, where: str) -> None:
    """Raise InputError where a job cannot go on from a checkpoint: it is of another training, or the other engine."""
    if checkpoint.fingerprint != fingerprint_of(job):
        differences = ", ".join(_differences(checkpoint, job))
        raise InputError(f"{where} is a checkpoint of another training: {differences}")
    if checkpoint.engine is not job.engine:
        raise InputError(
            f"{where} was written by the engine {checkpoint.engine}; {job.engine} cannot read it: a job keeps its "
            "engine"
        )


def publish_universal(folder: Path, checkpoint: Checkpoint, partial: Path) -> str:
    """Put a converted checkpoint in place, durably; give its tag."""
    tag = checkpoint.tag + UNIVERSAL
    write_text(partial / MANIFEST, to_json(checkpoint, indent=1) + "\n")
    _replace_folder(partial, folder / tag)
    return tag


def remove_partial(folder: Path) -> None:
    """Remove what runs that died have left."""
    for path in folder.glob("*" + PARTIAL):
        shutil.rmtree(path, ignore_errors=True)


def _files(folder: Path) -> Iterator[StoredFile]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield StoredFile(path=str(path.relative_to(folder)), num_bytes=path.stat().st_size)


def _replace_folder(source: Path, target: Path) -> None:
    """Rename a folder over another one, which is of the same step: a run has come back to it."""
    replaced = target.with_name(f"{target.name}.replaced{PARTIAL}")
    if target.exists():
        # Removing takes a while, in which the place must not be empty.
        target.rename(replaced)
    source.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _remove_old(folder: Path, newest: str, keep: int) -> None:
    names = (path.parent.name for path in folder.glob(f"step-*/{MANIFEST}"))
    tags = sorted(name for name in names if name <= newest and not name.endswith((UNIVERSAL, PARTIAL)))
    for tag in tags[:-keep]:
        shutil.rmtree(folder / tag, ignore_errors=True)
        shutil.rmtree(folder / (tag + UNIVERSAL), ignore_errors=True)


def _identity(training: Checkpoint | TrainingJob) -> Mapping[str, Any]:
    # Of all ZeRO stages checkpoints are the same; those of versions that had the first one alone say so.
    model = replace(training.model, zero_stage=1)
    values = {name: value for name, value in asdict(model).items() if name not in _FREE}
    names = ("seed", "layers_hook", "document_mask", "eod_mask_loss")
    others = {name: getattr(training, name) for name in names}
    return values | asdict(Dimensions.of(training.model)) | asdict(training.numerics) | others


def _fingerprint(training: Checkpoint | TrainingJob) -> str:
    values = sorted((name, str(value)) for name, value in _identity(training).items())
    return hashlib.sha256(repr(values).encode()).hexdigest()


def _differences(checkpoint: Checkpoint, job: TrainingJob) -> Iterator[str]:
    stored, wanted = _identity(checkpoint), _identity(job)
    for name, value in stored.items():
        if value != wanted[name]:
            yield f"{name} is {value} there and {wanted[name]} here"
