"""Can this plan be trained with this model on this cluster? The plan that is, and what getting there costs.

Pointers are below `/model` and `/plan`.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from executor.projection import Projection, project
from executor.rank_table import refuse_plan
from executor.trainable import model_faults
from executor.training_options import EngineName
from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.legality import FreeGpus, plan_violations
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.model_issues import model_issues
from models.performance.iteration.modelling import performance_model
from models.transformer import Precision, Transformer
from stowplan.errors import InputError, Issue, raise_for_errors
from topology.cluster import Cluster, Node, NodeState
from topology.gpu_catalogue import gpu_type_of, known_product

_MEMORY = "out_of_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plan that somebody wants to deploy.

    `cluster`: facts of its nodes, None where nobody knows them. `available`: the GPUs that it may use, None where a
    planner has seen to that. `engine`: None where a program of the user's own trains the model; what it can run is not
    known here.
    """

    plan: ParallelPlan
    model: Transformer
    cluster: Cluster | None
    calibration: Calibration | None = None
    available: FreeGpus | None = None
    engine: EngineName | None = EngineName.DEEPSPEED

    @property
    def is_runnable(self) -> bool:
        """Whether the engine can run the plan as it is."""
        return self.engine is not EngineName.DEEPSPEED or self.plan.is_symmetric


def deployable_plan(
    candidate: Candidate, *, may_project: bool, ignore_memory: bool, hint: str = ""
) -> tuple[ParallelPlan, Projection | None]:
    """Give the plan to deploy, and the projection that led to it where one was needed.

    Parameters
    ----------
    may_project
        Whether the best symmetric plan may take the place of one that is not symmetric, under DeepSpeed.
    ignore_memory
        Whether a plan is good that is predicted to run out of memory.
    hint
        What else may be wrong when the plan does not fit the cluster; added to the message.

    Raises
    ------
    AsymmetricPlanError
        When the plan is not symmetric, the engine is DeepSpeed, and it may not be projected.
    InputError
        When the trainer cannot train the model, or the plan does not fit the model, the cluster or the memory of its
        GPUs, or cannot be projected.
    """
    plan, model, cluster = candidate.plan, candidate.model, candidate.cluster
    if candidate.engine is None:
        raise_for_errors(list(model_issues(model, "/model")), "model")
    else:
        refuse_model(model, candidate.engine)
        if candidate.is_runnable or not may_project:
            refuse_plan(plan, candidate.engine, "/plan")
        elif cluster is None:
            what = "a projection needs to know the GPUs of the plan"
            raise InputError(f"{what}; give cluster, or GPU types of the catalogue")
    if cluster is None:
        return plan, None
    performance = performance_model(model, cluster, candidate.calibration)
    found = [
        replace(issue, pointer=f"/plan{issue.pointer}")
        for issue in plan_violations(plan, performance, candidate.available)
    ]
    misfits = [issue for issue in found if issue.code != _MEMORY]
    if misfits:
        raise InputError(f"the plan does not fit the model or the cluster{hint}", misfits)
    if not candidate.is_runnable:
        # Whatever the memory of the plan itself: its projection fits.
        projection = project(plan, performance)
        return projection.plan, projection
    if found and not ignore_memory:
        raise InputError("the plan is predicted to run out of GPU memory; ignore_memory deploys it all the same", found)
    return plan, None


def refuse_model(model: Transformer, engine: EngineName) -> None:
    """Raise InputError when the trainer cannot train a model, or it is none; pointers below `/model`."""
    faults = [*model_faults(model, engine), *model_issues(model, "/model")]
    found: dict[str, Issue] = {issue.pointer: issue for issue in faults}
    if found:
        raise InputError("the trainer cannot run the model of the job", list(found.values()))


def usable_gpus(cluster: Cluster, own: Collection[Gpu]) -> FreeGpus:
    """Free GPUs of nodes that take new work, and `own` ones, on which the job runs already."""
    usable: dict[str, tuple[str, set[int]]] = {}
    for node in cluster.nodes:
        mine = {gpu for gpu in range(node.num_gpus) if (node.id, gpu) in own}
        free = set(range(node.num_gpus)) - set(node.gpus_in_use) if node.state is NodeState.UP else set()
        if node.state is NodeState.UP or (mine and node.state is NodeState.DRAINED):
            usable[node.id] = (node.gpu_type, free | mine)
    return usable


def assumed_cluster(plan: ParallelPlan, precision: Precision) -> Cluster | None:
    """The nodes of a plan under one switch, where all its GPU types are in the catalogue; else None."""
    replicas = [replica for stage in plan.stages for replica in stage.replicas]
    products = {replica.gpu_type: known_product(replica.gpu_type) for replica in replicas}
    used: dict[str, tuple[str, int]] = {}
    for replica in replicas:
        _, most = used.get(replica.node, ("", 0))
        used[replica.node] = (replica.gpu_type, max(most, 1 + max(replica.gpus)))
    kinds = [replace(gpu_type_of(kind, precision), name=name) for name, kind in products.items() if kind is not None]
    if len(kinds) < len(products):
        return None
    return Cluster(
        gpu_types=tuple(kinds),
        nodes=tuple(Node(id=node, gpu_type=kind, num_gpus=count) for node, (kind, count) in used.items()),
    )
