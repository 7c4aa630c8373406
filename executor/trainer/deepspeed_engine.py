"""The engine for symmetric plans: DeepSpeed's pipelines with ZeRO-1, checkpoints in its formats."""

import logging
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.pipe import module as pipe

from executor.checkpoints import MANIFEST, PARTIAL, UNIVERSAL, Checkpoint, publish_universal
from executor.deepspeed_config import ds_config
from executor.deepspeed_conversion import convert_share, refuse_many_ranks
from executor.deepspeed_workarounds import (
    StagedPipeline,
    forbid_builds,
    gradients_for_norm,
    load_libraries,
    other_versions,
    place_step_counters,
    time_instructions,
    tolerate_full_disks,
    topology_of,
    universal_info,
)
from executor.launch.pulse import Pulse
from executor.trainer.checkpointing import PATIENT
from executor.trainer.clock import StepClock
from executor.trainer.context import LayerContext
from executor.trainer.decay import parameter_groups
from executor.trainer.documents import refuse_unmasked, share_of
from executor.trainer.engine import Batches, Place, StepResult, patience_of
from executor.trainer.layers import Buildable, LayerSpec, TiedLayerSpec, layers_of
from executor.trainer.micro_noise import MicroBatchSquares
from executor.trainer.weights import save_weights
from executor.training_job import TrainingJob
from executor.training_options import Device
from stowplan.errors import WorkerError

# Key in the store of the ranks: a checkpoint is converted; below it: a rank's share of it.
_CONVERTED = "stowplan-converted"
_logger = logging.getLogger("stowplan.executor.trainer")

# With this module, not when the first engine is built: then others wait.
load_libraries()


def join(job: TrainingJob, place: Place) -> None:
    """Meet the other ranks."""
    if other := other_versions():
        _logger.warning("the workarounds are written for other versions than %s", other)
    deepspeed.utils.logger.setLevel(logging.WARNING)
    forbid_builds()
    if job.device is Device.CUDA:
        torch.cuda.set_device(place.local_rank)
    # deepspeed reads the variable, and derives a wrong one on uneven hosts when it is not set.
    os.environ["LOCAL_RANK"] = str(place.local_rank)
    deepspeed.init_distributed(
        dist_backend="nccl" if job.device is Device.CUDA else "gloo",
        auto_mpi_discovery=False,
        verbose=False,
        timeout=patience_of(job),
    )


def prepare(job: TrainingJob, checkpoint: Checkpoint, pulse: Pulse) -> None:
    """Convert a checkpoint of another layout to the universal format, once, beside the original; collective.

    Every rank converts its share. One that cannot ends, and with it the run.

    Raises
    ------
    InputError
        When the checkpoint is of more model-parallel ranks than can be converted.
    """
    if checkpoint.has_layout_of(job):
        return
    rank, num_ranks = dist.get_rank(), dist.get_world_size()
    folder = Path(job.checkpoint_folder or "")
    source, universal = folder / checkpoint.tag, folder / (checkpoint.tag + UNIVERSAL)
    partial = universal.with_name(universal.name + PARTIAL)
    refuse_many_ranks(source, len(checkpoint.stage_layers) * checkpoint.tp)
    is_there = [False]
    if rank == 0:
        is_there[0] = (universal / MANIFEST).exists()
        shutil.rmtree(partial, ignore_errors=True)
    dist.broadcast_object_list(is_there)
    if is_there[0]:
        return
    with pulse.beats_while_growing(partial, job.save_limit_s, "converting a checkpoint"):
        convert_share(source, partial, rank, num_ranks)
    pulse.beat(math.inf, "waiting for others to convert a checkpoint")
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{_CONVERTED}/{rank}", "")
    if rank == 0:
        store.wait([f"{_CONVERTED}/{other}" for other in range(num_ranks)], PATIENT)
        publish_universal(folder, checkpoint, partial)
        store.set(_CONVERTED, "")
    store.wait([_CONVERTED], PATIENT)


