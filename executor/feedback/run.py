"""What a run is to the service: model, plan, GPU types; sent once with the first records of a launch."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from executor.deployment import Deployment
from executor.records import read_record, write_text
from stowplan.errors import InputError
from topology.cluster import Cluster
from topology.serialize import cluster_to_json, load_cluster_json

DEPLOYMENT_FILE, CLUSTER_FILE = "deployment.json", "cluster.json"


def write_cluster(cluster: Cluster, folder: Path) -> None:
    """Write the cluster into the folder of a run, or of a deployment for all its runs."""
    write_text(folder / CLUSTER_FILE, json.dumps(cluster_to_json(cluster), indent=1) + "\n")


def run_document(run: Path, root: Path, launch: int) -> dict[str, Any]:
    """Give the `run` of a batch.

    Parameters
    ----------
    run
        Folder of the run, with deployment.json, and cluster.json there or in `root`.

    Raises
    ------
    InputError
        When one of the files is missing or wrong.
    """
    deployment = read_record(Deployment, run / DEPLOYMENT_FILE, "deployment")
    where = next((folder for folder in (run, root) if (folder / CLUSTER_FILE).exists()), None)
    if where is None:
        raise InputError(
            f"neither {run} nor {root} has a {CLUSTER_FILE}, which tells the service the GPU types of the plan"
        )
    cluster, used = load_cluster_json(where / CLUSTER_FILE), {node for node, _ in deployment.plan.gpus}
    nodes = tuple(node for node in cluster.nodes if node.id in used)
    model = asdict(replace(deployment.model, zero_stage=1, global_batch=deployment.plan.global_batch))
    del model["name"]
    return {
        "launch": launch,
        "device": deployment.training.device,
        "transformer": model,
        "plan": asdict(deployment.plan),
        "cluster": cluster_to_json(replace(cluster, nodes=nodes)),
    }
