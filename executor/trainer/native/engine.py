"""An engine for any plan, on torch alone: stages with degrees and shares of their own, sharded by ZeRO 1 to 3."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from shutil import which
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining import (
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)

from executor.checkpoints import Checkpoint
from executor.launch.pulse import Pulse
from executor.trainer.clock import StepClock
from executor.trainer.context import LayerContext
from executor.trainer.documents import refuse_unmasked, share_of
from executor.trainer.engine import Batches, Held, Place, StepResult, patience_of
from executor.trainer.layers import layers_of
from executor.trainer.micro_noise import MicroBatchSquares
from executor.trainer.native import checkpoint as stored
from executor.trainer.native.flat import FlatParameters, Replicas
from executor.trainer.native.module import Sharding, StageModule, trained
from executor.trainer.native.noise import noise_squares
from executor.trainer.native.sets import Sets
from executor.trainer.native.sharded import Traffic
from executor.trainer.native.stage import UnevenStage
from executor.trainer.native.ties import Ties
from executor.trainer.native.update import Update
from executor.trainer.weights import save_weights
from executor.training_job import TrainingJob
from executor.training_options import Compiler, Device
from models.pipeline_schedule import PipelineSchedule
from models.transformer import Precision
from stowplan.errors import InputError

_logger = logging.getLogger("stowplan.executor.trainer")

_TORCH = "2.13.0"
_OF_PARTS: Mapping[PipelineSchedule, Any] = MappingProxyType(
    {
        PipelineSchedule.ONE_F_ONE_B: ScheduleInterleaved1F1B,
        PipelineSchedule.ZERO_BUBBLE: ScheduleInterleavedZeroBubble,
        PipelineSchedule.ZBV: ScheduleZBVZeroBubble,
    }
)


def join(job: TrainingJob, place: Place) -> None:
    """Meet the other ranks."""
    if (found := version("torch").partition("+")[0]) != _TORCH:
        _logger.warning("the native engine is written for torch %s, not %s", _TORCH, found)
    on_gpu = job.device is Device.CUDA
    if on_gpu:
        torch.cuda.set_device(place.local_rank)
    dist.init_process_group("nccl" if on_gpu else "gloo", timeout=patience_of(job))


def prepare(job: TrainingJob, checkpoint: Checkpoint, pulse: Pulse) -> None:
    """Every layout reads every checkpoint as it is."""


class NativeEngine:
    """The part of a stage that this rank has; collective over all ranks."""

    def __init__(self, job: TrainingJob, place: Place, clock: StepClock) -> None:
        if job.compiler is Compiler.INDUCTOR:
            refuse_without_tools(os.environ)
        self._job, self._clock = job, clock
        self._place = where = job.coordinates(place.rank)
        layout = job.stages[where.pipe]
        self.device = torch.device(f"cuda:{place.local_rank}" if job.device is Device.CUDA else "cpu")
        tensor_ranks = [job.rank_of(where._replace(tensor=tensor)) for tensor in range(layout.tp)]
        # Those that hold different experts, and those that hold the same.
        degree = job.expert_parallel
        expert, first = where.data % degree, where.data - where.data % degree
        context = LayerContext(
            tensor_rank=where.tensor,
            tensor_degree=layout.tp,
            tensor_group=_group(tensor_ranks, job),
            splits_sequences=layout.tp > 1 and job.model.splits_sequences,
            expert_rank=expert,
            expert_degree=degree,
            expert_group=self._replica_group(range(first, first + degree)) if degree > 1 else None,
            device=str(self.device),
            seed=job.seed,
        )
        dtype = torch.bfloat16 if job.model.precision is Precision.BF16 else torch.float32
        layers = layers_of(job, context)
        indices = job.parts_of(where.pipe)
        everywhere = experts = self._replicas(1)
        if degree > 1:
            experts = self._replicas(degree)
        sets = Sets(everywhere=everywhere, experts=experts, tensor_rank=where.tensor, dtype=dtype)
        sharding = _sharding(sets, job.model.zero_stage, context.tensor_group, clock)
        modules = [
            StageModule(layers, layers.bounds(job.part_layers), index, job.pp, job.compiler, sharding)
            for index in indices
        ]
        if job.document_mask:
            for module in modules:
                refuse_unmasked(module.spread)
        self._tensor_group, self._modules = context.tensor_group, modules
        self._flats: Sequence[FlatParameters] = [*(flat for module in modules for flat in module.flats), *sets.alone]
        if sharding is None:
            parameters = [item for module in modules for item in trained(module)]
            tied = {name: counts for module in modules for name, counts in module.ties.items()}
            self._flats = sets.whole(parameters, tied)
        ties = Ties(self._flats, where, layout.tp) if modules[0].has_ties else None
        self._update = Update(
            self._flats,
            job.schedule,
            ties=ties,
            clock=clock,
            optimizer=job.model.optimizer,
            tensor_group=context.tensor_group,
        )
        self._squares = (
            MicroBatchSquares(parameter for module in modules for parameter in module.parameters())
            if job.measures_micro_batches
            else None
        )
        # Of a step, whose gradients are known one by one.
        self._num_parts = 1 if sharding is None else job.num_micro_batches
        self._loss = layers.loss
        self._share = layout.batches[where.data] / job.global_batch
        self._num_counted: int | None = None
        self._parts = [
            UnevenStage(module, job, index, where, self.device, dtype, clock)
            for module, index in zip(modules, indices, strict=True)
        ]
        self._schedule = _schedule(job, self._parts, self._shared_loss)

    @property
    def step(self) -> int:
        """Optimiser steps done."""
        return self._update.step

    def train_step(self, batches: Batches, learning_rate: float) -> StepResult:
        """Do one step."""
        self._clock.lap(None)
        for flat in self._flats:
            flat.zero_gradients()
        loss = self._run(self._schedule.step, batches)
        mean, norm, alone, summed = self._update.apply(loss, learning_rate)
        if self._squares is None:
            small, large = noise_squares(self._job, self._place, alone, summed, num_parts=self._num_parts)
        else:
            small, large = self._squares.take(self._job.num_micro_batches), summed
        return StepResult(loss=mean, gradient_norm=norm, small_square=small, large_square=large)

    def evaluate(self, batches: Batches) -> float:
        """Loss of a batch."""
        with torch.no_grad():
            loss = self._run(self._schedule.eval, batches)
        dist.all_reduce(loss)
        return float(loss)

    def _run(self, passes: Callable[..., Any], batches: Batches) -> torch.Tensor:
        """Take a batch through the passes of a schedule; this rank's share of the loss, a scalar in fp64."""
        inputs: tuple[torch.Tensor, ...] = ()
        labels: dict[str, Any] = {}
        losses: list[torch.Tensor] = []
        first, last = self._place.pipe == 0, self._place.pipe == self._job.last_stage
        if first or last:
            tokens, targets = (torch.cat(parts).to(self.device) for parts in zip(*batches.pairs, strict=True))
            inputs = (tokens,) if first else ()
            labels = {"target": targets, "losses": losses} if last else {}
        documents = [each.to(self.device) for each in batches.documents]
        for part in self._parts:
            part.take(documents)
        self._num_counted = batches.num_counted
        self._clock.lap("load")
        passes(*inputs, **labels, return_outputs=False)
        self._clock.lap("send" if self._job.pp > 1 else None)
        loss = torch.zeros((), dtype=torch.float64, device=self.device)
        if losses and self._place.tensor == 0:
            loss += torch.stack([each.detach() for each in losses]).double().sum()
        return loss

    def write_checkpoint(self, folder: Path) -> str | None:
        """Write what this rank has."""
        return stored.write(self._pieces(), folder)

    def write_weights(self, job: TrainingJob) -> str | None:
        """Write them for transformers."""
        parameters = (parameter for module in self._modules for parameter in module.whole_parameters())
        return save_weights(parameters, self._tensor_group, job)

    def load_checkpoint(self, folder: Path, checkpoint: Checkpoint) -> None:
        """Load what this rank needs."""
        stored.read(self._pieces(), folder / checkpoint.tag)
        self.go_on(checkpoint)

    def state(self) -> Sequence[Held]:
        """What this rank writes and reads."""
        return tuple(Held(region=piece.region, values=piece.values, counts=piece.counts) for piece in self._pieces())

    def go_on(self, checkpoint: Checkpoint) -> None:
        """Give the weights to all that compute with them."""
        self._update.resume(checkpoint.step)

    def _pieces(self) -> Iterator[Any]:
        degree = self._job.stages[self._place.pipe].tp
        for optimised in self._update.optimised:
            yield from stored.pieces(optimised, tensor_rank=self._place.tensor, tensor_degree=degree)

    def _replica_group(self, replicas: Sequence[int]) -> Any:
        """Ranks of the stage that differ from this one in their replica alone."""
        return _group([self._job.rank_of(self._place._replace(data=data)) for data in replicas], self._job)

    def _replicas(self, step: int) -> Replicas:
        """Every so many-th replica of the stage, of which this rank is one."""
        all_of_them = range(self._place.data % step, self._job.stages[self._place.pipe].dp, step)
        group = self._replica_group(all_of_them)
        return Replicas(group=group, index=self._place.data // step, count=len(all_of_them))

    def _shared_loss(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """What the samples of this replica add to the mean over the batch."""
        share = self._share if self._num_counted is None else share_of(labels, self._num_counted)
        loss = self._loss(outputs, labels) * share
        self._clock.lap("forward")
        return loss


build = NativeEngine


def refuse_without_tools(environment: Mapping[str, str]) -> None:
    """Raise InputError where inductor finds nothing that builds its kernels: it would say so at the first step."""
    names = (environment["CXX"],) if environment.get("CXX") else ("g++", "clang++")
    if not any(which(name, path=environment.get("PATH")) for name in names):
        raise InputError(
            f"compiler is inductor, which needs a C++ compiler on every host; {' and '.join(names)} cannot be found: "
            "install one, name it in CXX, or take aot_eager"
        )


def _schedule(job: TrainingJob, parts: list[UnevenStage], loss: Callable[..., torch.Tensor]) -> Any:
    """1F1B, which needs as many micro-batches as stages, else GPipe; where stages are cut into parts, that of the
    plan."""
    options: dict[str, Any] = {"n_microbatches": job.num_micro_batches, "loss_fn": loss, "scale_grads": False}
    if len(parts) > 1:
        return _OF_PARTS[job.pipeline_schedule](parts, **options)
    kind = Schedule1F1B if job.num_micro_batches >= job.pp else ScheduleGPipe
    return kind(parts[0], **options)


def _sharding(sets: Sets, zero_stage: int, tensor_group: Any, clock: StepClock) -> Sharding | None:
    """How parameters are sharded layer by layer; None where they are not, or there is one replica only."""
    if zero_stage < 2 or sets.everywhere.count == 1:
        return None
    return partial(sets.shard, shards_weights=zero_stage > 2, traffic=Traffic(clock), tensor_group=tensor_group)


def _group(ranks: list[int], job: TrainingJob) -> Any:
    """A group that only its members make; None for one rank."""
    if len(ranks) == 1:
        return None
    return dist.new_group(ranks, timeout=patience_of(job), use_local_synchronization=True)