class DeepSpeedEngine:
    """The stage of this rank under DeepSpeed; collective."""

    def __init__(self, job: TrainingJob, place: Place, clock: StepClock) -> None:
        layout = job.stages[0]
        topology = topology_of(job.pp, layout.dp, layout.tp)
        context = LayerContext(
            tensor_rank=job.coordinates(place.rank).tensor,
            tensor_degree=layout.tp,
            tensor_group=_own_group(topology.get_axis_comm_lists("model"), place.rank) if layout.tp > 1 else None,
            device=f"cuda:{place.local_rank}" if job.device is Device.CUDA else "cpu",
            seed=job.seed,
        )
        layers = layers_of(job, context)
        module = StagedPipeline(
            bounds=layers.bounds(job.stage_layers),
            layers=[_known(spec) for spec in layers.specs],
            topology=topology,
            loss_fn=self._shared_loss,
        )
        if job.document_mask:
            first = layers.bounds(job.stage_layers)[job.coordinates(place.rank).pipe]
            built = enumerate(module.forward_funcs, first)
            refuse_unmasked(layer for index, layer in built if layers.is_spread(index))
        module.universal_checkpoint_info = universal_info(module)
        self._job, self._module = job, module
        self._loss = layers.loss
        self._num_counted: int | None = None
        self._engine, *_ = deepspeed.initialize(
            model=module,
            model_parameters=parameter_groups(module, job.schedule.weight_decay),
            config=ds_config(job),
            dist_init_required=False,
        )
        tolerate_full_disks(self._engine)
        self._squares = MicroBatchSquares(module.parameters()) if job.measures_micro_batches else None
        self._num_replicas = layout.dp
        self._num_ranks = place.world_size
        self._small_square = 0.0
        time_instructions(self._engine, clock.span, self._note_small_gradient)

    @property
    def step(self) -> int:
        """Optimiser steps done."""
        return int(self._engine.global_steps)

    @property
    def device(self) -> torch.device:
        """Where the rank computes."""
        device: torch.device = self._engine.device
        return device

    def train_step(self, batches: Batches, learning_rate: float) -> StepResult:
        """Do one step."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        loss = float(self._engine.train_batch(data_iter=self._taken(batches)))
        norm = float(self._engine.get_global_grad_norm())
        if self._squares is not None:
            self._small_square = self._squares.take(self._job.num_micro_batches)
        return StepResult(
            loss=loss,
            gradient_norm=norm,
            small_square=self._small_square / self._num_replicas,
            large_square=norm**2 / self._num_ranks,
        )

    def evaluate(self, batches: Batches) -> float:
        """Loss of a batch."""
        return float(self._engine.eval_batch(data_iter=self._taken(batches)))

    def write_checkpoint(self, folder: Path) -> str | None:
        """Write the files of this rank."""
        self._engine.checkpoint_engine.failure = None
        self._engine.save_checkpoint(str(folder.parent), tag=folder.name, save_latest=False)
        failure: str | None = self._engine.checkpoint_engine.failure
        return failure

    def write_weights(self, job: TrainingJob) -> str | None:
        """Write them for transformers."""
        return save_weights(self._engine.module.parameters(), self._engine.grid.get_slice_parallel_group(), job)

    def load_checkpoint(self, folder: Path, checkpoint: Checkpoint) -> None:
        """Load weights, optimiser states and the step counter.

        Raises
        ------
        WorkerError
            When DeepSpeed did not load what it was told to.
        """
        universal = not checkpoint.has_layout_of(self._job)
        tag = checkpoint.tag + (UNIVERSAL if universal else "")
        # The engine was built before anybody knew.
        self._engine._config.load_universal_checkpoint = universal
        path, _ = self._engine.load_checkpoint(str(folder), tag=tag, load_lr_scheduler_states=False)
        if path is None or self.step != checkpoint.step:
            raise WorkerError(f"{tag} was not loaded: the engine is at step {self.step}, not {checkpoint.step}")
        place_step_counters(self._engine)

    def state(self) -> None:
        """Cannot be handed over: its layouts are DeepSpeed's own."""

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Never asked for, since nothing is handed over.

        Raises
        ------
        WorkerError
            Always.
        """
        raise WorkerError(f"DeepSpeed cannot go on behind step {checkpoint.step} without a checkpoint")

    def _taken(self, batches: Batches) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """What DeepSpeed reads of a batch, when all else of it is where it is used."""
        self._module.take([each.to(self.device) for each in batches.documents])
        self._num_counted = batches.num_counted
        return iter(batches.pairs)

    def _shared_loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Loss of a micro-batch, of which DeepSpeed takes the mean over all of them and all replicas."""
        loss = self._loss(outputs, labels)
        if self._num_counted is None:
            return loss
        return loss * share_of(labels, self._num_counted) * (self._job.num_micro_batches * self._num_replicas)

    def _note_small_gradient(self) -> None:
        """Squared norm of the part of this replica's gradient that this rank counts."""
        norms = torch._foreach_norm(gradients_for_norm(self._engine))
        self._small_square = float(torch.stack(norms).double().square().sum()) if norms else 0.0


build = DeepSpeedEngine


def _known(spec: Buildable) -> Any:
    """A specification as DeepSpeed has it."""
    if isinstance(spec, TiedLayerSpec):
        return pipe.TiedLayerSpec(spec.key, spec.kind, *spec.arguments, forward_fn=spec.forward_fn, **spec.named)
    if isinstance(spec, LayerSpec):
        return pipe.LayerSpec(spec.kind, *spec.arguments, **spec.named)
    return spec


def _own_group(groups: list[list[int]], rank: int) -> Any:
    """Make all groups, as every rank must, and give the one with this rank."""
    made = {tuple(ranks): dist.new_group(ranks) for ranks in groups}
    return next(group for ranks, group in made.items() if rank in ranks)
