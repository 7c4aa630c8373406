"""Weights from and to checkpoints of Hugging Face: every rank reads the parts that it holds, and one of each stage
writes what its tensor ranks hold together.
"""

import json
import shutil
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from executor.checkpoints import PARTIAL
from executor.records import write_text
from executor.trainer.context import Weights
from executor.training_job import TrainingJob
from executor.weights.families import Family, JoinedExperts, Stored, family_of
from stowplan.errors import InputError

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
# Of the checkpoint that a training began with: what its tokenizer needs, and what config.json says beside the model.
_BESIDE = (
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
)
_KEPT = ("bos_token_id", "eos_token_id", "pad_token_id")


class StoredWeights:
    """Parameters in a folder of Hugging Face (`model.safetensors`, or several files with an index)."""

    def __init__(self, folder: Path, job: TrainingJob) -> None:
        self._folder = folder
        self._family = _family(job)
        self._stored = self._family.parameters(job.model)
        self._joined = self._family.joined_experts(job.model)
        self._files = _files_of(folder)
        self._open: dict[Path, Any] = {}

    def read(self, name: str, shape: tuple[int, ...], axis: int, start: int, count: int) -> torch.Tensor:
        """As `executor.trainer.context.Weights`.

        Raises
        ------
        InputError
            When the folder has no such tensor, or one of another shape.
        """
        stored = self._stored[name]
        if (joined := self._joined.get(name)) is not None and self._has(joined.tensor):
            return self._of_all_experts(joined, shape, axis, start, count)
        tensor = self._tensor(stored.tensor)
        outputs, *inputs = shape
        wanted = [outputs * stored.num_parts, *inputs]
        found = tensor.get_shape()
        whole = found[::-1] if stored.transposed else found
        # Of learned positions a training may use the first ones alone.
        longer = name == "positions" and len(whole) == len(wanted) and whole[0] > wanted[0] and whole[1:] == wanted[1:]
        if whole != wanted and not longer:
            right = wanted[::-1] if stored.transposed else wanted
            raise InputError(f"{self._folder}: {stored.tensor} has the shape {found}; the model of the job has {right}")
        ranges = [slice(0, size) for size in shape]
        ranges[axis] = slice(start, start + count)
        first = stored.part * outputs
        ranges[0] = slice(first + ranges[0].start, first + ranges[0].stop)
        part = tensor[tuple(ranges[::-1] if stored.transposed else ranges)]
        return (part.T if stored.transposed else part).contiguous().float()

    def _of_all_experts(
        self, joined: JoinedExperts, shape: tuple[int, ...], axis: int, start: int, count: int
    ) -> torch.Tensor:
        """A part of the matrix of one expert, which stands in a tensor of all."""
        tensor = self._tensor(joined.tensor)
        outputs, inputs = shape[::-1] if joined.transposed else shape
        found, right = tensor.get_shape(), [joined.num_experts, outputs * joined.num_parts, inputs]
        if found != right:
            raise InputError(f"{self._folder}: {joined.tensor} has the shape {found}; the model of the job has {right}")
        ranges = [slice(0, outputs), slice(0, inputs)]
        ranges[1 - axis if joined.transposed else axis] = slice(start, start + count)
        first = joined.part * outputs
        ranges[0] = slice(first + ranges[0].start, first + ranges[0].stop)
        part = tensor[(slice(joined.expert, joined.expert + 1), *ranges)][0]
        return (part.T if joined.transposed else part).contiguous().float()

    def _has(self, name: str) -> bool:
        return any(candidate in self._files for candidate in self._family.names(name))

    def _tensor(self, name: str) -> Any:
        """A tensor by name, also without the prefix that checkpoints without a head leave out."""
        for candidate in self._family.names(name):
            if path := self._files.get(candidate):
                if path not in self._open:
                    self._open[path] = _opened(path)
                return self._open[path].get_slice(candidate)
        raise InputError(f"{self._folder} has no tensor {name}, which a {self._family.model_type} of this shape has")


def open_weights(job: TrainingJob) -> Weights | None:
    """What the parameters of a job start with, None: they are drawn; InputError when they cannot be opened."""
    return None if job.initial_weights is None else StoredWeights(Path(job.initial_weights), job)


