"""GPUs by the hosts at which they are reached, and how far a run may be prepared beside one that has some of them."""

from executor.deployment import Deployment
from executor.run_files import Preparation
from executor.training_options import Device
from models.parallel_plan import Gpu

# All nodes of local deployments.
LOCALHOST = "localhost"


def gpus_by_host(deployment: Deployment) -> frozenset[Gpu]:
    """GPUs of a deployment, by the host at which it reaches their node; of one on CPUs none."""
    if deployment.training.device is Device.CPU:
        return frozenset()
    return frozenset((host_of(deployment, node), gpu) for node, gpu in deployment.plan.gpus)


def host_of(deployment: Deployment, node: str) -> str:
    """Host of a node; all nodes of a local deployment are this machine."""
    if deployment.launch.backend == "local":
        return LOCALHOST
    return deployment.launch.addresses.get(node, node).rpartition("@")[2]


def preparation_beside(following: Deployment, running: Deployment) -> Preparation:
    """How far a run may come beside one that trains: a GPU that both have holds the model of one of them."""
    is_free = gpus_by_host(following).isdisjoint(gpus_by_host(running))
    return Preparation.ENGINE if is_free else Preparation.LIBRARIES
