"""The life of one rank: wait if told to, meet the others, train, leave."""

import importlib
import logging
import math
import os
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist

from executor.launch.pulse import Pulse
from executor.outcome import FAULT, NOT_SAVED, OUTCOME_FILE, PEER_LOST, WRONG_INPUT, Outcome
from executor.records import write_record
from executor.run_files import READY_FOLDER, STOP_FILE, WAIT_VARIABLE
from executor.trainer import checkpointing
from executor.trainer.clock import CudaClock, HostClock, StepClock
from executor.trainer.engine import Engine, place_of
from executor.trainer.loop import Loop
from executor.training_job import Device, EngineName, TrainingJob
from stowplan.errors import InputError, StowplanError

_logger = logging.getLogger("stowplan.executor.trainer")

_WAIT_S = 0.05
# Modules with `join`, `prepare` and `build`. Only the one that a job needs is loaded: that takes seconds.
_ENGINES = {
    EngineName.DEEPSPEED: "executor.trainer.deepspeed_engine",
    EngineName.NATIVE: "executor.trainer.native.engine",
}


def main(job: TrainingJob, folder: Path, pulse: Pulse) -> NoReturn:
    """Run one rank of the job that lies in `folder`, and end the process."""
    leave_process(_exit_code(job, folder, pulse))


def leave_process(code: int) -> NoReturn:
    """End the process without exit handlers, in which ranks have died of SIGABRT; everything must have been written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
    library: Any = importlib.import_module(_ENGINES[job.engine])
    # Whoever lets it go has a limit of its own for that.
    pulse.beat(math.inf, "waiting for another run")
    _wait(os.environ.get(WAIT_VARIABLE), place.rank)
    pulse.beat(job.start_limit_s, "meeting the other ranks")
    library.join(job, place)
    launch = [int(time.time() * 1e3)]
    dist.broadcast_object_list(launch)
    checkpoint = checkpointing.find(job, pulse, library.prepare)
    pulse.beat(job.start_limit_s, "building the model")
    clock: StepClock = CudaClock() if job.device is Device.CUDA else HostClock()
    engine: Engine = library.build(job, place, clock, checkpoint)
    if checkpoint is not None:
        pulse.beat(job.start_limit_s, "loading a checkpoint")
        engine.load_checkpoint(Path(job.checkpoint_folder or ""), checkpoint)
        _logger.info("goes on behind step %d from %s", checkpoint.step, checkpoint.tag)
    outcome = Loop(engine, clock, job, place, launch[0], stop_file, pulse).run()
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
