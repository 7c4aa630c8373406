"""What deepspeed 0.19.8 with torch 2.13.0 needs to do what the executor wants; every item has a regression test.

- `forbid_builds`: `init_distributed` would compile a shared-memory extension for over a minute.
- `load_muon_uncompiled`, `load_libraries`: every engine loads an optimiser that nobody here uses, and with it torch's
  compiler, which takes as long as torch itself; what else it loads late is loaded before anybody waits for it.
- `StagedPipeline`: explicit stage bounds; the library partitions by its own weights only. Documents of micro-batches
  beside what stages send each other, which would all have to be tensors.
- `topology_of`: the order of ranks that every launcher and every checkpoint relies on.
- `time_instructions`: times per instruction; `wall_clock_breakdown` crashes with two stages or more, and the
  throughput timer reports -inf.
- `TolerantCheckpointEngine`, `tolerate_full_disks`: a rank that cannot write leaves the others in a barrier.
- `universal_info`: how tensor-parallel parameters go together (see `executor.deepspeed_conversion`).
- `place_step_counters`: a universal checkpoint leaves them on the CPU.
- `gradients_for_norm`: gradients sit in the parameters in fp32, in the optimiser in bf16.

Settings with the same purpose (torch's Adam, ZeRO-1, no throughput timer) are in `executor.deepspeed_config`.
"""

import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from itertools import repeat
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime import compiler
from deepspeed.runtime.checkpoint_engine import TorchCheckpointEngine
from deepspeed.runtime.pipe.module import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology
from torch import nn

from executor.trainer.documents import Documents, apply

PINNED = {"torch": "2.13.0", "deepspeed": "0.19.8"}

# By engines, as they need them first.
_LOADED_LATE = (
    "torch._dynamo",
    "deepspeed.checkpoint.autoep_universal",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.ops.op_builder.all_ops",
    "deepspeed.runtime.zero.muon.muon_optimizer",
)
_INSTRUCTIONS = {
    "ForwardPass": "forward",
    "BackwardPass": "backward",
    "SendActivation": "send",
    "SendGrad": "send",
    "RecvActivation": "receive",
    "RecvGrad": "receive",
    "LoadMicroBatch": "load",
    "ReduceGrads": "reduction",
    "ReduceTiedGrads": "reduction",
    "OptimizerStep": "optimizer",
}


def other_versions() -> dict[str, str]:
    """Installed packages that are not of the version the workarounds are written for."""
    installed = {name: version(name).partition("+")[0] for name in PINNED}
    return {name: found for name, found in installed.items() if found != PINNED[name]}


def forbid_builds() -> None:
    """Keep `init_distributed` from compiling an extension."""
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def load_muon_uncompiled() -> None:
    """Load the Muon optimiser without torch's compiler, which takes as long to load as torch itself.

    Every engine asks whether its optimiser is Muon, and so loads its kernels, which are marked to be compiled. Jobs of
    ours have Adam: nobody calls the kernels.
    """
    marking, compiler.compile = compiler.compile, lambda: lambda kernel: kernel
    try:
        importlib.import_module("deepspeed.runtime.zero.muon.original_muon")
    finally:
        compiler.compile = marking


def load_libraries() -> None:
    """Load what an engine would load while it is built: that takes longer than to build it."""
    load_muon_uncompiled()
    for name in _LOADED_LATE:
        importlib.import_module(name)


def topology_of(pp: int, dp: int, tp: int) -> PipeModelDataParallelTopology:
    """Pipe slowest, then data, model fastest."""
    return PipeModelDataParallelTopology(num_pp=pp, num_mp=tp, num_dp=dp)


class StagedPipeline(PipelineModule):
    """A pipeline whose stage s holds the specifications bounds[s] .. bounds[s + 1] - 1; its layers recompute on their
    own.
    """

    def __init__(self, *, bounds: Sequence[int], **options: Any) -> None:
        self._bounds = list(bounds)
        self._documents: Iterator[Documents | None] = repeat(None)
        super().__init__(**options)

    def take(self, documents: Sequence[Documents]) -> None:
        """Keep the documents of the next micro-batches, which every schedule has in order; none: no layer is told."""
        self._documents = iter(documents) if documents else repeat(None)

    def forward(self, forward_input: torch.Tensor) -> torch.Tensor:
        """Apply the layers to the next micro-batch."""
        documents = next(self._documents)
        for layer in self.forward_funcs:
            forward_input = apply(layer, forward_input, documents)
        return forward_input

    def _partition_layers(self, method: str = "uniform") -> None:  # noqa: ARG002
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = self._bounds
        self._set_bounds(start=self._bounds[stage], stop=self._bounds[stage + 1])


