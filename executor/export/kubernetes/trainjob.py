"""A TrainJob of Kubeflow Trainer: its runtime sets torchrun's variables from the number of nodes and of processes
(`pkg/runtime/framework/plugins/torch/torch.go` at v2.3.0), node rank k is completion index k.

What the plan says beyond that are patches of the runtime's replicated job `node` (`runtimePatches`), which have no
place for the network of the host, a priority class or a time to live: these are the runtime's.
"""

from collections.abc import Mapping
from typing import Any

from executor.export.job import ExportedJob
from executor.export.kubernetes.gate import place_script
from executor.export.kubernetes.indexed_job import INDEX
from executor.export.kubernetes.jobset import REPLICATED, SET
from executor.export.kubernetes.options import Settings, read_settings
from executor.export.kubernetes.pods import (
    CONTAINER,
    command_words,
    limits,
    manifest,
    metadata,
    pinned,
    placed_pods,
    pod_metadata,
    volumes,
)
from executor.kubernetes.names import MAX_LABEL, dns_label

_MANAGER = "stowplan.io/export"
_NODES = "node"
_COMMENT = """\
# Needs Kubeflow Trainer (v2.3 or later) and the runtime {runtime}. kubectl apply -f trainjob.yaml{then}. Pod k of
# {name} has the ranks of host k; the device plugin chooses which GPUs of the node it gets.
"""


def write_trainjob(job: ExportedJob, options: Mapping[str, str]) -> Mapping[str, str]:
    """Write the TrainJob, and what brings pods to their hosts.

    Raises
    ------
    InputError
        When an option is wrong, hosts have ranks in pieces or different numbers of them, or no name of a node.
    """
    settings, placed = read_settings(options), placed_pods(job)
    num_ranks, num_hosts = placed.alike("trainjob"), len(placed.hosts)
    name = dns_label(job.plain_name, MAX_LABEL - len(f"-{_NODES}-0-{num_hosts - 1}-abcde"))
    gated = num_hosts > 1
    command, args = command_words(settings)
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata(name, settings),
        "spec": {
            "runtimeRef": {"name": settings.runtime},
            "trainer": {
                "image": settings.image,
                "command": command,
                "args": args,
                "numNodes": num_hosts,
                "numProcPerNode": num_ranks,
                "resourcesPerNode": {"limits": limits(settings, num_ranks)},
            },
            "runtimePatches": [_patch(settings, None if gated else placed.hosts[0])],
        },
    }
    comment = _COMMENT.format(runtime=settings.runtime, name=name, then=", then sh place.sh" if gated else "")
    files = {"trainjob.yaml": manifest(comment, document)}
    labels = {SET: name, REPLICATED: _NODES}
    return files | ({"place.sh": place_script(name, placed, settings, labels, INDEX)} if gated else {})


def _patch(settings: Settings, host: str | None) -> dict[str, Any]:
    named, mounts = volumes(settings)
    account = {} if settings.service_account is None else {"serviceAccountName": settings.service_account}
    tolerations = {"tolerations": [dict(one) for one in settings.tolerations]} if settings.tolerations else {}
    pod = {
        "metadata": pod_metadata(settings),
        "spec": {
            **account,
            **tolerations,
            **pinned(settings, host),
            "containers": [{"name": CONTAINER, "volumeMounts": mounts}],
            "volumes": named,
        },
    }
    jobs = [{"name": _NODES, "template": {"spec": {"template": pod}}}]
    return {"manager": _MANAGER, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
