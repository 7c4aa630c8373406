"""A DeepSpeed engine for a job: process groups, layers of this rank's stage, optimiser."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import deepspeed
import torch
import torch.distributed as dist

from executor.deepspeed_config import ds_config
from executor.deepspeed_workarounds import (
    StagedPipeline,
    forbid_builds,
    load_muon_uncompiled,
    other_versions,
    tolerate_full_disks,
    topology_of,
    universal_info,
)
from executor.trainer.context import LayerContext
from executor.trainer.layers import layers_of
from executor.training_job import Device, TrainingJob
from models.wording import counted
from stowplan.errors import InputError

_logger = logging.getLogger("stowplan.executor.trainer")

# So many times the longest limit of the job a rank waits for the others in one operation before it gives up: whoever
# hangs is found before, and its stack with it, unless `hang_limit_steps` median steps take longer, which nobody knows
# yet.
_PATIENCE = 1.5


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
        raise InputError(
            f"the launcher started {counted(world_size, 'rank')}; PP{job.pp} DP{job.dp} TP{job.tp} has {job.num_ranks}"
        )
    if job.device is Device.CUDA and local_rank >= torch.cuda.device_count():
        raise InputError(f"local rank {local_rank} needs a GPU; this host shows {torch.cuda.device_count()}")
    return Place(rank=rank, local_rank=local_rank, world_size=world_size)


def join(job: TrainingJob, place: Place) -> None:
    """Meet the other ranks."""
    if other := other_versions():
        _logger.warning("the workarounds are written for other versions than %s", other)
    deepspeed.utils.logger.setLevel(logging.WARNING)
    forbid_builds()
    load_muon_uncompiled()
    if job.device is Device.CUDA:
        torch.cuda.set_device(place.local_rank)
    # deepspeed reads the variable, and derives a wrong one on uneven hosts when it is not set.
    os.environ["LOCAL_RANK"] = str(place.local_rank)
    deepspeed.init_distributed(
        dist_backend="nccl" if job.device is Device.CUDA else "gloo",
        auto_mpi_discovery=False,
        verbose=False,
        timeout=timedelta(seconds=_PATIENCE * max(job.start_limit_s, job.save_limit_s, job.hang_limit_s)),
    )


def build_engine(job: TrainingJob, place: Place, *, universal: bool) -> Any:
    """Build the stage of this rank and its engine; collective.

    Parameters
    ----------
    universal
        Whether a universal checkpoint will be loaded.
    """
    topology = topology_of(job.pp, job.dp, job.tp)
    context = LayerContext(
        tensor_rank=job.coordinates(place.rank).tensor,
        tensor_degree=job.tp,
        tensor_group=_own_group(topology.get_axis_comm_lists("model"), place.rank) if job.tp > 1 else None,
        device=f"cuda:{place.local_rank}" if job.device is Device.CUDA else "cpu",
        seed=job.seed,
    )
    layers = layers_of(job, context)
    module = StagedPipeline(
        bounds=layers.bounds(job.stage_layers), layers=layers.specs, topology=topology, loss_fn=layers.loss
    )
    module.universal_checkpoint_info = universal_info(module)
    engine, *_ = deepspeed.initialize(
        model=module,
        model_parameters=[parameter for parameter in module.parameters() if parameter.requires_grad],
        config=ds_config(job, universal=universal),
        dist_init_required=False,
    )
    tolerate_full_disks(engine)
    return engine


def agree(values: list[float], device: torch.device) -> list[float]:
    """Sum numbers over all ranks."""
    total = torch.tensor(values, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return [float(value) for value in total]


def _own_group(groups: list[list[int]], rank: int) -> Any:
    """Make all groups, as every rank must, and give the one with this rank."""
    made = {tuple(ranks): dist.new_group(ranks) for ranks in groups}
    return next(group for ranks, group in made.items() if rank in ranks)
