"""What controllers make of our manifests: the pods of each format, as its documentation has them.

JobSet v0.12.0, Kubeflow Trainer v2.3.0, LeaderWorkerSet v0.9.0, Kubernetes 1.28 and later; of Trainer the runtime
`torch-distributed` as it is published.
"""

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from executor.export import ExportedJob
from executor.export.kubernetes.indexed_job import write_job
from executor.export.kubernetes.jobset import write_jobset
from executor.export.kubernetes.leaderworkerset import write_leaderworkerset
from executor.export.kubernetes.trainjob import write_trainjob

GIVEN = {"image": "registry/train:1", "command": "train.py --lr 1e-4"}
_INDEX = "batch.kubernetes.io/job-completion-index"
# A kubectl that answers `get` with a file, and writes down `patch`.
_KUBECTL = """\
#!/bin/sh
case "$1" in
get) printf '%s\\n' "$@" >"$0.get"; cat "$0.pods" ;;
patch) shift; printf '%s\\n' "$@" >>"$0.patches"; echo --- >>"$0.patches" ;;
esac
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePod:
    """A pod as a controller makes it. `address`: under which others find it."""

    name: str
    address: str
    labels: Mapping[str, str]
    spec: Mapping[str, Any]
    variables: Mapping[str, str]

    @property
    def container(self) -> Mapping[str, Any]:
        """The only one."""
        found: list[Mapping[str, Any]] = self.spec["containers"]
        (container,) = found
        return container


def objects(files: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Objects of the manifest by kind."""
    (manifest,) = (text for name, text in files.items() if name.endswith(".yaml"))
    return {document["kind"]: document for document in yaml.safe_load_all(manifest)}


def pods_of(files: Mapping[str, str]) -> list[MadePod]:
    """The pods, in no order that means anything."""
    found = objects(files)
    kind, document = next((kind, document) for kind, document in found.items() if kind != "Service")
    return _MAKERS[kind](document, found.get("Service"))


def hosts_by_rank(files: Mapping[str, str], folder: Path) -> list[str]:
    """Host of every node rank: by the selector of the manifest, or as place.sh tells."""
    pods = pods_of(files)
    hosts = placed_by_script(files, pods, folder) if "place.sh" in files else {}
    by_rank = {}
    for pod in pods:
        gated = [gate["name"] for gate in pod.spec.get("schedulingGates", ())]
        assert bool(gated) == (pod.name in hosts)
        selector = pod.spec.get("nodeSelector", {}) if not gated else hosts[pod.name]
        by_rank[int(pod.variables["PET_NODE_RANK"])] = selector["kubernetes.io/hostname"]
    assert sorted(by_rank) == list(range(len(pods)))
    return [by_rank[rank] for rank in sorted(by_rank)]


def placed_by_script(
    files: Mapping[str, str], pods: Sequence[MadePod], folder: Path, *, gates: str = "stowplan/placement"
) -> dict[str, Mapping[str, str]]:
    """Run place.sh with a kubectl that writes down: node selector by name of pod."""
    kubectl = folder / "kubectl"
    kubectl.write_text(_KUBECTL)
    kubectl.chmod(0o755)
    (folder / "place.sh").write_text(files["place.sh"])
    (folder / "kubectl.patches").write_text("")
    # `kubectl get` is asked by labels and gives what its template says; both are looked at here.
    listed = [f"{pod.name} {_index_label(files, pod)} {gates}\n" for pod in pods]
    (folder / "kubectl.pods").write_text("".join(listed))
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    subprocess.run(["sh", "place.sh"], cwd=folder, env=path, check=True, timeout=60, capture_output=True)
    asked = dict(
        word.removeprefix("--").split("=", 1)
        for word in (folder / "kubectl.get").read_text().split("\n")
        if "=" in word
    )
    for pod in pods:
        wanted = dict(pair.split("=") for pair in asked["selector"].split(","))
        assert wanted.items() <= pod.labels.items()
    patches = {}
    for text in (folder / "kubectl.patches").read_text().split("---\n")[:-1]:
        kind, name, *options = text.splitlines()
        said = dict(option.removeprefix("--").split("=", 1) for option in options)
        patch = yaml.safe_load(said["patch"])["spec"]
        assert (kind, said["type"], said["namespace"]) == ("pod", "strategic", asked["namespace"])
        assert patch["schedulingGates"] == [{"$patch": "delete", "name": "stowplan/placement"}]
        patches[name] = patch["nodeSelector"]
    return patches


def _index_label(files: Mapping[str, str], pod: MadePod) -> str:
    found = re.search(r"\.metadata\.labels\.(\S+)\}", files["place.sh"])
    assert found is not None
    return pod.labels[found[1].replace("\\.", ".")]


