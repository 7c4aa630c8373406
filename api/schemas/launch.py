"""What a launcher needs of a 3D-parallel plan."""

from api.schemas.base import Document


class RankDoc(Document):
    """One process: where it runs, and its coordinates."""

    rank: int
    node: str
    gpu: int
    """Index on the node."""
    local_rank: int
    """Counts the GPUs that the job uses on the node, in the order of their index."""
    pp: int
    """Pipeline stage."""
    dp: int
    """Which sequences: replica of the stage, or group of those that share theirs."""
    tp: int
    """Shard of the replica."""
    cp: int
    """Which part of its sequences."""
    ep: int
    """Which part of the experts."""


class LaunchDoc(Document):
    """Ranks with pipe slowest, then data, context and tensor: the order of Megatron's and DeepSpeed's topology."""

    notation: str
    """The plan in short."""
    symmetric: bool
    """Equal degrees in all stages and equal batches in all replicas: what most engines can run."""
    world_size: int
    stage_bounds: tuple[int, ...]
    """First layer of each stage, then the number of layers."""
    stage_checkpointing: tuple[str, ...]
    """Of each stage `none`, `selective`, `full`, or `full 5`: its first 5 layers, of every part as many (Megatron's
    `--recompute-method block`); empty: as the job says."""
    ranks: tuple[RankDoc, ...]
    hostfile: str
    """A line `node slots=n` per node, in the order of its first rank."""
