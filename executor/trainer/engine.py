"""What the loop asks of an engine, and what engines share: the place of a process, and sums over all of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import torch
import torch.distributed as dist

from executor.checkpoints import Checkpoint
from executor.redeployment import Region
from executor.trainer.documents import Documents
from executor.training_job import TrainingJob
from executor.training_options import Device
from models.wording import counted
from stowplan.errors import InputError

# So many times the longest limit of the job a rank waits for the others in one operation before it gives up: whoever
# hangs is found before, and its stack with it, unless `hang_limit_steps` median steps take longer, which nobody knows
# yet.
_PATIENCE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """What a rank's replica has of the micro-batches of a step.

    `pairs`: inputs and labels of each; none in stages in the middle. `documents`: of each, in every stage; none where
    attention does not stay within them. `num_counted`: predictions of the whole step that the loss counts; None: all.
    """

    pairs: tuple[tuple[torch.Tensor, torch.Tensor], ...]
    documents: tuple[Documents, ...] = ()
    num_counted: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a rank knows after a step.

    `loss`, mean over the batch, and `gradient_norm`, before clipping, are those of the whole model. The squares are
    this rank's part of sums over all ranks: of the squared norm of the gradient over `TrainingJob.small_batch`
    sequences, and of that over the whole batch, of the same parameters.
    """

    loss: float
    gradient_norm: float
    small_square: float
    large_square: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A part of the state that this rank has: `values` of shape (rows, columns), which change as it trains.

    `counts`: whether it is the one of which a checkpoint has it.
    """

    region: Region
    values: torch.Tensor
    counts: bool


class Engine(Protocol):
    """A rank's part of the model with its optimiser; every call is collective over all ranks."""

    @property
    def step(self) -> int:
        """Optimiser steps done."""

    @property
    def device(self) -> torch.device:
        """Where the rank computes."""

    def train_step(self, batches: Batches, learning_rate: float) -> StepResult:
        """Do one step; the parts of it are timed by the clock that the engine was built with."""

    def evaluate(self, batches: Batches) -> float:
        """Mean loss over a batch, which nothing is learned of."""

    def write_checkpoint(self, folder: Path) -> str | None:
        """Write weights and optimiser states; give what went wrong on this rank."""

    def write_weights(self, job: TrainingJob) -> str | None:
        """Write the weights into `final_weights` of the job, for transformers; give what went wrong on any rank."""

    def load_checkpoint(self, folder: Path, checkpoint: Checkpoint) -> None:
        """Load what `write_checkpoint` has written into a folder of checkpoints, and the step."""

    def state(self) -> Sequence[Held] | None:
        """All that this rank has of what a checkpoint holds; None where the engine can hand nothing over."""

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Go on behind a checkpoint, of which all `state` has the values already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which process this is, as the launcher has set it in the environment."""

    rank: int
    local_rank: int
    world_size: int


def place_of(environment: Mapping[str, str], job: TrainingJob) -> Place:
    """Read the place of this process.

    Raises
    ------
    InputError
        When a variable is missing or no number, the number of processes is not that of the job, or there is no such
        GPU.
    """
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    missing = [name for name in (*names, "MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise InputError(f"the launcher has not set {', '.join(missing)} in the environment")
    try:
        rank, local_rank, world_size = (int(environment[name]) for name in names)
    except ValueError as error:
        raise InputError(f"RANK, LOCAL_RANK and WORLD_SIZE must be whole numbers: {error}") from error
    if world_size != job.num_ranks:
        raise InputError(f"the launcher started {counted(world_size, 'rank')}; the plan has {job.num_ranks}")
    if job.device is Device.CUDA and local_rank >= torch.cuda.device_count():
        raise InputError(f"local rank {local_rank} needs a GPU; this host shows {torch.cuda.device_count()}")
    return Place(rank=rank, local_rank=local_rank, world_size=world_size)


def patience_of(job: TrainingJob) -> timedelta:
    """How long a rank waits for others in one operation."""
    return timedelta(seconds=_PATIENCE * max(job.start_limit_s, job.save_limit_s, job.hang_limit_s))


def agree(values: list[float], device: torch.device) -> list[float]:
    """Sum numbers over all ranks."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return [float(value) for value in total]
