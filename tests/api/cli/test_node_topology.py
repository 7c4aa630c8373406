"""`stowplan import --node-topology`: figures of a site's own nodes."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from api.cli.exit_codes import ExitCode
from api.cli.main import app
from benchmarks.workloads.slurm_documents import document, node
from tests.topology.node_readers.test_nccl import SAMPLES, gpu, net, system
from tests.topology.node_readers.test_nvidia_smi import matrix


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {
        "hosts.csv": "host,pod\nn1,a\nn2,b\n",
        "nodes.json": document("nodes", [node("n1"), node("n2", "gpu:big:4")]),
        "eight.txt": matrix(8, lambda *_: "NV18", ["NIC0"]),
        "two.xml": system(gpu(0), gpu(1), net("mlx5_0")),
        "own.xml": system(gpu(0, device="0xffff"), gpu(1, device="0xffff"), net("mlx5_0")),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in texts}


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["import", *words])


def first_type(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["gpu_types"][0]


def test_a_file_with_the_nodes_and_one_with_their_inside_are_enough(files: dict[str, str]) -> None:
    result = run("csv", files["hosts.csv"], "--node-topology", files["two.xml"])
    kind = first_type(result)
    assert (kind["name"], kind["inter_node_bandwidth_bytes_per_s"]) == ("h100", 50e9)
    assert [node["num_gpus"] for node in json.loads(result.stdout)["nodes"]] == [2, 2]
    assert result.stderr == ""


def test_what_options_say_counts_more(files: dict[str, str]) -> None:
    words = ("csv", files["hosts.csv"], "--gpu-type", "h100", "--node-topology", files["eight.txt"])
    told = run(*words)
    assert first_type(told)["inter_node_bandwidth_bytes_per_s"] == 400e9
    assert f"{files['eight.txt']}: has 1 adapters, and does not say how fast they are" in told.stderr
    said = run(*words, "--inter-node-bandwidth", "4x200Gbit/s", "--intra-node-bandwidth", "1GB/s")
    kind = first_type(said)
    assert (kind["inter_node_bandwidth_bytes_per_s"], kind["intra_node_bandwidth_bytes_per_s"]) == (100e9, 1e9)
    assert said.stderr == ""


def test_a_gpu_of_no_catalogue_needs_no_bandwidths_beside_it(files: dict[str, str]) -> None:
    words = ("--gpu-type", "own", "--memory", "48GB", "--peak-flops", "90T")
    kind = first_type(run("csv", files["hosts.csv"], *words, "--node-topology", files["own.xml"]))
    assert kind == {
        "name": "own",
        "memory_bytes": 48 * 10**9,
        "peak_flops_per_s": 90e12,
        "intra_node_bandwidth_bytes_per_s": 450e9,
        "inter_node_bandwidth_bytes_per_s": 50e9,
    }


def test_types_of_what_a_scheduler_says(files: dict[str, str]) -> None:
    bridges = str(SAMPLES / "a100-4-direct.txt")
    words = ("--nodes", files["nodes.json"], "--gpu-type", "big=a100", "--node-topology", f"big={bridges}")
    result = run("slurm", *words, "--node-topology", f"h100={files['two.xml']}")
    assert result.exit_code == 0, result.output
    kinds = {kind["name"]: kind for kind in json.loads(result.stdout)["cluster"]["gpu_types"]}
    assert kinds["big"]["intra_node_bandwidth_bytes_per_s"] == 300e9
    assert kinds["h100"]["inter_node_bandwidth_bytes_per_s"] == 50e9
    assert f"{files['two.xml']}: is a node with 2 GPUs; node 'n1' of the type 'h100' has 8" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--node-topology", "eight.txt"), "eight.txt: does not name its GPUs; give --gpu-type"),
        (("--node-topology", "two.xml", "--gpu-type", "b200"), "which is the GPU h100, and not b200"),
        (("--node-topology", "two.xml", "--node-topology", "h100=two.xml"), "both of GPUs of the type 'h100'"),
        (("--node-topology", "a100=eight.txt", "--gpu-type", "h100"), "no node has GPUs of the type 'a100'"),
        (("--node-topology", "hosts.csv", "--gpu-type", "h100"), "hosts.csv: is none of"),
        (("--node-topology", "/nowhere.xml"), "/nowhere.xml: cannot be read"),
    ],
)
def test_what_is_wrong_is_told(files: dict[str, str], words: tuple[str, ...], said: str) -> None:
    given = [kind + mark + files.get(name, name) for kind, mark, name in (word.rpartition("=") for word in words)]
    result = run("csv", files["hosts.csv"], *given)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert said in result.stderr
    assert result.stdout == ""
