"""The life of one rank: meet the others, build, wait if told to, load the last checkpoint, train, leave."""

import gc
import importlib
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist

from executor.checkpoints import checkpoint_to_resume
from executor.handover import write_state
from executor.launch.pulse import Pulse
from executor.outcome import FAULT, NOT_SAVED, OUTCOME_FILE, PEER_LOST, WRONG_INPUT, End, Outcome
from executor.progress import Progress
from executor.records import write_record
from executor.run_files import Preparation
from executor.timeline import START_FILE, Activity, Start, Timeline
from executor.trainer import checkpointing
from executor.trainer.clock import CudaClock, HostClock, StepClock
from executor.trainer.engine import Engine, Held, place_of
from executor.trainer.gate import Gate
from executor.trainer.loop import Loop
from executor.trainer.reception import Reception, Settled, offered
from executor.training_job import TrainingJob
from executor.training_options import Device, EngineName
from stowplan.errors import InputError, StowplanError, WorkerError

_logger = logging.getLogger("stowplan.executor.trainer")

# Modules with `join`, `build` and `prepare`, and all that these load. Only the one that a job needs is loaded: that
# takes seconds.
ENGINES = {
    EngineName.DEEPSPEED: "executor.trainer.deepspeed_engine",
    EngineName.NATIVE: "executor.trainer.native.engine",
}


def main(job: TrainingJob, folder: Path, pulse: Pulse, timeline: Timeline) -> NoReturn:
    """Run one rank of the job that lies in `folder`, and end the process."""
    leave_process(_exit_code(job, folder, pulse, timeline))


def leave_process(code: int) -> NoReturn:
    """End the process without exit handlers, in which ranks have died of SIGABRT; everything must have been written."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _exit_code(job: TrainingJob, folder: Path, pulse: Pulse, timeline: Timeline) -> int:
    try:
        outcome = _train(job, folder, pulse, timeline)
    except StowplanError as error:
        _logger.error("%s", error)
        return WRONG_INPUT if isinstance(error, InputError) else FAULT
    except Exception as error:
        # Whatever it was, this process must end at once, so that the others see it.
        _logger.exception("ends by a fault")
        return PEER_LOST if _has_lost_a_peer(error) else FAULT
    return 0 if outcome is None or outcome.checkpoint_failure is None else NOT_SAVED


def _train(job: TrainingJob, folder: Path, pulse: Pulse, timeline: Timeline) -> Outcome | None:
    """Run to the end; None where the rank waited to be let go, and was not."""
    place = place_of(os.environ, job)
    gate = Gate(os.environ, place.rank, pulse)
    library: Any = importlib.import_module(ENGINES[job.engine])
    timeline.begin(Activity.WAITING)
    if not gate.passed(Preparation.LIBRARIES):
        return None
    timeline.begin(Activity.MEETING)
    pulse.beat(job.start_limit_s, "meeting the other ranks")
    library.join(job, place)
    timeline.begin(Activity.BUILDING)
    pulse.beat(job.start_limit_s, "building the model")
    clock: StepClock = CudaClock() if job.device is Device.CUDA else HostClock()
    begun = _begun(job)
    engine: Engine = library.build(begun, place, clock)
    state = engine.state()
    _declare(job, folder, place.rank, state)
    reception = None if state is None else offered(job, place.rank, folder, gate.beside, state)
    timeline.begin(Activity.WAITING)
    if not gate.passed(Preparation.ENGINE, reception.is_done if reception else lambda: False):
        return None
    pulse.beat(job.start_limit_s, "getting its state")
    timeline.begin(Activity.TRANSFER if reception else Activity.CONVERSION)
    launch = [int(time.time() * 1e3)]
    dist.broadcast_object_list(launch)
    settled = _settled(reception, engine, job, pulse)
    checkpoint = settled.checkpoint
    if checkpoint is None:
        timeline.begin(Activity.CONVERSION)
        checkpoint = checkpointing.find(job, pulse, library.prepare)
        if checkpoint is None and begun is not job:
            raise WorkerError(f"{job.checkpoint_folder} had a checkpoint when the model was built, and has none now")
        timeline.begin(Activity.LOADING)
        if checkpoint is not None:
            pulse.beat(job.start_limit_s, "loading a checkpoint")
            engine.load_checkpoint(Path(job.checkpoint_folder or ""), checkpoint)
            _logger.info("goes on behind step %d from %s", checkpoint.step, checkpoint.tag)
        elif settled.is_touched:
            # Some of its values are those of the run before; a GPU may have no room for both.
            del engine, state, reception
            gc.collect()
            engine = library.build(begun, place, clock)
    progress = Progress() if checkpoint is None else checkpoint.done
    loop = Loop(engine, clock, job, place, launch[0], folder, pulse, progress)
    if place.rank == 0 and job.metrics_folder is not None:
        _write(replace(timeline.end(), movement=settled.movement), Path(job.metrics_folder), START_FILE)
    outcome = loop.run()
    if job.final_weights is not None and outcome.end is End.FINISHED:
        pulse.beat(job.save_limit_s, "writing weights")
        failure = engine.write_weights(job)
        outcome = replace(outcome, checkpoint_failure=outcome.checkpoint_failure or failure)
    if place.rank == 0 and job.metrics_folder is not None:
        _write(outcome, Path(job.metrics_folder), OUTCOME_FILE)
    # Nobody leaves while another rank may still need it.
    dist.barrier()
    return outcome


def _declare(job: TrainingJob, folder: Path, rank: int, state: Sequence[Held] | None) -> None:
    """Note what this rank has of the state, for those of a next run."""
    if state is None or not job.transfer_chunk_bytes:
        return
    try:
        write_state(folder, rank, (held.region for held in state))
    except OSError as error:
        _logger.warning("a next run will read a checkpoint: %s", error)


def _settled(reception: Reception | None, engine: Engine, job: TrainingJob, pulse: Pulse) -> Settled:
    """Go on with the state that the run before has handed over, where it has."""
    if reception is None:
        return Settled(checkpoint=None, movement=None, is_touched=False)
    pulse.beat(job.start_limit_s, "taking a state over")
    reception.close()
    settled = reception.settled(engine.device)
    if settled.checkpoint is not None and settled.movement is not None:
        engine.go_on(settled.checkpoint)
        _logger.info("goes on behind step %d: %s", settled.checkpoint.step, settled.movement.described())
    return settled


def _begun(job: TrainingJob) -> TrainingJob:
    """The job as its model is built: initial weights are not read where a checkpoint will be."""
    if job.initial_weights is None or checkpoint_to_resume(job) is None:
        return job
    return replace(job, initial_weights=None)


def _write(record: Start | Outcome, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_record(record, folder / name)


def _has_lost_a_peer(error: Exception) -> bool:
    """Whether a rank fails since it cannot reach another one any more; gloo's errors have no type of their own."""
    lost = (dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError)
    return isinstance(error, lost) or "gloo/transport" in str(error)
