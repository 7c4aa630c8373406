"""Writing and finding checkpoints, so that the last good one is always whole; collective on all ranks."""

import errno
import fcntl
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch.distributed as dist

from executor.checkpoints import (
    PARTIAL,
    Checkpoint,
    checkpoint_to_resume,
    complete_checkpoint,
    last_good,
    remove_partial,
    tag_of,
)
from executor.launch.pulse import Pulse
from executor.progress import Progress
from executor.trainer.engine import Engine
from executor.training_job import TrainingJob
from stowplan.errors import StowplanError

# Key in the store of the ranks: rank 0 knows the checkpoint.
_FOUND = "stowplan-found"
# Held by the run that writes into a folder of checkpoints.
_LOCK = ".lock"
_LOOK_S = 0.05
# Errors of file systems that have none.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
# Waits for what may take longer than any operation; who works is watched by its pulse.
PATIENT = timedelta(days=1)


def save(engine: Engine, job: TrainingJob, step: int, progress: Progress, *, is_behind: bool = False) -> str | None:
    """Write the checkpoint after `step` steps, with how far they have brought; give what went wrong, or None when it
    is the last good one.

    `is_behind`: the next run trains already with this state; it waits for this one before it writes one itself.
    """
    folder = Path(job.checkpoint_folder or "")
    with ExitStack() as stack:
        obstacle = None
        if dist.get_rank() == 0:
            try:
                stack.enter_context(_alone(folder, job.save_limit_s / 2))
                newest = last_good(folder) if is_behind else None
                if newest is not None and newest.step > step:
                    obstacle = f"the next run has written {newest.tag} already"
                else:
                    remove_partial(folder)
            except OSError as error:
                obstacle = f"{folder}: {error}"
        obstacle = first_failure(obstacle)
        return obstacle if obstacle is not None else _write(engine, job, step, progress, folder)


@contextmanager
def _alone(folder: Path, limit_s: float) -> Iterator[None]:
    """Write into a folder of checkpoints while no other run does.

    Raises
    ------
    OSError
        When that is impossible, or another run writes for so long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    end_s = time.monotonic() + limit_s
    with (folder / _LOCK).open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end_s:
                    raise
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                # Who has no locks has only the step of the newest checkpoint to go by.
                break
            time.sleep(_LOOK_S)
        yield


def _write(engine: Engine, job: TrainingJob, step: int, progress: Progress, folder: Path) -> str | None:
    partial = folder / (tag_of(step) + PARTIAL)
    failure = first_failure(engine.write_checkpoint(partial))
    if dist.get_rank() == 0 and failure is None:
        try:
            complete_checkpoint(folder, job, step, progress)
        except OSError as error:
            failure = f"{folder}: {error}"
    failure = first_failure(failure)
    if failure is not None and dist.get_rank() == 0:
        shutil.rmtree(partial, ignore_errors=True)
    return failure


def find(
    job: TrainingJob, pulse: Pulse, prepare: Callable[[TrainingJob, Checkpoint, Pulse], None]
) -> Checkpoint | None:
    """The checkpoint to go on from, prepared as the engine needs it.

    Rank 0 looks, the others wait, longer than one operation may take: all see the same, whatever the file system shows
    them.

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
            found[0] = checkpoint_to_resume(job)
        except StowplanError as error:
            found[1] = error
        store.set(_FOUND, "")
    else:
        pulse.beat(math.inf, "waiting for rank 0 to find a checkpoint")
        store.wait([_FOUND], PATIENT)
    dist.broadcast_object_list(found)
    checkpoint, refusal = found
    if refusal is not None:
        raise refusal
    if checkpoint is not None:
        prepare(job, checkpoint, pulse)
    return cast("Checkpoint | None", checkpoint)


def first_failure(failure: str | None) -> str | None:
    """The failure of the lowest rank that has one, the same on all ranks."""
    gathered: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, failure)
    return next((each for each in gathered if each is not None), None)
