import math
from dataclasses import replace
from typing import Any

import pytest

from stowplan.errors import InputError
from tests.topology.instances import golden_cluster, gpu_type
from topology.cluster import Cluster, Node, Tier


def _with_node(position: int, **changes: Any) -> Cluster:
    cluster = golden_cluster()
    nodes = list(cluster.nodes)
    nodes[position] = replace(nodes[position], **changes)
    return replace(cluster, nodes=tuple(nodes))


@pytest.mark.parametrize(
    ("changes", "code", "pointer"),
    [
        ({"gpu_type": "k80"}, "unknown_gpu_type", "/nodes/2/gpu_type"),
        ({"num_gpus": 0}, "not_positive", "/nodes/2/num_gpus"),
        ({"num_gpus": -4}, "not_positive", "/nodes/2/num_gpus"),
        ({"path": ("p",)}, "path_depth", "/nodes/2/path"),
        ({"gpus_in_use": (4,)}, "unknown_gpu", "/nodes/2/gpus_in_use"),
        ({"gpus_in_use": (-1,)}, "unknown_gpu", "/nodes/2/gpus_in_use"),
        ({"gpus_in_use": (1, 1)}, "gpu_taken_twice", "/nodes/2/gpus_in_use"),
    ],
)
def test_a_wrong_node_is_refused(changes: dict[str, Any], code: str, pointer: str) -> None:
    with pytest.raises(InputError) as caught:
        _with_node(2, **changes)
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [(code, pointer)]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"nodes": ()}, [("empty_cluster", "/nodes")]),
        ({"minipod_tier": "rack"}, [("unknown_tier", "/minipod_tier")]),
        ({"core_bandwidth_fraction": 0.0}, [("out_of_range", "/core_bandwidth_fraction")]),
        ({"core_bandwidth_fraction": math.nan}, [("out_of_range", "/core_bandwidth_fraction")]),
        (
            {"tiers": (Tier(name="pod", bandwidth_fraction=1.5), Tier(name="leaf"))},
            [("out_of_range", "/tiers/0/bandwidth_fraction")],
        ),
        (
            {"tiers": (Tier(name="pod"), Tier(name="pod"))},
            [("duplicate_id", "/tiers/0"), ("duplicate_id", "/tiers/1")],
        ),
        (
            {"gpu_types": (gpu_type("h800", inter=math.inf), gpu_type("l20", intra=0.0))},
            [
                ("not_positive", "/gpu_types/0/inter_node_bandwidth_bytes_per_s"),
                ("not_positive", "/gpu_types/1/intra_node_bandwidth_bytes_per_s"),
            ],
        ),
    ],
)
def test_a_wrong_cluster_is_refused(changes: dict[str, Any], found: list[tuple[str, str]]) -> None:
    with pytest.raises(InputError) as caught:
        replace(golden_cluster(), **changes)
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == found


def test_two_nodes_of_one_id_are_refused() -> None:
    with pytest.raises(InputError, match="'n1' occurs 2 times in nodes"):
        _with_node(2, id="n1")


def test_a_cluster_without_tiers_is_legal() -> None:
    cluster = Cluster(gpu_types=(gpu_type(),), nodes=(Node(id="n", gpu_type="h800", num_gpus=1),))
    assert cluster.tiers == ()
