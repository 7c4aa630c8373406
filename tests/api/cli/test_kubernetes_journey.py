"""The journey of a Kubernetes engineer: the commands of `docs/kubernetes.md` on documents as kubectl writes them."""

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from api.cli.main import app
from tests.executor.kubernetes.test_handover import queued
from tests.models.cluster_state.kubernetes_documents import listed, node, pod
from tests.paths import ROOT

_TUTORIAL = (ROOT / "docs" / "kubernetes.md").read_text()
_BLOCK, _SUBBLOCK = "cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```sh\n(.*?)^```", _TUTORIAL, re.DOTALL | re.MULTILINE)
    # `tests/api/cli/test_connect.py` has a server for those that connect.
    lines = (shlex.split(line) for block in blocks for line in block.splitlines())
    return [words for words in lines if words[1] != "connect"]


def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    #     block 0: n0 n1 | n2 n3     block 1: n4 n5
    labels = [{_BLOCK: str(k // 4), _SUBBLOCK: str(k // 2)} for k in range(6)]
    topology = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "gke"},
        "spec": {"levels": [{"nodeLabel": _BLOCK}, {"nodeLabel": _SUBBLOCK}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }
    documents = {
        "nodes": listed(*(node(f"n{k}", found) for k, found in enumerate(labels))),
        "pods": listed(
            pod("run-0", "run", node="n0"), pod("wait-0", "wait", schedulingGates=[{"name": "stowplan/placement"}])
        ),
        "workloads": listed(queued("large", pods=2, levels=["kubernetes.io/hostname"])),
        "topology": json.dumps(topology),
    }
    for name, text in documents.items():
        (tmp_path / f"{name}.json").write_text(text)
    monkeypatch.chdir(tmp_path)
    for program, *words in commands():
        assert program == "stowplan"
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (words, result.output)
    queue, large = (json.loads((tmp_path / name).read_text()) for name in ("plan.json", "large-plan.json"))
    assert queue["verified"]
    assert {one["job_id"]: one["change"] for one in queue["allocations"]} == {
        "team/run": "kept",
        "team/wait": "started",
        "team/large": "started",
    }
    assert large["verified"]
    assert len({labels[int(name[1:])][_SUBBLOCK] for name in large["allocations"][0]["gpus"]}) == 1
    said = json.loads((tmp_path / "handover" / "patches.json").read_text())
    assert {item["job_id"]: item["resource"].partition(".")[0] for item in said} == {
        "team/wait": "pods",
        "team/large": "workloads",
    }
    manifest = yaml.safe_load((tmp_path / "large" / "jobset.yaml").read_text())
    selectors = [
        one["template"]["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/hostname"]
        for one in manifest["spec"]["replicatedJobs"]
    ]
    assert selectors == large["communication"]["hosts"]
    assert (tmp_path / "gated" / "place.sh").exists()
