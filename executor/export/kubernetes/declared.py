"""What may be said of exports to Kubernetes beside the plan: data alone, which the command line and HTTP show."""

from collections.abc import Mapping
from types import MappingProxyType

from executor.export.options import ExportOption
from executor.kubernetes.names import HOSTNAME

DEFAULT_CHECK, DEFAULT_RETRY_S = "stowplan", 300

ALL: Mapping[str, ExportOption] = MappingProxyType(
    {
        "image": ExportOption(summary="container image, which has torchrun; has to be given"),
        "command": ExportOption(summary="what torchrun starts, such as 'train.py --lr 1e-4'; has to be given"),
        "namespace": ExportOption(summary="namespace, default unless another is given"),
        "gpu-resource": ExportOption(summary="what GPUs are called, nvidia.com/gpu unless as amd.com/gpu"),
        "resources": ExportOption(summary="beside GPUs for each pod: rdma/hca_shared_devices_a=1,cpu=96,memory=1Ti"),
        "tolerations": ExportOption(summary="taints that pods tolerate: KEY, KEY=VALUE, each perhaps with :EFFECT"),
        "node-key": ExportOption(summary=f"label that names a node, {HOSTNAME} unless another is given"),
        "volumes": ExportOption(
            summary="pvc:CLAIM:/path, hostpath:/path:/path, emptydir:SIZE:/path, each perhaps with :ro"
        ),
        "shm": ExportOption(summary="size of /dev/shm, such as 64Gi; unlimited unless one is given"),
        "host-network": ExportOption(summary="pods use the network of their node", choices=("no", "yes")),
        "service-account": ExportOption(summary="service account of the pods"),
        "priority-class": ExportOption(summary="PriorityClass of the pods"),
        "queue": ExportOption(summary="LocalQueue of Kueue (kueue.x-k8s.io/queue-name)"),
        "labels": ExportOption(summary="labels of object and pods: team=llm,stage=1"),
        "annotations": ExportOption(summary="annotations of object and pods"),
        "ttl": ExportOption(summary="seconds after its end in which the object is kept; for ever unless given"),
        "pin": ExportOption(
            summary="how pods get to their nodes: a replicated job with a node selector each, or one behind our gate, "
            "which place.sh lifts",
            choices=("selector", "gate"),
        ),
        "runtime": ExportOption(summary="ClusterTrainingRuntime, torch-distributed unless another is given"),
    }
)


def _without(*names: str) -> Mapping[str, ExportOption]:
    """The options of a controller that has no place for some."""
    return MappingProxyType({name: option for name, option in ALL.items() if name not in names})


JOBSET = _without("runtime")
JOB = _without("runtime", "pin")
GROUP = _without("runtime", "pin", "ttl")
TRAINJOB = _without("pin", "ttl", "host-network", "priority-class")
WHOLE: Mapping[str, ExportOption] = MappingProxyType(
    {
        "workloads": ExportOption(
            summary="workloads of Kueue, of `kubectl get workloads.kueue.x-k8s.io --all-namespaces -o json`",
            is_document=True,
        ),
        "pods": ExportOption(
            summary="pods behind our gate, of `kubectl get pods --all-namespaces -o json`", is_document=True
        ),
        "check": ExportOption(summary=f"the AdmissionCheck that is answered, {DEFAULT_CHECK} unless another is given"),
        "retry": ExportOption(summary=f"seconds until what waits asks again, {DEFAULT_RETRY_S} unless given"),
        "hopeless": ExportOption(
            summary="workloads that fit no cluster of this kind: they ask again, or are deactivated",
            choices=("retry", "reject"),
        ),
        "node-key": ExportOption(summary=f"label that names a node, {HOSTNAME} unless another is given"),
    }
)