def _of_jobset(document: dict[str, Any], service: object) -> list[MadePod]:
    assert service is None
    name, pods = document["metadata"]["name"], []
    for job in document["spec"]["replicatedJobs"]:
        assert job["replicas"] == 1
        labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": job["name"]}
        full = f"{name}-{job['name']}-0"
        pods += _of_job_spec(full, job["template"]["spec"], labels, name)
    return pods


def _of_job(document: dict[str, Any], service: dict[str, Any] | None) -> list[MadePod]:
    assert service is not None
    name, spec = document["metadata"]["name"], document["spec"]
    labels = {"batch.kubernetes.io/job-name": name}
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["metadata"]["namespace"] == document["metadata"]["namespace"]
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"]
    return _of_job_spec(name, spec, labels, service["metadata"]["name"])


def _of_job_spec(name: str, spec: dict[str, Any], labels: Mapping[str, str], domain: str) -> list[MadePod]:
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"]
    made = []
    for k in range(spec["completions"]):
        own = {**spec["template"]["metadata"]["labels"], **labels, _INDEX: str(k)}
        made.append(_pod(f"{name}-{k}-abcde", f"{name}-{k}.{domain}", own, {_INDEX: str(k)}, spec["template"]["spec"]))
    return made


def _of_leaderworkerset(document: dict[str, Any], service: object) -> list[MadePod]:
    assert service is None
    name, template = document["metadata"]["name"], document["spec"]["leaderWorkerTemplate"]
    assert document["spec"]["replicas"] == 1
    made = []
    for k in range(template["size"]):
        labels = {
            **template["workerTemplate"]["metadata"]["labels"],
            "leaderworkerset.sigs.k8s.io/name": name,
            "leaderworkerset.sigs.k8s.io/worker-index": str(k),
        }
        pod = f"{name}-0" if k == 0 else f"{name}-0-{k}"
        made.append(_pod(pod, f"{pod}.{name}", labels, {}, template["workerTemplate"]["spec"]))
    return made


def _of_trainjob(document: dict[str, Any], service: object) -> list[MadePod]:
    """The runtime's replicated job with the trainer's and the patches' fields, and the variables of its plugin."""
    assert service is None
    name, trainer = document["metadata"]["name"], document["spec"]["trainer"]
    (patches,) = document["spec"]["runtimePatches"]
    (job,) = patches["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    patch = job["template"]["spec"]["template"]
    (container,) = patch["spec"]["containers"]
    assert (job["name"], container["name"]) == ("node", "node")
    variables = [
        {"name": "PET_NNODES", "value": str(trainer["numNodes"])},
        {"name": "PET_NPROC_PER_NODE", "value": str(trainer["numProcPerNode"])},
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": f"metadata.annotations['{_INDEX}']"}}},
        {"name": "PET_MASTER_ADDR", "value": f"{name}-node-0-0.{name}"},
        {"name": "PET_MASTER_PORT", "value": "29400"},
    ]
    asked = {"resources": trainer["resourcesPerNode"], "env": variables}
    full = {**container, **{key: trainer[key] for key in ("image", "command", "args")}, **asked}
    spec = {
        "completionMode": "Indexed",
        "completions": trainer["numNodes"],
        "parallelism": trainer["numNodes"],
        "template": {"metadata": patch["metadata"], "spec": {**patch["spec"], "containers": [full]}},
    }
    labels = {"jobset.sigs.k8s.io/jobset-name": name, "jobset.sigs.k8s.io/replicatedjob-name": "node"}
    return _of_job_spec(f"{name}-node-0", spec, labels, name)


def _pod(
    name: str, address: str, labels: Mapping[str, str], annotations: Mapping[str, str], spec: Mapping[str, Any]
) -> MadePod:
    assert len(name) <= 63
    assert all(len(value) <= 63 for value in labels.values())
    known = {
        f"metadata.{kind}['{key}']": value
        for kind, of in (("labels", labels), ("annotations", annotations))
        for key, value in of.items()
    }
    (container,) = spec["containers"]
    variables = {
        one["name"]: one["value"] if "value" in one else known[one["valueFrom"]["fieldRef"]["fieldPath"]]
        for one in container["env"]
    }
    return MadePod(name=name, address=address, labels=labels, spec=spec, variables=variables)


_MAKERS: Mapping[str, Callable[[dict[str, Any], dict[str, Any] | None], list[MadePod]]] = {
    "JobSet": _of_jobset,
    "Job": _of_job,
    "LeaderWorkerSet": _of_leaderworkerset,
    "TrainJob": _of_trainjob,
}
WRITERS: Mapping[str, tuple[Callable[[ExportedJob, Mapping[str, str]], Mapping[str, str]], Mapping[str, str]]] = {
    "jobset": (write_jobset, {}),
    "jobset, gated": (write_jobset, {"pin": "gate"}),
    "job": (write_job, {}),
    "leaderworkerset": (write_leaderworkerset, {}),
    "trainjob": (write_trainjob, {}),
}
