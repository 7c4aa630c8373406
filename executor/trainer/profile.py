"""Profile the stages of a plan one after another on a single device (Arena section 3.4, "disaggregated profiling").

    python -P -m executor.trainer.profile --model llama2-7b --gpu-type h100 --pp 2 --tp 4 -o profile.json

Every worker of a stage does the same, so one of them is enough: its shard of the stage's layers is built, and a
micro-batch goes forward and backward with the shapes of the plan. All-reduces go to nobody: communication is modelled,
computation is measured. The result holds coefficients for the planner.
"""

import argparse
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from executor.launch.local import free_port
from executor.records import write_record
from executor.stage_profile import StageProfile
from executor.trainable import model_faults
from executor.trainer.clock import CudaClock, HostClock, StepClock
from executor.trainer.context import LayerContext
from executor.trainer.layers import transformer_layers
from executor.training_options import Device
from models.catalogue import find_model
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.architecture import profile_of
from models.performance.iteration.fabric import flat_fabric
from models.performance.iteration.inversion import invert
from models.performance.iteration.measurement import Measurement
from models.performance.iteration.whitebox import white_box
from models.readers import is_file_name, read_model_file
from models.software import Software
from models.transformer import JobModel, Precision, Transformer
from stowplan.errors import InputError, Issue, StowplanError, raise_for_errors
from topology.cluster import GpuType

_WARM_UP = 3
# Coefficients do not depend on bandwidths where nothing was communicated.
_ANY_BANDWIDTH = 1e9


def profile_stages(model: Transformer, plan: ParallelPlan, device: str, repeats: int) -> tuple[Measurement, ...]:
    """Measure the first replica of every stage on `device`; a process group must exist."""
    starts = [sum(stage.num_layers for stage in plan.stages[:k]) for k in range(plan.pp)]
    return tuple(_profile_stage(model, plan, k, start, device, repeats) for k, start in enumerate(starts))


def _profile_stage(
    model: Transformer, plan: ParallelPlan, index: int, start: int, device: str, repeats: int
) -> Measurement:
    stage = plan.stages[index]
    local_batch = max(replica.local_batch for replica in stage.replicas)
    layers = transformer_layers(model, LayerContext(tensor_degree=stage.tp, device=device))
    specs = [
        *(layers.before if index == 0 else ()),
        *layers.layers[start : start + stage.num_layers],
        *(layers.after if index == plan.pp - 1 else ()),
    ]
    dtype = torch.bfloat16 if model.precision is Precision.BF16 else torch.float32
    module = nn.Sequential(*(_Layer(spec) for spec in specs)).to(dtype)
    optimizer = _Optimizer(module, fused=device.startswith("cuda"))
    clock: StepClock = CudaClock() if device.startswith("cuda") else HostClock()
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
    times: dict[str, list[float]] = {"forward": [], "backward": [], "optimizer": []}
    output = torch.empty(0)
    for k in range(_WARM_UP + repeats):
        inputs, labels = _inputs(model, local_batch, index == 0, dtype, device)
        with clock.span("forward"):
            output = module(inputs)
            final = layers.loss(output, labels) if index == plan.pp - 1 else output
        with clock.span("backward"):
            final.backward(torch.ones_like(final))
        with clock.span("optimizer"):
            optimizer.step()
        parts = clock.collect()
        if k >= _WARM_UP:
            for name, value in parts.items():
                times[name].append(value)
    size = output.element_size() * output.numel() if index < plan.pp - 1 else None
    forward, backward, optimizer_s = (statistics.median(times[name]) for name in ("forward", "backward", "optimizer"))
    return Measurement(
        stage=index,
        replica=0,
        forward_s=forward,
        forward_communication_s=0.0,
        backward_s=backward,
        optimizer_s=optimizer_s / (stage.dp if model.zero_stage >= 1 else 1),
        output_bytes=None if size is None else float(size),
    )


class _Layer(nn.Module):
    """A layer built from its specification; a tied one applies what the specification says."""

    def __init__(self, spec: object) -> None:
        super().__init__()
        self.layer = spec.build()  # type: ignore[attr-defined]
        self._forward = getattr(spec, "forward_fn", None)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.layer(values) if self._forward is None else self._forward(self.layer, values)


class _Optimizer:
    """AdamW on fp32 copies of the parameters, as mixed-precision training has it."""

    def __init__(self, module: nn.Module, *, fused: bool) -> None:
        self._parameters = list(module.parameters())
        self._copies = [parameter.detach().clone().float() for parameter in self._parameters]
        self._adam = torch.optim.AdamW(self._copies, lr=1e-4, fused=fused)

    def step(self) -> None:
        for copy, parameter in zip(self._copies, self._parameters, strict=True):
            copy.grad = None if parameter.grad is None else parameter.grad.float()
            parameter.grad = None
        self._adam.step()
        with torch.no_grad():
            for copy, parameter in zip(self._copies, self._parameters, strict=True):
                parameter.copy_(copy)