def time_instructions(
    engine: Any, span: Callable[[str], AbstractContextManager[None]], before_reduction: Callable[[], None]
) -> None:
    """Run every pipeline instruction of this engine inside `span` of its part of the step.

    Parameters
    ----------
    before_reduction
        Called when the gradients of this rank's replica are complete and not yet those of all replicas.
    """

    def timed(name: str, function: Callable[..., None]) -> Callable[..., None]:
        def run(self: Any, *values: Any, **named: Any) -> None:
            if function.__name__ == "_exec_reduce_grads":
                before_reduction()
            with span(name):
                function(self, *values, **named)

        return run

    kinds = type(engine)._INSTRUCTION_MAP
    engine._INSTRUCTION_MAP = {kind: timed(_INSTRUCTIONS[kind.__name__], function) for kind, function in kinds.items()}


class TolerantCheckpointEngine(TorchCheckpointEngine):
    """Writes durably; a failure is kept in `failure` instead of raised, so that all ranks reach every barrier."""

    def __init__(self) -> None:
        super().__init__()
        self.failure: str | None = None

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Make a folder."""
        self._try(path, lambda: os.makedirs(path, exist_ok=exist_ok))

    def save(self, state_dict: Any, path: str) -> None:
        """Write a file, and wait until it is on the disk."""
        self._try(path, lambda: _save(state_dict, path))

    def _try(self, path: str, action: Callable[[], None]) -> None:
        if self.failure is not None:
            return
        try:
            action()
        except (OSError, RuntimeError) as error:
            # torch reports a full disk as a RuntimeError.
            self.failure = f"{path}: {str(error).splitlines()[0]}"


def tolerate_full_disks(engine: Any) -> TolerantCheckpointEngine:
    """Let `engine.save_checkpoint` come back on all ranks whatever happens; the result says what went wrong."""
    engine.checkpoint_engine = TolerantCheckpointEngine()
    engine._copy_recovery_script = lambda _: None
    return engine.checkpoint_engine


def _save(state: Any, path: str) -> None:
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def universal_info(module: PipelineModule) -> dict[str, Any]:
    """How the converter puts this model's parameters together; collective over the ranks of a pipeline.

    What tensor ranks hold whole is averaged: equal up to rounding, and averaging does not insist on the last bit.
    """
    roles: dict[str, tuple[str, int | None]] = {}
    gathered: list[dict[str, tuple[str, int | None]]] = [{}] * module.num_stages
    dist.all_gather_object(gathered, dict(_roles(module)), group=module.mpu().get_pipe_parallel_group())
    for stage in gathered:
        roles |= stage

    def names(*wanted: str) -> list[str]:
        return [f"{re.escape(name)}$" for name, (role, _) in roles.items() if role in wanted]

    vocabularies = {size for _, size in roles.values() if size is not None}
    return {
        "universal_checkpoint_version": 0.3,
        "parameter_to_average_patterns": names("whole"),
        "parameter_with_row_parallelism_patterns": names("row"),
        "vocabulary_parameter_patterns": names("vocabulary"),
        "original_vocab_size": max(vocabularies, default=None),
        "pipeline_replicated_parameter_patterns": [r"tied_modules\."],
    }


def _roles(module: nn.Module) -> Iterable[tuple[str, tuple[str, int | None]]]:
    for name, parameter in module.named_parameters():
        size = getattr(parameter, "vocabulary_size", None)
        axis = getattr(parameter, "tensor_axis", None)
        role = "vocabulary" if size is not None else {None: "whole", 0: "column", 1: "row"}[axis]
        yield name, (role, size)


def place_step_counters(engine: Any) -> None:
    """Put the optimiser's step counters where its parameters are: torch's fused Adam wants them there."""
    for parameter, state in engine.optimizer.state.items():
        if torch.is_tensor(state.get("step")):
            state["step"] = state["step"].to(parameter.device)


def gradients_for_norm(engine: Any) -> list[torch.Tensor]:
    """Gradients that this rank counts in the norm: each parameter of the model on exactly one of a replica's ranks."""
    optimizer = engine.optimizer
    if hasattr(optimizer, "get_grads_for_norm"):
        tensors: list[torch.Tensor] = optimizer.get_grads_for_norm()[0]
        return tensors
    first = engine.grid.get_slice_parallel_rank() == 0
    return [
        parameter.grad
        for parameter in engine.module.parameters()
        if parameter.grad is not None
        and not parameter.ds_pipe_replicated
        and (first or getattr(parameter, "model_parallel", False))
    ]
