from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from stowplan.errors import FileFormatError, InputError
from tests.topology.instances import DEFAULTS, gpu_type, shared_data
from topology.arrays import cluster_arrays
from topology.cluster import NodeState
from topology.readers.csv import read_csv


def _write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "hosts.csv"
    path.write_bytes(text.encode())
    return path


def test_the_first_column_is_the_host_and_the_rest_are_tiers(tmp_path: Path) -> None:
    cluster = read_csv(_write(tmp_path, "host,pod,leaf\nh1,p,a\nh2,p,b\n\nh3,q,a\n"), DEFAULTS)
    assert [(node.id, node.path) for node in cluster.nodes] == [
        ("h1", ("p", "a")),
        ("h2", ("p", "b")),
        ("h3", ("q", "a")),
    ]
    assert [tier.name for tier in cluster.tiers] == ["pod", "leaf"]
    assert cluster.minipod_tier == "pod"
    assert {(node.gpu_type, node.num_gpus, node.state) for node in cluster.nodes} == {("h800", 8, NodeState.UP)}
    assert cluster_arrays(cluster).labels("leaf") == ("p/a", "p/b", "q/a")


def test_columns_may_say_what_a_node_is(tmp_path: Path) -> None:
    defaults = replace(DEFAULTS, other_gpu_types=(gpu_type("l20"),))
    text = "host,state,pod,gpu_type,num_gpus\r\nh1,,p,l20,4\r\nh2,drained,p,,\r\n"
    first, second = read_csv(_write(tmp_path, text), defaults).nodes
    assert (first.gpu_type, first.num_gpus, first.state, first.path) == ("l20", 4, NodeState.UP, ("p",))
    assert (second.gpu_type, second.num_gpus, second.state, second.path) == ("h800", 8, NodeState.DRAINED, ("p",))


def test_the_caller_may_name_columns_and_minipods(tmp_path: Path) -> None:
    path = _write(tmp_path, '\ufeffleaf,pod,name,note\na,p,h1,"x,\ny"\nb,p,h2,\n')
    cluster = read_csv(path, DEFAULTS, id_column="name", tier_columns=["pod", "leaf"], minipod_tier="pod")
    assert [(node.id, node.path) for node in cluster.nodes] == [("h1", ("p", "a")), ("h2", ("p", "b"))]
    assert cluster.minipod_tier == "pod"
    # Left alone, the minipods are the coarsest tier with two units.
    assert read_csv(path, DEFAULTS, id_column="name", tier_columns=["pod", "leaf"]).minipod_tier == "leaf"


def test_without_tiers_there_are_no_minipods(tmp_path: Path) -> None:
    cluster = read_csv(_write(tmp_path, "host\nh1\n"), DEFAULTS)
    assert (cluster.tiers, cluster.minipod_tier) == ((), None)


def test_where_no_tier_has_two_units_the_finest_is_the_minipod(tmp_path: Path) -> None:
    assert read_csv(_write(tmp_path, "host,pod,leaf\nh1,p,a\n"), DEFAULTS).minipod_tier == "leaf"


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("", ":1", "has no header"),
        ("host,pod\n", "", "there are no hosts in the file"),
        ("host,pod,pod\nh1,p,p\n", ":1", "column 3 is called 'pod'"),
        ("host,,leaf\n", ":1", "column 2 is called ''"),
        ("host,pod\nh1,p\nh2\n", ":3", "has 1 cells; the header names 2 columns"),
        ("host,pod\nh1,p\n,p\n", ":3", "column 'host' is empty"),
        ("host,pod\nh1,\n", ":2", "column 'pod' is empty"),
        ("host,pod\nh1,p\nh2,p\nh1,q\n", ":4", "host 'h1' is already listed in line 2"),
        ("host,gpu_type\nh1,k80\n", ":2", "unknown GPU type 'k80'; the types given are ['h800']"),
        ("host,num_gpus\nh1,0\n", ":2", "num_gpus is '0'"),
        ("host,num_gpus\nh1,8.5\n", ":2", "num_gpus is '8.5'"),
        ("host,num_gpus\nh1,99999999999\n", ":2", "num_gpus is '99999999999'"),
        ("host,state\nh1,asleep\n", ":2", "state is 'asleep'; must be one of ['up', 'drained', 'down']"),
        ('host,pod\nh1,"p\n', ":2", "no CSV: unexpected end of data"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, line: str, reason: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(FileFormatError) as caught:
        read_csv(path, DEFAULTS)
    assert caught.value.detail.startswith(f"{path}{line}: {reason}")


@pytest.mark.parametrize(
    ("id_column", "tier_columns", "reason"),
    [
        ("ip", None, "there is no column 'ip'; the columns are ['host', 'pod']"),
        (None, ["rack"], "there is no column 'rack'"),
        (None, ["pod", "pod"], "one column is named twice"),
        (None, ["host"], "one column is named twice"),
    ],
)
def test_columns_that_do_not_exist_are_refused(
    tmp_path: Path, id_column: str | None, tier_columns: list[str] | None, reason: str
) -> None:
    path = _write(tmp_path, "host,pod\nh1,p\n")
    with pytest.raises(FileFormatError) as caught:
        read_csv(path, DEFAULTS, id_column=id_column, tier_columns=tier_columns)
    assert caught.value.detail.startswith(f"{path}:1: {reason}")


def test_an_unknown_minipod_tier_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no tier is called 'rack'; the tiers are \['pod'\]"):
        read_csv(_write(tmp_path, "host,pod\nh1,p\n"), DEFAULTS, minipod_tier="rack")


def test_the_lingjun_fabric() -> None:
    cluster = read_csv(shared_data("lingjun_topo.csv"), DEFAULTS)
    arrays = cluster_arrays(cluster)
    assert arrays.tiers == ("DSW", "PSW", "ASW")
    assert len(arrays.node_ids) == 847
    assert cluster.minipod_tier == "PSW"
    assert dict(zip(arrays.labels("PSW"), arrays.free_nodes().tolist(), strict=True)) == {
        "G6/P8": 179,
        "G6/P10": 362,
        "G6/P12": 306,
    }
    # 48 names of leaf groups stand for 119 groups, mostly of 8 hosts.
    assert len({node.path[-1] for node in cluster.nodes}) == 48
    assert len(arrays.labels("ASW")) == 119
    assert Counter(arrays.free_nodes("ASW").tolist()).most_common(1)[0][0] == 8
    assert arrays.free_nodes("ASW").sum() == 847
    shared = (arrays.units[:, None, :] == arrays.units[None, :, :]).sum(axis=-1)
    assert sorted(set(shared.ravel().tolist())) == [1, 2, 3]


def test_leaf_groups_may_be_the_minipods_of_lingjun() -> None:
    cluster = read_csv(shared_data("lingjun_topo.csv"), DEFAULTS, minipod_tier="ASW")
    assert cluster_arrays(cluster).free_nodes().shape == (119,)