def save_weights(parameters: Iterable[nn.Parameter], tensor_group: Any, job: TrainingJob) -> str | None:
    """Write the weights for transformers into `final_weights`, at once or not at all; give what went wrong, or None.

    Collective. The first replica writes, and those beside it that have other experts write these, a file per stage and
    replica; tensor ranks come together parameter by parameter. Of `parameters` each is whole until the next one is
    asked for, which all replicas do.
    """
    folder = Path(job.final_weights or "")
    partial = folder.with_name(folder.name + PARTIAL)
    place = job.coordinates(dist.get_rank())
    if dist.get_rank() == 0:
        shutil.rmtree(partial, ignore_errors=True)
    dist.barrier()
    tensors: dict[str, torch.Tensor] = {}
    failure = None
    if place.data >= job.expert_parallel:
        deque(parameters, maxlen=0)
    else:
        wanted = (each for each in parameters if place.data == 0 or hasattr(each, "first_expert"))
        whole = dict(_whole_parameters(wanted, tensor_group, job.stages[place.pipe].tp, holds=place.tensor == 0))
        if place.pipe and job.model.tied_embeddings:
            # The first stage has it, too.
            whole.pop("embedding", None)
        tensors = _as_stored(whole, _family(job).parameters(job.model))
    count, number = job.pp * job.expert_parallel, place.pipe * job.expert_parallel + place.data + 1
    name = f"model-{number:05d}-of-{count:05d}.safetensors" if count > 1 else _SINGLE
    if tensors:
        failure = _attempt(partial, lambda: _save(tensors, partial / name))
    said: list[Any] = [None] * dist.get_world_size()
    sizes = {key: tensor.numel() * tensor.element_size() for key, tensor in tensors.items()}
    dist.all_gather_object(said, (failure, name, sizes))
    failure = next((each for each, _, _ in said if each is not None), None)
    if dist.get_rank() == 0 and failure is None:
        failure = _attempt(folder, lambda: _complete(job, partial, folder, [(file, held) for _, file, held in said]))
    final: list[Any] = [failure]
    dist.broadcast_object_list(final)
    return final[0]


def _family(job: TrainingJob) -> Family:
    family = family_of(job.model, job.numerics)
    if family is None:
        raise AssertionError("a job whose weights no type of transformers has was not refused")
    return family


def _files_of(folder: Path) -> dict[str, Path]:
    """Tensor -> file."""
    try:
        if (folder / _INDEX).is_file():
            names = json.loads((folder / _INDEX).read_text(encoding="utf-8"))["weight_map"]
            # Of a file the name alone: no index leads out of its folder.
            return {name: folder / Path(file).name for name, file in names.items()}
        if (folder / _SINGLE).is_file():
            return dict.fromkeys(_opened(folder / _SINGLE).keys(), folder / _SINGLE)
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{folder / _INDEX} cannot be read as an index of weights: {error}") from error
    raise InputError(
        f"{folder} has neither {_SINGLE} nor {_INDEX}; save_pretrained of transformers makes such of older checkpoints"
    )


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be read as safetensors: {error}") from error


def _whole_parameters(
    parameters: Iterable[nn.Parameter], group: Any, degree: int, *, holds: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """Every parameter of a stage by name, on the CPU, on the tensor rank that `holds`; nothing on the others."""
    for parameter in parameters:
        held, axis = parameter.detach(), getattr(parameter, "tensor_axis", None)
        if degree > 1 and axis is not None:
            parts = [torch.empty_like(held) for _ in range(degree)]
            dist.all_gather(parts, held.contiguous(), group=group)
            held = torch.cat(parts, dim=axis)
        if holds:
            # A copy: of the parameter the storage may be given up.
            whole = held[: getattr(parameter, "vocabulary_size", None)].to("cpu", copy=True)
            first = getattr(parameter, "first_expert", None)
            if first is None:
                yield parameter.stored_name, whole
            else:
                yield from ((f"{parameter.stored_name}.{first + k}", matrix) for k, matrix in enumerate(whole))


def _as_stored(whole: Mapping[str, torch.Tensor], stored: Mapping[str, Stored]) -> dict[str, torch.Tensor]:
    """Tensors as transformers has them."""
    parts: dict[str, dict[int, torch.Tensor]] = {}
    transposed = set()
    for name, parameter in whole.items():
        place = stored[name]
        parts.setdefault(place.tensor, {})[place.part] = parameter
        transposed |= {place.tensor} if place.transposed else set()
    joined = {name: torch.cat([found[part] for part in sorted(found)]) for name, found in parts.items()}
    return {name: (tensor.T if name in transposed else tensor).contiguous() for name, tensor in joined.items()}


def _save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata={"format": "pt"})


def _complete(job: TrainingJob, partial: Path, folder: Path, held: list[tuple[str, Mapping[str, int]]]) -> None:
    """Write what stands beside the weights, and put the folder in place."""
    given = Path(job.initial_weights) if job.initial_weights is not None else None
    kept: dict[str, Any] = {}
    if given is not None and (given / "config.json").is_file():
        theirs = json.loads((given / "config.json").read_text(encoding="utf-8"))
        kept = {key: theirs[key] for key in _KEPT if key in theirs}
        for file in (found for pattern in _BESIDE for found in given.glob(pattern)):
            shutil.copy(file, partial)
    config = _family(job).config(job.model, job.numerics) | kept
    write_text(partial / "config.json", json.dumps(config, indent=2) + "\n")
    if job.pp * job.expert_parallel > 1:
        index = {
            "metadata": {"total_size": sum(size for _, sizes in held for size in sizes.values())},
            "weight_map": {tensor: file for file, sizes in held for tensor in sizes},
        }
        write_text(partial / _INDEX, json.dumps(index, indent=2) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def _attempt(path: Path, action: Any) -> str | None:
    try:
        action()
    except (OSError, ValueError, SafetensorError) as error:
        return f"{path}: {error}"
    return None
