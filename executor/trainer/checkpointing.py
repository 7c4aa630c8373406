"""Saving and loading with DeepSpeed, so that the last good checkpoint is always whole; collective on all ranks.

For another layout the checkpoint is converted to the universal format first, once, beside the original.
"""

import math
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from executor.checkpoints import (
    MANIFEST,
    PARTIAL,
    UNIVERSAL,
    Checkpoint,
    checkpoint_to_resume,
    complete_checkpoint,
    publish_universal,
    remove_partial,
    tag_of,
)
from executor.deepspeed_workarounds import convert_to_universal, place_step_counters
from executor.launch.pulse import Pulse
from executor.training_job import TrainingJob
from stowplan.errors import StowplanError, WorkerError

# Key in the store of the ranks: rank 0 knows the checkpoint, and has converted it.
_PREPARED = "stowplan-prepared"
_CONVERSION_LIMIT = timedelta(days=1)


def save(engine: Any, job: TrainingJob, step: int) -> str | None:
    """Write the checkpoint after `step` steps; give what went wrong, or None when it is the last good one."""
    folder = Path(job.checkpoint_folder or "")
    partial = tag_of(step) + PARTIAL
    engine.checkpoint_engine.failure = None
    if dist.get_rank() == 0:
        remove_partial(folder)
    engine.save_checkpoint(str(folder), tag=partial, save_latest=False)
    failure = _first(engine.checkpoint_engine.failure)
    if dist.get_rank() == 0 and failure is None:
        try:
            complete_checkpoint(folder, job, step)
        except OSError as error:
            failure = f"{folder}: {error}"
    failure = _first(failure)
    if failure is not None and dist.get_rank() == 0:
        shutil.rmtree(folder / partial, ignore_errors=True)
    return failure


def find(job: TrainingJob, pulse: Pulse) -> tuple[Checkpoint | None, bool]:
    """The checkpoint to go on from, and whether it must be loaded as a universal one; converts it if it must.

    Rank 0 looks and converts, the others wait, longer than one operation may take: all see the same, whatever the file
    system shows them.

    Raises
    ------
    StowplanError
        On all ranks, when the named checkpoint cannot be used.
    """
    found: list[Any] = [None, None]
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        pulse.beat(job.start_limit_s, "looking for a checkpoint")
        try:
            found[0] = _prepared(job, pulse)
        except StowplanError as error:
            found[1] = error
        store.set(_PREPARED, "")
    else:
        pulse.beat(math.inf, "waiting for rank 0 to find a checkpoint")
        store.wait([_PREPARED], _CONVERSION_LIMIT)
    dist.broadcast_object_list(found)
    checkpoint, refusal = found
    if refusal is not None:
        raise refusal
    return checkpoint, checkpoint is not None and not checkpoint.has_layout_of(job)


def load(engine: Any, job: TrainingJob, checkpoint: Checkpoint, *, universal: bool) -> None:
    """Load weights, optimiser states and the step counter.

    Raises
    ------
    WorkerError
        When DeepSpeed did not load what it was told to.
    """
    tag = checkpoint.tag + (UNIVERSAL if universal else "")
    path, _ = engine.load_checkpoint(str(job.checkpoint_folder), tag=tag, load_lr_scheduler_states=False)
    if path is None or engine.global_steps != checkpoint.step:
        raise WorkerError(f"{tag} was not loaded: the engine is at step {engine.global_steps}, not {checkpoint.step}")
    place_step_counters(engine)


def _prepared(job: TrainingJob, pulse: Pulse) -> Checkpoint | None:
    """Find the checkpoint and convert it where the job needs that; one process."""
    checkpoint = checkpoint_to_resume(job)
    if checkpoint is None or checkpoint.has_layout_of(job):
        return checkpoint
    folder = Path(job.checkpoint_folder or "")
    if (folder / (checkpoint.tag + UNIVERSAL) / MANIFEST).exists():
        return checkpoint
    partial = folder / (checkpoint.tag + UNIVERSAL + PARTIAL)
    shutil.rmtree(partial, ignore_errors=True)
    with pulse.beats_while_growing(partial, job.save_limit_s, "converting a checkpoint"):
        convert_to_universal(
            folder / checkpoint.tag,
            partial,
            num_model_ranks=len(checkpoint.stage_layers) * checkpoint.tp,
            num_workers=min(8, os.cpu_count() or 1),
        )
    publish_universal(folder, checkpoint, partial)
    return checkpoint


def _first(failure: str | None) -> str | None:
    """The failure of the lowest rank that has one, the same on all ranks."""
    gathered: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, failure)
    return next((each for each in gathered if each is not None), None)
