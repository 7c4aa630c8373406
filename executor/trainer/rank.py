"""The life of one rank: wait if told to, meet the others, train, leave."""

import logging
import math
import os
import time
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist

from executor.deepspeed_workarounds import leave_process
from executor.launch.pulse import Pulse
from executor.outcome import FAULT, NOT_SAVED, OUTCOME_FILE, PEER_LOST, WRONG_INPUT, Outcome
from executor.records import write_record
from executor.run_files import READY_FOLDER, STOP_FILE, WAIT_VARIABLE
from executor.trainer import checkpointing
from executor.trainer.engine import build_engine, join, place_of
from executor.trainer.loop import Loop
from executor.training_job import TrainingJob
from stowplan.errors import InputError, StowplanError

_logger = logging.getLogger("stowplan.executor.trainer")

_WAIT_S = 0.05


def main(job: TrainingJob, folder: Path, pulse: Pulse) -> NoReturn:
    """Run one rank of the job that lies in `folder`, and end the process."""
    leave_process(_exit_code(job, folder, pulse))


def _exit_code(job: TrainingJob, folder: Path, pulse: Pulse) -> int:
    try:
        outcome = _train(job, folder / STOP_FILE, pulse)
    except StowplanError as error:
        _logger.error("%s", error)
        return WRONG_INPUT if isinstance(error, InputError) else FAULT
    except Exception as error:
        # Whatever it was, this process must end at once, so that the others see it.
        _logger.exception("ends by a fault")
        return PEER_LOST if _has_lost_a_peer(error) else FAULT
    return 0 if outcome.checkpoint_failure is None else NOT_SAVED


def _train(job: TrainingJob, stop_file: Path, pulse: Pulse) -> Outcome:
    place = place_of(os.environ, job)
    # Whoever lets it go has a limit of its own for that.
    pulse.beat(math.inf, "waiting for another run")
    _wait(os.environ.get(WAIT_VARIABLE), place.rank)
    pulse.beat(job.start_limit_s, "meeting the other ranks")
    join(job, place)
    launch = [int(time.time() * 1e3)]
    dist.broadcast_object_list(launch)
    checkpoint, universal = checkpointing.find(job, pulse)
    pulse.beat(job.start_limit_s, "building the model")
    engine = build_engine(job, place, universal=universal)
    if checkpoint is not None:
        pulse.beat(job.start_limit_s, "loading a checkpoint")
        checkpointing.load(engine, job, checkpoint, universal=universal)
        _logger.info("goes on behind step %d from %s", checkpoint.step, checkpoint.tag)
    outcome = Loop(engine, job, place, launch[0], stop_file, pulse).run()
    if place.rank == 0 and job.metrics_folder is not None:
        write_record(outcome, Path(job.metrics_folder) / OUTCOME_FILE)
    # Nobody leaves while another rank may still need it.
    dist.barrier()
    return outcome


def _has_lost_a_peer(error: Exception) -> bool:
    """Whether a rank fails since it cannot reach another one any more; gloo's errors have no type of their own."""
    lost = (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError)
    return isinstance(error, lost) or "gloo/transport" in str(error)


def _wait(path: str | None, rank: int) -> None:
    """Say that the libraries are loaded, and wait until the file is there: another run still has the devices.

    Ends the rank when the change of plan is off.
    """
    if not path:
        return
    ready = Path(path).with_name(READY_FOLDER)
    ready.mkdir(exist_ok=True)
    (ready / str(rank)).touch()
    off = Path(path).with_name(STOP_FILE)
    while not Path(path).exists():
        if off.exists():
            raise SystemExit(0)
        time.sleep(_WAIT_S)
