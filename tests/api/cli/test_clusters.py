"""Clusters in a few words."""

from pathlib import Path

import pytest

from api.cli.clusters import cluster_of
from stowplan.errors import FileFormatError, InputError
from stowplan.records import to_json
from topology.serialize import cluster_to_json


def test_types_with_names_and_sizes() -> None:
    found = cluster_of("a100=a100-40gb:2x4, v100:1x8")
    assert [kind.name for kind in found.gpu_types] == ["a100", "v100"]
    assert [(node.id, node.gpu_type, node.num_gpus) for node in found.nodes] == [
        ("a100-0", "a100", 4),
        ("a100-1", "a100", 4),
        ("v100-0", "v100", 8),
    ]


def test_a_file(tmp_path: Path) -> None:
    wanted = cluster_of("h100:2")
    path = tmp_path / "cluster.json"
    path.write_text(to_json(cluster_to_json(wanted)))
    assert cluster_of(str(path)) == wanted


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("", "'' is none; write GPU:NODES"),
        ("h100:2x", "'h100:2x' is none"),
        ("h100:0", "'h100:0' must have 1 to 100,000 nodes of 1 to"),
        ("h100:1,h100:1", "h100"),
        ("abacus:1", "abacus"),
    ],
)
def test_what_is_none(text: str, detail: str) -> None:
    with pytest.raises(InputError) as caught:
        cluster_of(text)
    assert detail in f"{caught.value} {caught.value.issues}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError):
        cluster_of(str(tmp_path / "none.json"))
