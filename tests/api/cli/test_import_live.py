"""`stowplan import kubernetes --live`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli.exit_codes import ExitCode
from api.cli.main import app
from tests.models.cluster_state.kubernetes_documents import listed, node, pod
from tests.models.cluster_state.kubernetes_server import RecordedApi, serving


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    api = RecordedApi(
        lists={
            "/api/v1/nodes": [node("a", {}), node("b", {})],
            "/api/v1/pods": [pod("w-0", "w"), pod("r-0", "r", node="a")],
        }
    )
    with serving(api, tmp_path) as path:
        yield str(path)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["import", *words])


def test_a_cluster_becomes_a_snapshot(config: str) -> None:
    result = run("kubernetes", "--live", "--kubeconfig", config, "--context", "test")
    assert result.exit_code == 0, result.output
    snapshot = json.loads(result.stdout)
    assert [one["id"] for one in snapshot["cluster"]["nodes"]] == ["a", "b"]
    assert {job["id"] for job in snapshot["jobs"]} == {"team/w", "team/r"}
    assert "2 nodes with 16 GPUs; 1 jobs run, 1 may start" in result.stderr


def test_documents_stand_in_place_of_what_would_be_asked(config: str, tmp_path: Path) -> None:
    (tmp_path / "pods.json").write_text(listed())
    result = run("kubernetes", "--live", "--kubeconfig", config, "--pods", str(tmp_path / "pods.json"))
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["jobs"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("kubernetes", "--live", "--kubeconfig", "/nowhere"), "no way to a Kubernetes cluster in /nowhere"),
        (("kubernetes", "--context", "test"), "--kubeconfig and --context go with --live"),
        (("slurm", "--live"), "slurm is read from its documents alone; asked can be kubernetes"),
        (("csv", "hosts.csv", "--live", "--gpu-type", "h100"), "FILE has the nodes of a cluster, without jobs"),
    ],
)
def test_what_is_wrong_is_told(words: tuple[str, ...], said: str) -> None:
    result = run(*words)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert said in result.stderr