def _inputs(
    model: Transformer, local_batch: int, first: bool, dtype: torch.dtype, device: str
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (local_batch, model.sequence_length)
    labels = torch.randint(model.vocabulary_size, shape, device=device)
    if first:
        return torch.randint(model.vocabulary_size, shape, device=device), labels
    values = torch.randn((*shape, model.hidden_size), dtype=dtype, device=device, requires_grad=True)
    return values, labels


def stage_profile(model: Transformer, plan: ParallelPlan, device: Device, repeats: int) -> StageProfile:
    """Profile a plan and invert what was measured.

    Raises
    ------
    InputError
        When the trainer does not know such models, the model cannot be built with the degrees of the plan, or there is
        no such device.
    """
    if model.num_experts > 1:
        detail = f"is {model.num_experts}; profiles are of dense models: calibrate with steps of a training"
        raise InputError("the model has experts", [Issue(code="experts", pointer="/model/num_experts", detail=detail)])
    raise_for_errors(list(model_faults(model)), "model")
    if device is Device.CUDA and not torch.cuda.is_available():
        raise InputError("device is cuda; this machine shows no GPU")
    backend = "nccl" if device is Device.CUDA else "gloo"
    dist.init_process_group(backend, init_method=f"tcp://127.0.0.1:{free_port()}", rank=0, world_size=1)
    try:
        measurements = profile_stages(model, plan, device.value, repeats)
    finally:
        dist.destroy_process_group()
    machine = torch.cuda.get_device_name() if device is Device.CUDA else platform.processor() or platform.machine()
    kind, profile = _unknown_type(plan.stages[0].replicas[0].gpu_type), profile_of(model)
    fabric, curves = flat_fabric({node: kind for node, _ in plan.gpus}), white_box(profile, (kind,)).curves
    return StageProfile(
        machine=machine,
        torch_version=torch.__version__,
        repeats=repeats,
        model=model,
        plan=plan,
        measurements=measurements,
        calibration=invert(profile, plan, measurements, fabric, curves=curves),
    )


def _unknown_type(name: str) -> GpuType:
    return GpuType(
        name=name,
        memory_bytes=1,
        peak_flops_per_s=1.0,
        intra_node_bandwidth_bytes_per_s=_ANY_BANDWIDTH,
        inter_node_bandwidth_bytes_per_s=_ANY_BANDWIDTH,
    )


def _plan(arguments: argparse.Namespace, model: Transformer) -> ParallelPlan:
    per_step = arguments.micro_batch * arguments.dp
    if model.global_batch % per_step:
        raise InputError(f"a global batch of {model.global_batch} does not divide into steps of {per_step} sequences")
    groups = [(str(k), gpu) for k in range(arguments.pp * arguments.dp) for gpu in range(arguments.tp)]
    return symmetric_plan(
        num_layers=model.num_layers,
        pp=arguments.pp,
        dp=arguments.dp,
        tp=arguments.tp,
        global_batch=model.global_batch,
        num_micro_batches=model.global_batch // per_step,
        gpu_type=arguments.gpu_type,
        gpus=tuple(groups),
    )


def _options() -> Iterator[tuple[tuple[str, ...], dict[str, object]]]:
    yield (
        ("--model",),
        {"required": True, "help": "A transformer of the catalogue, such as llama2-7b, or a file that describes one."},
    )
    yield ("--gpu-type",), {"required": True, "help": "Name of this device's type in the cluster."}
    for degree in ("--pp", "--dp", "--tp", "--micro-batch"):
        yield (degree,), {"type": int, "default": 1}
    yield ("--global-batch",), {"type": int, "default": 64}
    yield ("--num-layers",), {"type": int, "help": "Fewer layers than the model has."}
    yield ("--precision",), {"choices": ["bf16", "fp32"], "default": "bf16"}
    yield ("--device",), {"choices": [device.value for device in Device], "default": Device.CUDA.value}
    yield ("--repeats",), {"type": int, "default": 20}
    yield ("-o", "--output"), {"type": Path, "required": True}


def main(arguments: Sequence[str]) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -P -m {__package__}.profile", description=__doc__)
    for names, settings in _options():
        parser.add_argument(*names, **settings)  # type: ignore[arg-type]
    given = parser.parse_args(arguments)
    try:
        training = {"global_batch": given.global_batch, "precision": Precision(given.precision), "zero_stage": 1}
        model: JobModel
        if is_file_name(given.model):
            # Whatever trains it elsewhere, here it is this trainer.
            own = {"software": Software.DEEPSPEED, "sequence_parallel": False}
            model = read_model_file(Path(given.model)).transformer(**training, **own)
        else:
            model = find_model(given.model, **training)
        if not isinstance(model, Transformer):
            raise InputError(f"{given.model} is no transformer")
        if given.num_layers is not None:
            model = replace(model, num_layers=given.num_layers, name=None)
        profile = stage_profile(model, _plan(given, model), Device(given.device), given.repeats)
        write_record(profile, given.output)
    except StowplanError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for measured in profile.measurements:
        sys.stdout.write(
            f"stage {measured.stage}: forward {measured.forward_s * 1e3:.2f} ms, backward "
            f"{measured.backward_s * 1e3:.2f} ms, optimiser {measured.optimizer_s * 1e3:.2f} ms\n"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
