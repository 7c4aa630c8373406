"""A LeaderWorkerSet of one group: pod k has worker index k, the leader is the first host.

`LeaderWorkerSetSpec` of `api/leaderworkerset/v1/leaderworkerset_types.go` at v0.9.0. Workers have one template, so pods
of several hosts wait behind our gate.
"""

from collections.abc import Mapping

from executor.export.job import ExportedJob
from executor.export.kubernetes.gate import place_script
from executor.export.kubernetes.options import read_settings
from executor.export.kubernetes.pods import (
    from_metadata,
    manifest,
    metadata,
    placed_pods,
    pod_metadata,
    pod_spec,
    torchrun_variables,
)
from executor.kubernetes.names import MAX_LABEL, dns_label

_SET, _INDEX = "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/worker-index"
_COMMENT = """\
# Needs the LeaderWorkerSet controller. kubectl apply -f leaderworkerset.yaml{then}. Worker k of {name} has node rank k;
# the device plugin chooses which GPUs of the node it gets. Its pods are those of StatefulSets, which start again
# whatever way they end: a training that is done has to be deleted; job and jobset end by themselves.
"""


def write_leaderworkerset(job: ExportedJob, options: Mapping[str, str]) -> Mapping[str, str]:
    """Write the LeaderWorkerSet, and what brings pods to their hosts.

    Raises
    ------
    InputError
        When an option is wrong, hosts have ranks in pieces or different numbers of them, or no name of a node.
    """
    settings, placed = read_settings(options), placed_pods(job)
    num_ranks, num_hosts = placed.alike("leaderworkerset"), len(placed.hosts)
    # The hash of a revision stands behind the name in a label of pods.
    name = dns_label(job.plain_name, MAX_LABEL - len("-0-0123456789"))
    gated = num_hosts > 1
    variables = torchrun_variables(num_hosts, num_ranks, f"{name}-0.{name}", from_metadata("labels", _INDEX))
    host = None if gated else placed.hosts[0]
    document = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata(name, settings),
        "spec": {
            "replicas": 1,
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": num_hosts,
                # Collectives cannot go on without a rank.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": {
                    "metadata": pod_metadata(settings),
                    "spec": pod_spec(settings, num_gpus=num_ranks, host=host, variables=variables),
                },
            },
        },
    }
    comment = _COMMENT.format(name=name, then=", then sh place.sh" if gated else "")
    files = {"leaderworkerset.yaml": manifest(comment, document)}
    return files | ({"place.sh": place_script(name, placed, settings, {_SET: name}, _INDEX)} if gated else {})
