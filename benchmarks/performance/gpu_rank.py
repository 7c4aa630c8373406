"""The rank of `gpu_steps`: trains jobs that lie in files one after another, each in a process of its own.

    RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=.. MASTER_PORT=.. python -P -m benchmarks.performance.gpu_rank JOB...

The libraries are loaded once, and processes forked from that; the GPU is first asked for in these, so that each finds
all of its memory free. Steps go to the metrics folder of every job, beside them why one ended early. All jobs are of
one engine.
"""

import importlib
import os
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.paths import FAULT
from executor.launch.pulse import Pulse
from executor.progress import Progress
from executor.trainer.clock import CudaClock, HostClock
from executor.trainer.engine import place_of
from executor.trainer.loop import Loop
from executor.trainer.rank import ENGINES, leave_process
from executor.training_job import TrainingJob, read_training_job
from executor.training_options import Device


def main(files: list[str]) -> None:
    """Train every job, whatever became of those before."""
    jobs = [read_training_job(Path(file)) for file in files]
    library: Any = importlib.import_module(ENGINES[jobs[0].engine])
    for job in jobs:
        child = os.fork()
        if not child:
            _train(library, job)
        os.waitpid(child, 0)


def _train(library: Any, job: TrainingJob) -> NoReturn:
    """Train one, and end the process."""
    folder = Path(job.metrics_folder or "")
    try:
        place = place_of(os.environ, job)
        library.join(job, place)
        clock = CudaClock() if job.device is Device.CUDA else HostClock()
        engine = library.build(job, place, clock)
        launch = int(time.time() * 1e3)
        Loop(engine, clock, job, place, launch, folder, Pulse(os.environ), Progress()).run()
    except Exception as error:  # noqa: BLE001 - what does not train is a result, too
        folder.mkdir(parents=True, exist_ok=True)
        said = next(iter(str(error).splitlines()), "")
        (folder / FAULT).write_text(f"{type(error).__name__}: {said}\n")
    leave_process(0)


if __name__ == "__main__":
    main(sys.argv[1:])
