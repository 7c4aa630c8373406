"""From the document that asks for a deployment to the deployment."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

from api.convert import cluster_from_document, located
from api.job_model import transformer_from_document
from api.parallel_plan import plan_from_document
from api.schemas.deployment import DeploymentBody, PlanChoice, ProjectionDoc
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.projection import project
from executor.rank_table import refuse_asymmetry
from executor.training_job import Schedule
from models.parallel_plan import ParallelPlan
from models.performance.modelling import performance_model
from models.transformer import Precision, Transformer
from stowplan.errors import InputError
from topology.cluster import Cluster, Node
from topology.gpu_catalogue import gpu_type_of, known_product


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A parallel plan of a service: its job's model (None: a table), and the cluster that it was made for."""

    plan: ParallelPlan
    model: Transformer | None
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plan that can be deployed, what it trains, and what a projection to it costs.

    `cluster`: what is known of its nodes; None: nothing, so that measured times cannot be compared with predicted ones.
    """

    plan: ParallelPlan
    model: Transformer
    cluster: Cluster | None
    projection: ProjectionDoc | None


def choose(
    asked: PlanChoice, job_id: str, model: Transformer | None, planned: Callable[[str, str], PlannedJob]
) -> Choice:
    """Find the plan that is asked for, and project it where that is asked for and needed.

    Parameters
    ----------
    model
        What the job trains, where the request says it; None: what the plan of the service knows.
    planned
        Finds the plan of a job in a plan of the service.

    Raises
    ------
    InputError
        When nothing says what the job trains, or the plan is not symmetric and shall or can not be projected.
    """
    if asked.plan is not None:
        plan = plan_from_document(asked.plan)
        cluster = _catalogue_cluster(plan, model.precision if model else Precision.BF16)
        if asked.cluster is not None:
            with located("/cluster"):
                cluster = cluster_from_document(asked.cluster)
    else:
        found = planned(asked.plan_id or "", job_id)
        plan, model, cluster = found.plan, model or found.model, found.cluster
    if model is None:
        raise InputError(f"job {job_id} is a table in its plan: say in job what it trains")
    if plan.is_symmetric or not asked.project:
        refuse_asymmetry(plan)
        return Choice(plan=plan, model=model, cluster=cluster, projection=None)
    if cluster is None:
        raise InputError("a projection needs to know the GPUs of the plan; give cluster, or GPU types of the catalogue")
    result = project(plan, performance_model(model, cluster))
    cost = ProjectionDoc(asked=plan.notation(), before_s=result.before_s, after_s=result.after_s, loss=result.loss)
    return Choice(plan=result.plan, model=model, cluster=cluster, projection=cost)


def given_model(body: DeploymentBody) -> Transformer | None:
    """The model that the request itself brings."""
    return None if body.job is None else transformer_from_document(body.job)


def deployment_of(body: DeploymentBody, choice: Choice) -> Deployment:
    """Build the deployment.

    Raises
    ------
    InputError
        When the plan cannot be deployed.
    """
    training, launch = dict(body.training), dict(body.launch)
    launch["python"] = body.launch.python or (sys.executable if body.launch.backend == "local" else "python3")
    return Deployment(
        name=body.job_id,
        model=choice.model,
        plan=choice.plan,
        training=TrainingOptions(**{**training, "schedule": Schedule(**dict(body.training.schedule))}),
        launch=LaunchOptions(**launch),
    )


def _catalogue_cluster(plan: ParallelPlan, precision: Precision) -> Cluster | None:
    """The nodes of a plan under one switch, where all GPU types are in the catalogue."""
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
