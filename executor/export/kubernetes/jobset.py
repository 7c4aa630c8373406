"""A JobSet: a replicated job for every host, in rank order, whose node selector is the host; or one with all pods,
behind our gate.

Pod k of job j is SET-REPLICATED_JOB-j-k.SET (`Network` of `api/jobset/v1alpha2/jobset_types.go` at v0.12.0, with a
headless Service that the controller makes). `coordinator` would say the same of rank 0 as a label, whose 63 characters
are few for it; torchrun is told the address itself.
"""

from collections.abc import Mapping
from typing import Any

from executor.export.job import ExportedJob
from executor.export.kubernetes.gate import place_script
from executor.export.kubernetes.indexed_job import INDEX
from executor.export.kubernetes.options import Settings, read_settings
from executor.export.kubernetes.pods import (
    PlacedPods,
    from_metadata,
    manifest,
    metadata,
    placed_pods,
    pod_metadata,
    pod_spec,
    torchrun_variables,
)
from executor.kubernetes.names import MAX_LABEL, dns_label
from stowplan.errors import InputError

SET = "jobset.sigs.k8s.io/jobset-name"
REPLICATED = "jobset.sigs.k8s.io/replicatedjob-name"
# Pod sets of a Workload of Kueue at most (`workload_types.go`, v1beta2), and there is one for each replicated job.
_MAX_POD_SETS = 10
_COMMENT = """\
# Needs the JobSet controller (v0.8 or later). kubectl apply --server-side -f jobset.yaml{then}. Host k of {name} has
# node rank k; the device plugin chooses which GPUs of the node its pod gets.
"""


def write_jobset(job: ExportedJob, options: Mapping[str, str]) -> Mapping[str, str]:
    """Write the JobSet, and what brings pods to their hosts where it does not say that itself.

    Raises
    ------
    InputError
        When an option is wrong, hosts have ranks in pieces or no name of a node, or there are more of them than a
        JobSet has replicated jobs for.
    """
    settings, placed = read_settings(options), placed_pods(job)
    gated = settings.gated and len(placed.hosts) > 1
    if not gated and settings.queue is not None and len(placed.hosts) > _MAX_POD_SETS:
        raise InputError(
            f"the plan has {len(placed.hosts)} hosts, and Kueue takes {_MAX_POD_SETS} replicated jobs of a JobSet: "
            "give pin=gate, or no queue"
        )
    last = len(placed.hosts) - 1
    longest = f"-node-0-{last}-abcde" if gated else f"-node-{last}-0-0-abcde"
    name = dns_label(job.plain_name, MAX_LABEL - len(longest))
    jobs = [_together(name, placed, settings)] if gated else _one_by_one(name, placed, settings)
    ttl = {} if settings.ttl_s is None else {"ttlSecondsAfterFinished": settings.ttl_s}
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata(name, settings),
        "spec": {
            # Collectives cannot go on without a rank: any failed job ends the set.
            "failurePolicy": {"maxRestarts": 0},
            "successPolicy": {"operator": "All"},
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            **ttl,
            "replicatedJobs": jobs,
        },
    }
    files = {"jobset.yaml": manifest(_COMMENT.format(name=name, then=", then sh place.sh" if gated else ""), document)}
    labels = {SET: name, REPLICATED: "node"}
    return files | ({"place.sh": place_script(name, placed, settings, labels, INDEX)} if gated else {})


def _one_by_one(name: str, placed: PlacedPods, settings: Settings) -> list[dict[str, Any]]:
    """A replicated job for every host."""
    jobs = []
    for k, (host, num_ranks) in enumerate(zip(placed.hosts, placed.num_ranks, strict=True)):
        variables = torchrun_variables(len(placed.hosts), num_ranks, f"{name}-node-0-0-0.{name}", {"value": str(k)})
        pod = pod_spec(settings, num_gpus=num_ranks, host=host, variables=variables)
        jobs.append(_replicated(f"node-{k}", 1, pod, settings))
    return jobs


def _together(name: str, placed: PlacedPods, settings: Settings) -> dict[str, Any]:
    """One replicated job with all pods."""
    num_ranks, num_hosts = placed.alike("jobset with pin=gate"), len(placed.hosts)
    rank = from_metadata("annotations", INDEX)
    variables = torchrun_variables(num_hosts, num_ranks, f"{name}-node-0-0.{name}", rank)
    pod = pod_spec(settings, num_gpus=num_ranks, host=None, variables=variables)
    return _replicated("node", num_hosts, pod, settings)


def _replicated(name: str, num_pods: int, pod: dict[str, Any], settings: Settings) -> dict[str, Any]:
    return {
        "name": name,
        "replicas": 1,
        "template": {
            "spec": {
                "completionMode": "Indexed",
                "completions": num_pods,
                "parallelism": num_pods,
                "backoffLimit": 0,
                "template": {"metadata": pod_metadata(settings), "spec": {"restartPolicy": "Never", **pod}},
            }
        },
    }
