"""An Indexed Job, and the headless Service that gives its pods names: Kubernetes alone, nothing is installed.

Pod k has completion index k and the name JOB-k (`batch.kubernetes.io/job-completion-index`, Kubernetes 1.28 and later
as a label, too). One template has one node selector, so pods of several hosts wait behind our gate.
"""

from collections.abc import Mapping
from typing import Any

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

INDEX = "batch.kubernetes.io/job-completion-index"
_JOB = "batch.kubernetes.io/job-name"
_COMMENT = """\
# kubectl apply -f job.yaml{then}. Pod k has the ranks of host k of {name}; the device plugin chooses which GPUs of the
# node it gets.
"""


def write_job(job: ExportedJob, options: Mapping[str, str]) -> Mapping[str, str]:
    """Write the objects, and what brings pods to their hosts.

    Raises
    ------
    InputError
        When an option is wrong, hosts have ranks in pieces or different numbers of them, or no name of a node.
    """
    settings, placed = read_settings(options), placed_pods(job)
    num_ranks, num_hosts = placed.alike("job"), len(placed.hosts)
    name = dns_label(job.plain_name, MAX_LABEL - len(f"-{num_hosts - 1}-abcde"))
    gated = num_hosts > 1
    variables = torchrun_variables(num_hosts, num_ranks, f"{name}-0.{name}", from_metadata("annotations", INDEX))
    pod = pod_spec(settings, num_gpus=num_ranks, host=None if gated else placed.hosts[0], variables=variables)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": settings.namespace},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {_JOB: name}},
    }
    ttl: dict[str, Any] = {} if settings.ttl_s is None else {"ttlSecondsAfterFinished": settings.ttl_s}
    document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(name, settings),
        "spec": {
            "completionMode": "Indexed",
            "completions": num_hosts,
            "parallelism": num_hosts,
            # Collectives cannot go on without a rank.
            "backoffLimit": 0,
            **ttl,
            "template": {
                "metadata": pod_metadata(settings),
                "spec": {"restartPolicy": "Never", "subdomain": name, **pod},
            },
        },
    }
    comment = _COMMENT.format(name=name, then=", then sh place.sh" if gated else "")
    files = {"job.yaml": manifest(comment, service, document)}
    return files | ({"place.sh": place_script(name, placed, settings, {_JOB: name}, INDEX)} if gated else {})
