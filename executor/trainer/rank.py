"""The life of one rank: read the job, wait if told to, meet the others, train, leave."""

import logging
import os
import time
import traceback
from pathlib import Path
from typing import NoReturn

import torch.distributed as dist

from executor.bundle import STOP_FILE, WAIT_VARIABLE
from executor.deepspeed_workarounds import leave_process
from executor.outcome import OUTCOME_FILE, Outcome
from executor.records import write_record
from executor.trainer import checkpointing
from executor.trainer.engine import build_engine, join, place_of
from executor.trainer.loop import Loop
from executor.training_job import TrainingJob, read_training_job
from stowplan.errors import InputError, StowplanError

_logger = logging.getLogger("stowplan.executor.trainer")

FAULT, WRONG_INPUT, NOT_SAVED = 1, 2, 3

_WAIT_S = 0.05


def main(arguments: list[str]) -> NoReturn:
    """Run one rank and end the process."""
    leave_process(_exit_code(arguments))


def _exit_code(arguments: list[str]) -> int:
    if len(arguments) != 1:
        _logger.error("usage: python -P -m executor.trainer job.json")
        return WRONG_INPUT
    try:
        path = Path(arguments[0])
        outcome = _train(read_training_job(path), path.parent / STOP_FILE)
    except StowplanError as error:
        _logger.error("%s", error)
        return WRONG_INPUT if isinstance(error, InputError) else FAULT
    except Exception:  # noqa: BLE001
        # Whatever it was, this process must end at once, so that the others see it.
        traceback.print_exc()
        return FAULT
    return 0 if outcome.checkpoint_failure is None else NOT_SAVED


def _train(job: TrainingJob, stop_file: Path) -> Outcome:
    place = place_of(os.environ, job)
    _wait(os.environ.get(WAIT_VARIABLE))
    join(job, place)
    launch = [int(time.time() * 1e3)]
    dist.broadcast_object_list(launch)
    checkpoint, universal = checkpointing.find(job)
    engine = build_engine(job, place, universal=universal)
    if checkpoint is not None:
        checkpointing.load(engine, job, checkpoint, universal=universal)
        _logger.info("goes on behind step %d from %s", checkpoint.step, checkpoint.tag)
    outcome = Loop(engine, job, place, launch[0], stop_file).run()
    if place.rank == 0 and job.metrics_folder is not None:
        write_record(outcome, Path(job.metrics_folder) / OUTCOME_FILE)
    # Nobody leaves while another rank may still need it.
    dist.barrier()
    return outcome


def _wait(path: str | None) -> None:
    """Wait until the file is there: the libraries are loaded, and another run still has the devices."""
    while path and not Path(path).exists():
        time.sleep(_WAIT_S)
