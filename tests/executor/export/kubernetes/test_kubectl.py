"""Our patches carried out by kubectl itself, on objects in files: no cluster is asked."""

import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from executor.export.kubernetes.indexed_job import write_job
from tests.executor.export.jobs import job
from tests.executor.export.kubernetes.controllers import GIVEN, pods_of
from tests.executor.export.kubernetes.test_whole import PODS, WORKLOADS, exported
from tests.executor.kubernetes.patching import patched

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl here")


def kubectl(file: Path, document: dict[str, Any], *words: str, stdin: str = "") -> str:
    """What a command makes of a document."""
    file.write_text(json.dumps(document))
    command: Sequence[str] = ("kubectl", *words, "--local", "--filename", str(file))
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def test_patches_of_a_hand_over(tmp_path: Path) -> None:
    objects = {one["metadata"]["name"]: one for one in (*WORKLOADS, *PODS)}
    items = json.loads(exported().files["patches.json"])
    assert len(items) == len(objects)
    for item in items:
        before = objects[item["name"]]
        words = ("patch", "--type=json", "--patch-file", "/dev/stdin", "--output=json")
        after = json.loads(kubectl(tmp_path / "object.json", before, *words, stdin=json.dumps(item["patch"])))
        wanted = patched(before, item["patch"])
        # kubectl leaves out of pods what is empty, and writes what a pod has in any case.
        assert after["spec"].get("nodeSelector") == wanted["spec"].get("nodeSelector")
        assert after["spec"].get("schedulingGates", []) == wanted["spec"].get("schedulingGates", [])
        if before["kind"] == "Workload":
            assert after == wanted


def test_gates_are_lifted_by_place_sh(tmp_path: Path) -> None:
    script = write_job(job(), {**GIVEN, "tolerations": "spot"})["place.sh"]
    made = pods_of(write_job(job(), GIVEN))[1]
    gates = [{"name": "example.com/hold"}, {"name": "stowplan/placement"}]
    spec = {**made.spec, "schedulingGates": gates, "nodeSelector": {"pool": "gpu"}}
    metadata = {"name": made.name, "namespace": "default", "labels": dict(made.labels)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    (columns,) = re.findall("^columns='(.*)'$", script, re.MULTILINE)
    listed = kubectl(tmp_path / "pod.json", pod, "annotate", "note=x", f"--output=jsonpath={columns}")
    assert listed == f"{made.name} 1 example.com/hold stowplan/placement"
    (patch,) = re.findall("--patch='(.*)'$", script, re.MULTILINE)
    patch = patch.replace("""'"$host"'""", "a1")
    after = json.loads(
        kubectl(tmp_path / "pod.json", pod, "patch", "--type=strategic", f"--patch={patch}", "--output=json")
    )
    assert after["spec"]["nodeSelector"] == {"pool": "gpu", "kubernetes.io/hostname": "a1"}
    assert after["spec"]["schedulingGates"] == gates[:1]
