"""Small clusters and strategies that the tests of this folder share."""

from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.paths import SHARED
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier
from topology.readers import NodeDefaults

DATA = SHARED / "data" / "topology"


def gpu_type(name: str = "h800", *, intra: float = 400e9, inter: float = 50e9) -> GpuType:
    return GpuType(
        name=name,
        memory_bytes=80 * 2**30,
        peak_flops_per_s=989e12,
        intra_node_bandwidth_bytes_per_s=intra,
        inter_node_bandwidth_bytes_per_s=inter,
    )


DEFAULTS = NodeDefaults(gpu_type=gpu_type(), num_gpus=8)


def shared_data(name: str) -> Path:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the published file topology/{name} is not beside the checkout")
    return path


def golden_cluster() -> Cluster:
    """Two pods; the leaf name `a` occurs under both.

    core (1/4) --- p (1/2) --- a (1): n0 h800 free,    n1 h800 with GPUs 0, 1 in use
                           --- b (1): n2 l20 free
               --- q (1/2) --- a (1): n3 h800 drained, n4 h800 down, n5 l20 free
    """
    return Cluster(
        gpu_types=(gpu_type("h800", intra=400.0, inter=80.0), gpu_type("l20", intra=64.0, inter=40.0)),
        tiers=(Tier(name="pod", bandwidth_fraction=0.5), Tier(name="leaf")),
        minipod_tier="pod",
        core_bandwidth_fraction=0.25,
        nodes=(
            Node(id="n0", gpu_type="h800", num_gpus=8, path=("p", "a")),
            Node(id="n1", gpu_type="h800", num_gpus=8, path=("p", "a"), gpus_in_use=(0, 1)),
            Node(id="n2", gpu_type="l20", num_gpus=4, path=("p", "b")),
            Node(id="n3", gpu_type="h800", num_gpus=8, path=("q", "a"), state=NodeState.DRAINED),
            Node(id="n4", gpu_type="h800", num_gpus=8, path=("q", "a"), state=NodeState.DOWN, gpus_in_use=(7,)),
            Node(id="n5", gpu_type="l20", num_gpus=4, path=("q", "a")),
        ),
    )


names = st.text(min_size=1, max_size=6)
fractions = st.floats(min_value=0.01, max_value=1.0)
amounts = st.floats(min_value=1e-3, max_value=1e18)


@st.composite
def gpu_types(draw: st.DrawFn, name: str) -> GpuType:
    return GpuType(
        name=name,
        memory_bytes=draw(st.integers(min_value=1, max_value=2**50)),
        peak_flops_per_s=draw(amounts),
        intra_node_bandwidth_bytes_per_s=draw(amounts),
        inter_node_bandwidth_bytes_per_s=draw(amounts),
    )


@st.composite
def clusters(draw: st.DrawFn, *, max_types: int = 3) -> Cluster:
    """Legal clusters of up to 8 nodes and 3 tiers; few unit names, so that they repeat under different parents."""
    type_names = draw(st.lists(names, min_size=1, max_size=max_types, unique=True))
    tier_names = draw(st.lists(names, max_size=3, unique=True))
    nodes = []
    for node_id in draw(st.lists(names, min_size=1, max_size=8, unique=True)):
        num_gpus = draw(st.integers(min_value=1, max_value=8))
        in_use = draw(st.lists(st.integers(min_value=0, max_value=num_gpus - 1), unique=True))
        nodes.append(
            Node(
                id=node_id,
                gpu_type=draw(st.sampled_from(type_names)),
                num_gpus=num_gpus,
                gpus_in_use=tuple(in_use),
                state=draw(st.sampled_from(NodeState)),
                path=tuple(draw(st.sampled_from("ab")) for _ in tier_names),
            )
        )
    return Cluster(
        gpu_types=tuple(draw(gpu_types(name)) for name in type_names),
        tiers=tuple(Tier(name=name, bandwidth_fraction=draw(fractions)) for name in tier_names),
        minipod_tier=draw(st.sampled_from([None, *tier_names])),
        core_bandwidth_fraction=draw(fractions),
        nodes=tuple(nodes),
    )
