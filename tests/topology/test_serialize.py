import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from stowplan.errors import FileFormatError, InputError
from tests.topology.instances import clusters, golden_cluster
from topology.cluster import Cluster, NodeState
from topology.serialize import cluster_from_json, cluster_to_json, load_cluster_json


def _document() -> dict[str, Any]:
    """The smallest document, every optional part left out."""
    return {
        "gpu_types": [
            {
                "name": "t4",
                "memory_bytes": 16_000_000_000,
                "peak_flops_per_s": 65_000_000_000_000,
                "intra_node_bandwidth_bytes_per_s": 32e9,
                "inter_node_bandwidth_bytes_per_s": 12.5e9,
            }
        ],
        "nodes": [{"id": "n0", "gpu_type": "t4", "num_gpus": 4}],
    }


@settings(max_examples=25, deadline=None)
@given(clusters())
def test_round_trip(cluster: Cluster) -> None:
    text = json.dumps(cluster_to_json(cluster))
    assert cluster_from_json(json.loads(text), "test") == cluster


def test_optional_parts_have_defaults() -> None:
    cluster = cluster_from_json(_document(), "test")
    node = cluster.nodes[0]
    assert (cluster.tiers, cluster.minipod_tier, cluster.core_bandwidth_fraction) == ((), None, 1.0)
    assert (node.gpus_in_use, node.state, node.path) == ((), NodeState.UP, ())
    assert isinstance(cluster.gpu_types[0].peak_flops_per_s, float)


def test_a_count_of_gpus_in_use_means_the_first_ones() -> None:
    document = _document()
    document["nodes"][0]["gpus_in_use"] = 3
    assert cluster_from_json(document, "test").nodes[0].gpus_in_use == (0, 1, 2)


def _at(document: Any, pointer: str) -> tuple[Any, Any]:
    *parents, last = [int(key) if key.isdigit() else key for key in pointer.split("/")[1:]]
    for key in parents:
        document = document[key]
    return document, last


@pytest.mark.parametrize(
    ("pointer", "value", "code"),
    [
        ("/gpu_types/0/memory_bytes", True, "wrong_type"),
        ("/gpu_types/0/memory_bytes", 1.5, "wrong_type"),
        ("/gpu_types/0/memory_bytes", 2**63, "out_of_range"),
        ("/gpu_types/0/memory_bytes", 0, "not_positive"),
        ("/gpu_types/0/peak_flops_per_s", "fast", "wrong_type"),
        ("/gpu_types/0/peak_flops_per_s", True, "wrong_type"),
        ("/gpu_types/0/peak_flops_per_s", None, "wrong_type"),
        ("/gpu_types/0/peak_flops_per_s", math.nan, "not_finite"),
        ("/gpu_types/0/inter_node_bandwidth_bytes_per_s", math.inf, "not_finite"),
        ("/gpu_types/0/inter_node_bandwidth_bytes_per_s", 10**400, "not_finite"),
        ("/gpu_types/0/speed", 3, "unknown_field"),
        ("/gpu_types", {}, "wrong_type"),
        ("/nodes/0", "n0", "wrong_type"),
        ("/nodes/0/id", 7, "wrong_type"),
        ("/nodes/0/id", "", "wrong_length"),
        ("/nodes/0/gpu_type", "k80", "unknown_gpu_type"),
        ("/nodes/0/num_gpus", 4.0, "wrong_type"),
        ("/nodes/0/num_gpus", -1, "not_positive"),
        ("/nodes/0/num_gpus", 10**12, "out_of_range"),
        ("/nodes/0/gpus_in_use", "all", "wrong_type"),
        ("/nodes/0/gpus_in_use", False, "wrong_type"),
        ("/nodes/0/gpus_in_use", 10**12, "out_of_range"),
        ("/nodes/0/gpus_in_use", -1, "out_of_range"),
        ("/nodes/0/gpus_in_use", 5, "unknown_gpu"),
        ("/nodes/0/gpus_in_use", [4], "unknown_gpu"),
        ("/nodes/0/state", "asleep", "unknown_value"),
        ("/nodes/0/state", None, "wrong_type"),
        ("/nodes/0/path", "pod", "wrong_type"),
        ("/nodes/0/path", ["pod"], "path_depth"),
        ("/minipod_tier", 1, "wrong_type"),
        ("/minipod_tier", "pod", "unknown_tier"),
        ("/core_bandwidth_fraction", math.nan, "not_finite"),
        ("/core_bandwidth_fraction", 2, "out_of_range"),
        ("/nodes", [], "empty_cluster"),
    ],
)
def test_one_wrong_value_gives_one_issue_at_its_place(pointer: str, value: object, code: str) -> None:
    document = _document()
    parent, key = _at(document, pointer)
    parent[key] = value
    with pytest.raises(InputError, match=r"^here\.json: the cluster has 1 error\n") as caught:
        cluster_from_json(document, "here.json")
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [(code, pointer)]


@pytest.mark.parametrize("pointer", ["/nodes", "/gpu_types", "/nodes/0/id", "/nodes/0/num_gpus", "/gpu_types/0/name"])
def test_a_missing_field_is_named(pointer: str) -> None:
    document = _document()
    parent, key = _at(document, pointer)
    del parent[key]
    with pytest.raises(InputError) as caught:
        cluster_from_json(document, "test")
    assert ("missing_field", pointer) in {(issue.code, issue.pointer) for issue in caught.value.issues}


def test_all_faults_are_listed_and_pointers_are_escaped() -> None:
    document = _document()
    document["tiers"] = [{"name": "pod", "a/b~c": 1}, {"name": 2, "bandwidth_fraction": []}]
    with pytest.raises(InputError) as caught:
        cluster_from_json(document, "test")
    assert [issue.pointer for issue in caught.value.issues] == [
        "/tiers/0/a~1b~0c",
        "/tiers/1/name",
        "/tiers/1/bandwidth_fraction",
    ]


@pytest.mark.parametrize("document", [None, [], 3, "cluster"])
def test_a_document_that_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(InputError) as caught:
        cluster_from_json(document, "test")
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [("wrong_type", "")]


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster_to_json(golden_cluster())))
    assert load_cluster_json(path) == golden_cluster()


@pytest.mark.parametrize(
    ("text", "line"),
    [('{"nodes": [],\n "tiers": [}\n', ":2"), ("", ":1"), ("[" * 100_000, ""), ("9" * 5_000, "")],
)
def test_a_file_that_is_no_json_is_refused_with_its_line(tmp_path: Path, text: str, line: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(text)
    with pytest.raises(FileFormatError) as caught:
        load_cluster_json(path)
    assert caught.value.detail.startswith(f"{path}{line}: no ")


def test_nan_in_a_file_gives_an_issue(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(_document()).replace("32000000000.0", "NaN"))
    with pytest.raises(InputError) as caught:
        load_cluster_json(path)
    assert [issue.pointer for issue in caught.value.issues] == ["/gpu_types/0/intra_node_bandwidth_bytes_per_s"]


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot be read"):
        load_cluster_json(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'"\xe4"')
    with pytest.raises(FileFormatError, match="is not UTF-8"):
        load_cluster_json(tmp_path / "latin.json")
