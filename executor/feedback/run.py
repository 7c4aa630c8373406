"""What a run is to the service: model, plan, GPU types; sent once with the first records of a launch.

<run>/deployment.json          what runs
<run>/cluster.json             the nodes of the run, else
<root>/cluster-<plan>.json     of all runs with that plan, restarts too, else
<root>/cluster.json            of all runs
"""

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from executor.deployment import Deployment
from executor.records import read_record, write_text
from models.parallel_plan import ParallelPlan
from stowplan.errors import InputError
from stowplan.records import to_json
from topology.cluster import Cluster
from topology.serialize import cluster_to_json, load_cluster_json

DEPLOYMENT_FILE, CLUSTER_FILE = "deployment.json", "cluster.json"


class UnknownClusterError(InputError):
    """Nothing says what the nodes of a run are."""


def write_cluster(cluster: Cluster, folder: Path, plan: ParallelPlan | None = None) -> None:
    """Write the cluster into the folder of a run, or of a deployment for its runs with `plan`, or for all of them."""
    name = CLUSTER_FILE if plan is None else _name_for(plan)
    write_text(folder / name, json.dumps(cluster_to_json(cluster), indent=1) + "\n")


def given_cluster(folder: Path) -> Cluster | None:
    """The cluster of the deployment in `folder` as a user gave it, None where nobody did; InputError when it is
    wrong."""
    path = folder / CLUSTER_FILE
    return load_cluster_json(path) if path.exists() else None


def knows_a_cluster(folder: Path) -> bool:
    """Whether the cluster of any run of the deployment in `folder` is known."""
    return (folder / CLUSTER_FILE).exists() or any(folder.glob("cluster-*.json"))


def run_document(run: Path, root: Path, launch: int) -> dict[str, Any]:
    """Give the `run` of a batch.

    Parameters
    ----------
    run
        Folder of the run, with deployment.json, and cluster.json there or in `root`.

    Raises
    ------
    UnknownClusterError
        When there is no cluster.json, or it lacks nodes of the plan.
    InputError
        When one of the files is wrong.
    """
    deployment = read_record(Deployment, run / DEPLOYMENT_FILE, "deployment")
    paths = (run / CLUSTER_FILE, root / _name_for(deployment.plan), root / CLUSTER_FILE)
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise UnknownClusterError(
            f"neither {run} nor {root} has a {CLUSTER_FILE}, which tells the service the GPU types of the plan"
        )
    cluster, used = load_cluster_json(path), {node for node, _ in deployment.plan.gpus}
    nodes = tuple(node for node in cluster.nodes if node.id in used)
    missing = sorted(used - {node.id for node in nodes})
    if missing:
        raise UnknownClusterError(f"{path} lacks the nodes {missing} of the plan of {run}")
    model = asdict(deployment.model)
    del model["name"]
    return {
        "launch": launch,
        "device": deployment.training.device,
        "transformer": model,
        "plan": asdict(deployment.plan),
        "cluster": cluster_to_json(replace(cluster, nodes=nodes)),
        "own_program": deployment.launch.program is not None,
    }


def plan_digest(plan: ParallelPlan) -> str:
    """Short name of a plan, GPUs included, for what is kept for all runs with it."""
    return hashlib.sha256(to_json(plan).encode()).hexdigest()[:12]


def _name_for(plan: ParallelPlan) -> str:
    return f"cluster-{plan_digest(plan)}.json"
