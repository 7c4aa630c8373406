"""`stowplan import` of what a scheduler says."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli.exit_codes import ExitCode
from api.cli.main import app
from benchmarks.workloads.slurm_documents import document, job, node, running
from models.cluster_state import READERS


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {
        "nodes": document("nodes", [node("n1"), node("n2", "gpu:big:4"), node("login", "")]),
        "queue": document("jobs", [running(1, "n1", ["gpu:h100:2(IDX:0-1)"]), job(2), job(3, dependency="after:1")]),
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.json").write_text(text)
    return {name: str(tmp_path / f"{name}.json") for name in texts}


def run(files: dict[str, str], *words: str, product: str = "big=h200") -> Result:
    documents = [word for name, path in files.items() for word in (f"--{name}", path)]
    return CliRunner().invoke(app, ["import", "slurm", *documents, "--gpu-type", product, *words])


def test_documents_become_a_snapshot(files: dict[str, str], tmp_path: Path) -> None:
    written = tmp_path / "out" / "snapshot.json"
    result = run(files, "--output", str(written))
    assert result.exit_code == 0, result.output
    snapshot = json.loads(written.read_text())
    assert [node["id"] for node in snapshot["cluster"]["nodes"]] == ["n1", "n2"]
    assert [(job["id"], job["min_gpus"]) for job in snapshot["jobs"]] == [("1", 2), ("2", 8)]
    assert snapshot["taken_at"] == "2027-01-15T08:00:00Z"
    assert "2 nodes with 12 GPUs; 1 jobs run, 1 may start, 1 are held" in result.stderr
    assert f"{files['nodes']}: /nodes/2: node 'login' has no GPUs; it is left out" in result.stderr


def test_what_is_said_of_gpus_and_time(files: dict[str, str]) -> None:
    result = run(files, "--gpu-type", "h100", "--memory", "94GB", "--taken-at", "2027-01-15T09:00:00+00:00")
    assert result.exit_code == 0, result.output
    snapshot = json.loads(result.stdout)
    assert {kind["name"]: kind["memory_bytes"] for kind in snapshot["cluster"]["gpu_types"]} == {
        "h100": 94 * 10**9,
        "big": 141 * 10**9,
    }
    assert snapshot["jobs"][0]["running_s"] == 2 * 3600.0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--job", "2"), "--job is '2': what stands behind = is not JSON"),
        (("--job", "2=[]"), "--job is '2=[]'; must be ID={...} with fields of the job"),
        (("--job", "3={}"), "job '3' is held (dependency after:1)"),
        (("--taken-at", "noon"), "--taken-at is 'noon'; must be a moment such as"),
        (("--taken-at", "2027-01-15T09:00:00"), "without a time zone"),
        (("--partition", "old"), "no node is in a partition 'old'"),
        (("--memory", "94GB"), "facts of a GPU are given, and --gpu-type does not say of which"),
        (("--topology", "/nowhere.conf"), "/nowhere.conf: cannot be read"),
        (("--nodes", "/nowhere.json"), "/nowhere.json: cannot be read"),
    ],
)
def test_what_is_wrong_is_told(files: dict[str, str], words: tuple[str, ...], said: str) -> None:
    result = run(files, *words)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert said in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("slurm",), "slurm needs nodes: what `scontrol show nodes --json` writes"),
        (("csv",), "FILE is missing; without one the formats are slurm"),
        (("slurm", "x.conf", "--queue", "q.json"), "leave it out, and give --topology and the like"),
        (("slurm", "x.conf"), "--gpu-type is missing"),
        (("slurm", "x.conf", "--gpu-type", "own"), "--gpus-per-node is missing; only of GPUs of the catalogue"),
    ],
)
def test_a_file_or_documents(words: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(app, ["import", *words])
    assert result.exit_code == ExitCode.BAD_INPUT
    assert said in result.stderr


def test_a_gpu_of_the_catalogue_says_everything_else(tmp_path: Path) -> None:
    path = tmp_path / "topology.conf"
    path.write_text("SwitchName=s Nodes=n[1-2]\n")
    result = CliRunner().invoke(app, ["import", "slurm", str(path), "--gpu-type", "h100"])
    assert result.exit_code == 0, result.output
    assert [node["num_gpus"] for node in json.loads(result.stdout)["nodes"]] == [8, 8]


def test_every_document_and_setting_is_an_option() -> None:
    said = CliRunner().invoke(app, ["import", "--help"]).stdout
    names = [name for reader in READERS.values() for name in (*reader.roles, *reader.settings)]
    assert all(f"--{name} " in said for name in names)
