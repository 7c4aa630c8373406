"""What all readers share: what a format does not say, which tier is the minipod."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from topology.cluster import Cluster, GpuType, Node, Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDefaults:
    """What a node is where its file does not say.

    `gpu_type` and `num_gpus` hold for nodes about which the file is silent. `other_gpu_types` are further types
    that a file may name.
    """

    gpu_type: GpuType
    num_gpus: int
    other_gpu_types: tuple[GpuType, ...] = ()

    @property
    def gpu_types(self) -> tuple[GpuType, ...]:
        """All GPU types that nodes may have."""
        return (self.gpu_type, *self.other_gpu_types)


def nodes_from_paths(paths: Mapping[str, tuple[str, ...]], defaults: NodeDefaults) -> list[Node]:
    """Make a node of the default kind for each path."""
    return [
        Node(id=name, gpu_type=defaults.gpu_type.name, num_gpus=defaults.num_gpus, path=path)
        for name, path in paths.items()
    ]


def build_cluster(
    nodes: Sequence[Node], tiers: Sequence[str], defaults: NodeDefaults, minipod_tier: str | None
) -> Cluster:
    """Make the cluster that a file describes; None for `minipod_tier` means `default_minipod_tier`.

    The bandwidth fractions are 1: none of the formats states them.
    """
    return Cluster(
        gpu_types=defaults.gpu_types,
        nodes=tuple(nodes),
        tiers=tuple(Tier(name=name) for name in tiers),
        minipod_tier=default_minipod_tier(nodes, tiers) if minipod_tier is None else minipod_tier,
    )


def default_minipod_tier(nodes: Sequence[Node], tiers: Sequence[str]) -> str | None:
    """Choose the minipod tier where the caller does not: the coarsest tier that has more than one unit.

    Its units are the largest groups of nodes that need not talk across the top of the fabric, which is what Arnold
    section 2 calls a minipod (the nodes below one group of spine switches). The finest tier where no tier has two
    units, None where there are no tiers.
    """
    split = (tier for k, tier in enumerate(tiers) if len({node.path[: k + 1] for node in nodes}) > 1)
    return next(split, tiers[-1] if tiers else None)
