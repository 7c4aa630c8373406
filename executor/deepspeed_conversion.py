"""DeepSpeed's universal format from a ZeRO-1 checkpoint, written by all ranks of a run, each a share of the parameters.

DeepSpeed's own converter is a program: it loads the libraries anew, writes every shard a second time as files by
parameter, and reads them again. Here its rules join what is read from the shards in place. Other constants and function
names than those of the pinned version (`deepspeed_workarounds.PINNED`) end in an error, not in a wrong checkpoint.
"""

import math
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from deepspeed.checkpoint import DeepSpeedCheckpoint, ds_to_universal
from deepspeed.checkpoint import constants as keys

from stowplan.errors import InputError

# Beyond this, `mp_rank_100` sorts before `mp_rank_11`.
MOST_CONVERTIBLE_RANKS = 100
# Parameter -> tensor rank -> state -> its parts in the order of the replicas that hold them.
Fragments = Mapping[str, Mapping[int, Mapping[str, Sequence[Any]]]]


def refuse_many_ranks(source: Path, num_model_ranks: int) -> None:
    """Raise InputError where there are more model-parallel ranks than DeepSpeed can sort by the names of files."""
    if num_model_ranks > MOST_CONVERTIBLE_RANKS:
        raise InputError(
            f"{source} is of {num_model_ranks} model-parallel ranks (PP x TP); "
            f"DeepSpeed's converter can read at most {MOST_CONVERTIBLE_RANKS}"
        )


def convert_share(source: Path, target: Path, share: int, num_shares: int) -> None:
    """Write one of `num_shares` shares of the universal checkpoint; share 0 also what the parameters have in common.

    Every byte that a share needs is read once.
    """
    checkpoint = DeepSpeedCheckpoint(str(source))
    info = checkpoint.get_checkpoint_info(keys.UNIVERSAL_CHECKPOINT_INFO)
    by_file = [metadata[keys.PARAM_SHAPES] for _, metadata in checkpoint.model_state_metadata]
    shapes = ds_to_universal._group_per_tp_shapes(by_file, checkpoint.pp_degree, checkpoint.tp_degree)
    # The largest first, so that shares are alike.
    names = sorted(shapes, key=lambda name: (-max(math.prod(shape) for shape in shapes[name]), name))[share::num_shares]
    target.mkdir(parents=True, exist_ok=True)
    with _merging(_fragments(checkpoint, info, frozenset(names))):
        for name in names:
            ds_to_universal.merge_tp_slices(info, str(target / "zero"), "", checkpoint.tp_degree, (name, shapes[name]))
    if share == 0:
        _write_common(checkpoint, target)


def _fragments(checkpoint: DeepSpeedCheckpoint, info: Mapping[str, Any], names: frozenset[str]) -> Fragments:
    """Parts of some parameters in all shards; nothing of them is read yet."""
    tied = info[keys.PIPELINE_REPLICATED_PARAMETER_PATTERNS]
    found: dict[str, dict[int, dict[str, list[Any]]]] = {}
    for pipe in range(checkpoint.pp_degree):
        for tensor in range(checkpoint.tp_degree):
            for data in range(checkpoint.dp_degree):
                state = _shard(checkpoint, pipe, tensor, data)
                moments = state[keys.BASE_OPTIMIZER_STATE]["state"]
                masters, slices = state[keys.SINGLE_PARTITION_OF_FP32_GROUPS], state[keys.PARAM_SLICE_MAPPINGS]
                for group, of_group in moments.items():
                    whole = {name: of_group[name] for name in ("exp_avg", "exp_avg_sq", "step") if name in of_group}
                    for name, part in slices[group].items():
                        # What several stages share is taken from the first.
                        if name not in names or (pipe > 0 and any(re.match(pattern, name) for pattern in tied)):
                            continue
                        of_rank = found.setdefault(name, {}).setdefault(tensor, {})
                        for kind, value in {**whole, "fp32": masters[group]}.items():
                            held = value if kind == "step" else value.narrow(0, part.start, part.numel)
                            of_rank.setdefault(kind, []).append(held)
    return found


def _shard(checkpoint: DeepSpeedCheckpoint, pipe: int, tensor: int, data: int) -> Any:
    """Optimiser state of one rank, mapped and not read."""
    (path,) = checkpoint.get_zero_files(pipe, tensor, data)
    return torch.load(path, map_location="cpu", mmap=True, weights_only=False)[keys.OPTIMIZER_STATE_DICT]


@contextmanager
def _merging(fragments: Fragments) -> Iterator[None]:
    """Let DeepSpeed's rules join these fragments in place of files."""

    def joined(name: str, kind: str, tp: int, shapes: Sequence[torch.Size]) -> list[Any]:
        parts = [fragments[name][tensor][kind] for tensor in range(tp)]
        if kind == "step":
            return [held[0] for held in parts]
        return [torch.cat(list(held)).reshape(shape) for held, shape in zip(parts, shapes, strict=True)]

    own, ds_to_universal._merge_zero_shards = ds_to_universal._merge_zero_shards, joined
    try:
        yield
    finally:
        ds_to_universal._merge_zero_shards = own


def _write_common(checkpoint: DeepSpeedCheckpoint, target: Path) -> None:
    """The state of the optimiser that is of no parameter, and the models' states without weights."""
    state = _shard(checkpoint, 0, 0, 0)
    sharded = (keys.BASE_OPTIMIZER_STATE, keys.PARAM_SLICE_MAPPINGS, keys.SINGLE_PARTITION_OF_FP32_GROUPS)
    common = {name: value for name, value in state.items() if name not in sharded}
    common[keys.PARAM_GROUPS] = state[keys.BASE_OPTIMIZER_STATE][keys.PARAM_GROUPS]
    (target / "zero").mkdir(exist_ok=True)
    torch.save(common, target / "zero" / "optimizer_state.pt")
    for path in checkpoint.mp_rank_files:
        shutil.copy2(path, target)
