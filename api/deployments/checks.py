"""What can be wrong with a plan that is to be deployed, beyond its form; pointers into the request."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from api.common.errors import DeploymentConflictError
from api.schemas.deployment import DeploymentBody, PlanChoice
from executor.deployment import Deployment
from executor.training_job import Device, model_faults
from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.legality import FreeGpus, plan_violations
from models.performance.iteration.architecture import model_issues
from models.performance.iteration.model import PerformanceModel
from models.transformer import Transformer
from stowplan.errors import InputError, Issue, pointer_of
from topology.cluster import Cluster, NodeState

_MEMORY = "out_of_memory"
# Field of a training job -> where the request says it; fields that are not here are in `training`.
_OF_THE_PLAN = ("plan", "stage_layers", "micro_batch", "num_micro_batches", "dp", "tp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A deployment that has GPUs, by host and index; `what` says of one of them who has it and why."""

    gpus: frozenset[Gpu]
    what: str


def refuse_model(asked: PlanChoice, model: Transformer) -> None:
    """Raise InputError when the trainer cannot run a model, or it is none."""
    found = {issue.pointer: issue for issue in [*model_faults(model), *model_issues(model, "/model")]}
    if found:
        raise InputError("the trainer cannot run the model of the job", list(_in_request(asked, found.values())))


def refuse_misfit(
    asked: PlanChoice, plan: ParallelPlan, model: PerformanceModel, available: FreeGpus | None, *, hint: str
) -> None:
    """Raise InputError when a plan does not fit model and cluster, whatever its memory; `available`: the GPUs that it
    may use, None where a planner has seen to that; `hint`: what else may be wrong."""
    found = [issue for issue in plan_violations(plan, model, available) if issue.code != _MEMORY]
    if found:
        raise InputError(
            f"the plan does not fit the model or the cluster{hint}", list(_in_request(asked, _of_plan(found)))
        )


def refuse_lack_of_memory(asked: PlanChoice, plan: ParallelPlan, model: PerformanceModel) -> None:
    """Raise InputError when GPUs are predicted to run out of memory, unless the request takes the risk."""
    found = [issue for issue in plan_violations(plan, model) if issue.code == _MEMORY]
    if found and not asked.ignore_memory:
        detail = "the plan is predicted to run out of GPU memory; ignore_memory deploys it all the same"
        raise InputError(detail, list(_in_request(asked, _of_plan(found))))


def usable_gpus(cluster: Cluster, own: Collection[Gpu]) -> FreeGpus:
    """Free GPUs of nodes that take new work, and `own` ones, on which the job runs already."""
    usable: dict[str, tuple[str, set[int]]] = {}
    for node in cluster.nodes:
        mine = {gpu for gpu in range(node.num_gpus) if (node.id, gpu) in own}
        free = set(range(node.num_gpus)) - set(node.gpus_in_use) if node.state is NodeState.UP else set()
        if node.state is NodeState.UP or (mine and node.state is NodeState.DRAINED):
            usable[node.id] = (node.gpu_type, free | mine)
    return usable


def gpus_by_host(deployment: Deployment) -> frozenset[Gpu]:
    """GPUs of a deployment, by the host at which it reaches their node; of one on CPUs none."""
    if deployment.training.device is Device.CPU:
        return frozenset()
    return frozenset((_host(deployment, node), gpu) for node, gpu in deployment.plan.gpus)


def refuse_taken_gpus(asked: PlanChoice, deployment: Deployment, holders: Sequence[Holder]) -> None:
    """Raise DeploymentConflictError when another deployment has GPUs of the plan."""
    mine = gpus_by_host(deployment)
    what = {gpu: holder.what for holder in reversed(holders) for gpu in holder.gpus & mine}
    issues = [
        Issue(
            code="gpu_taken",
            pointer=pointer_of("plan", "stages", i, "replicas", j, "gpus"),
            detail=f"GPU {gpu} of node {replica.node!r} {what[_host(deployment, replica.node), gpu]}",
        )
        for i, stage in enumerate(deployment.plan.stages)
        for j, replica in enumerate(stage.replicas)
        for gpu in replica.gpus
        if (_host(deployment, replica.node), gpu) in what
    ]
    if issues:
        detail = f"{issues[0].detail}; stop or reconfigure that deployment first"
        raise DeploymentConflictError(detail, list(_in_request(asked, issues)))


@contextmanager
def in_request(asked: PlanChoice, prefix: str = "") -> Iterator[None]:
    """Give errors about a deployment or training job, or about the part of one at `prefix`, pointers into a request."""
    try:
        yield
    except InputError as error:
        issues = [replace(issue, pointer=prefix + issue.pointer) for issue in error.issues]
        raise type(error)(error.detail, list(_in_request(asked, issues))) from error


def _in_request(asked: PlanChoice, issues: Collection[Issue]) -> Iterator[Issue]:
    """Issues of a deployment or training job, where the request says what is wrong.

    What the request takes from a plan of the service is at `/plan_id`; the detail then says where in the plan.
    """
    brings_model = isinstance(asked, DeploymentBody) and asked.job is not None
    for issue in issues:
        part = issue.pointer.split("/")[1] if issue.pointer else ""
        below = issue.pointer.removeprefix(f"/{part}")
        if part == "name":
            yield replace(issue, pointer="/job_id")
        elif part not in ("model", *_OF_THE_PLAN):
            yield replace(issue, pointer=f"/training{issue.pointer}")
        elif part == "model" and brings_model:
            yield replace(issue, pointer=f"/job{below}")
        elif asked.plan is None or part == "model":
            source = "/plan" if asked.plan is not None else "/plan_id"
            yield replace(issue, pointer=source, detail=f"{below.lstrip('/')} {issue.detail}".lstrip())
        else:
            yield replace(issue, pointer=issue.pointer if part == "plan" else "/plan")


def _of_plan(issues: Collection[Issue]) -> list[Issue]:
    return [replace(issue, pointer=f"/plan{issue.pointer}") for issue in issues]


def _host(deployment: Deployment, node: str) -> str:
    """Host of a node; all nodes of a local deployment are this machine."""
    if deployment.launch.backend == "local":
        return "localhost"
    return deployment.launch.addresses.get(node, node).rpartition("@")[2]
