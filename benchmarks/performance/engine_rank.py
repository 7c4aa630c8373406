"""One rank of `engine_steps`: both engines in one process, their steps in turns, so that both meet the same machine.

RANK=.. WORLD_SIZE=.. python -P -m benchmarks.performance.engine_rank job.json STEPS RESULT
"""

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist

from benchmarks.performance.plain_deepspeed import PlainDeepSpeed
from executor.learning_rate import learning_rate_at
from executor.progress import Progress
from executor.token_stream import micro_batch, open_stream
from executor.trainer import deepspeed_engine
from executor.trainer.clock import HostClock
from executor.trainer.engine import Batches, StepResult, place_of
from executor.trainer.native import engine as native_engine
from executor.trainer.rank import leave_process
from executor.training_job import TrainingJob, read_training_job
from executor.training_options import EngineName


class Trains(Protocol):
    """What steps are measured of."""

    def train_step(self, batches: Batches, learning_rate: float) -> StepResult:
        """Do one step."""


def main(job_file: str, num_steps: str, result: str) -> None:
    """Write, of rank 0, seconds, CPU seconds over all ranks, and losses of every step, by engine."""
    job = read_training_job(Path(job_file))
    place = place_of(os.environ, job)
    deepspeed_engine.join(job, place)
    # Its pipelines have ZeRO 1 alone.
    other: Trains = (
        PlainDeepSpeed(job)
        if job.model.zero_stage > 1
        else deepspeed_engine.build(replace(job, engine=EngineName.DEEPSPEED), place, HostClock())
    )
    engines: dict[str, Trains] = {
        EngineName.DEEPSPEED: other,
        EngineName.NATIVE: native_engine.build(job, place, HostClock()),
    }
    steps: dict[str, list[tuple[float, float, float]]] = {name: [] for name in engines}
    for step in range(int(num_steps)):
        # Who comes second finds warmer caches.
        for name in list(engines)[:: 1 if step % 2 else -1]:
            batches = _batches(job, step, place.rank)
            dist.barrier()
            start_s, start_cpu_s = time.perf_counter(), time.process_time()
            loss = (
                engines[name].train_step(batches, learning_rate_at(job, Progress.plain(step * job.global_batch))).loss
            )
            cpu_s = torch.tensor(time.process_time() - start_cpu_s, dtype=torch.float64)
            dist.barrier()
            step_s = time.perf_counter() - start_s
            dist.all_reduce(cpu_s)
            steps[name].append((step_s, float(cpu_s), loss))
    if place.rank == 0:
        Path(result).write_text(json.dumps(steps))
    dist.barrier()
    leave_process(0)


def _batches(job: TrainingJob, step: int, rank: int) -> Batches:
    pipe, data, _ = job.coordinates(rank)
    stream = open_stream(job)
    parts = [
        torch.from_numpy(micro_batch(stream, job, first=step * job.global_batch, index=index, data=data, pipe=pipe))
        for index in range(job.num_micro_batches)
    ]
    return Batches(pairs=tuple((tokens[:, :-1], tokens[:, 1:].contiguous()) for tokens in parts))


if __name__ == "__main__":
    main(*sys.argv[1:])
