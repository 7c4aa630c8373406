"""What rank 0 of a run does that only pretends to train: see `pretend_trainer`."""

import os
import signal
import sys
import time
from pathlib import Path

from executor.checkpoints import PARTIAL, checkpoint_to_resume, complete_checkpoint, tag_of
from executor.launch.pulse import Pulse
from executor.metrics import MetricsWriter, StepMetrics, metrics_path
from executor.run_files import STOP_FILE
from executor.training_job import TrainingJob, read_training_job

# Long enough that another run starts before this one is through, on slow machines too.
STEP_S = 0.15
# In the folder of the deployment: its presence lets steps take no time.
HURRY_FILE = "hurry"


def resume(path: Path) -> None:
    """Do the steps of the job that lies at `path`, from its last good checkpoint on."""
    job = read_training_job(path)
    checkpoint = checkpoint_to_resume(job)
    train(job, path.parent, checkpoint.step if checkpoint else 0)


def train(job: TrainingJob, folder: Path, step: int) -> None:
    assert job.metrics_folder is not None
    assert job.checkpoint_folder is not None
    launch, first, pulse = time.time_ns() // 1_000_000, step, Pulse(os.environ)
    with MetricsWriter(metrics_path(Path(job.metrics_folder), 0)) as writer:
        while step < job.num_steps:
            asked = (folder / STOP_FILE).exists()
            if asked or (step and job.checkpoint_interval and step % job.checkpoint_interval == 0):
                save(job, step)
            if asked:
                return
            fault = Path(job.checkpoint_folder).parent / "fault"
            if str(step) == os.environ.get("PRETEND_FAULT") and not fault.exists():
                fault.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if str(step - first) == os.environ.get("PRETEND_STEPS"):
                if code := os.environ.get("PRETEND_CODE"):
                    sys.exit(int(code))
                os.kill(os.getpid(), signal.SIGKILL)
            pulse.beat(job.hang_limit_s, "doing a step")
            started = time.time()
            if not (Path(job.checkpoint_folder).parent / HURRY_FILE).exists():
                time.sleep(STEP_S)
            step += 1
            writer.write(metrics(job, launch, step, started))
    pulse.beat(job.save_limit_s, "writing to disk")
    save(job, step)


def save(job: TrainingJob, step: int) -> None:
    assert job.checkpoint_folder is not None
    folder = Path(job.checkpoint_folder)
    (folder / (tag_of(step) + PARTIAL)).mkdir(parents=True, exist_ok=True)
    complete_checkpoint(folder, job, step)


def metrics(
    job: TrainingJob, launch: int, step: int, started_at_s: float, *, rank: int = 0, step_s: float = STEP_S
) -> StepMetrics:
    place = job.coordinates(rank)
    return StepMetrics(
        launch=launch,
        rank=rank,
        step=step,
        pipe=place.pipe,
        data=place.data,
        tensor=place.tensor,
        host="a",
        started_at_s=started_at_s,
        step_s=step_s,
        forward_s=step_s / 4,
        backward_s=step_s / 2,
        send_s=0.0,
        receive_s=0.0,
        load_s=0.0,
        reduction_s=0.0,
        optimizer_s=step_s / 4,
        num_micro_batches=job.num_micro_batches,
        tokens=job.tokens_per_step,
        tokens_per_s=job.tokens_per_step / step_s,
        peak_memory_bytes=1,
        loss=1.0 / step,
        learning_rate=1e-3,
        small_batch=job.small_batch,
        small_gradient_square=1.0,
        large_batch=job.global_batch,
        large_gradient_square=1.0,
    )
