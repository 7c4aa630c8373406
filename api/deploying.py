"""From the document that asks for a deployment to the deployment."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

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
from topology.gpu_catalogue import find_product, gpu_type_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A parallel plan of a service: its job's model (None: a table), and the cluster that it was made for."""

    plan: ParallelPlan
    model: Transformer | None
    cluster: Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A plan that can be deployed, what it trains, and what a projection to it costs."""

    plan: ParallelPlan
    model: Transformer
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
    cluster: Cluster | None = None
    if asked.plan is not None:
        plan = plan_from_document(asked.plan)
    else:
        found = planned(asked.plan_id or "", job_id)
        plan, model, cluster = found.plan, model or found.model, found.cluster
    if model is None:
        raise InputError(f"job {job_id} is a table in its plan: say in job what it trains")
    if plan.is_symmetric or not asked.project:
        refuse_asymmetry(plan)
        return Choice(plan=plan, model=model, projection=None)
    result = project(plan, performance_model(model, cluster or _catalogue_cluster(plan, model.precision)))
    cost = ProjectionDoc(asked=plan.notation(), before_s=result.before_s, after_s=result.after_s, loss=result.loss)
    return Choice(plan=result.plan, model=model, projection=cost)


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


def _catalogue_cluster(plan: ParallelPlan, precision: Precision) -> Cluster:
    """The nodes of a plan under one switch, with GPU types of the catalogue."""
    replicas = [replica for stage in plan.stages for replica in stage.replicas]
    kinds = {replica.gpu_type: gpu_type_of(find_product(replica.gpu_type), precision) for replica in replicas}
    used: dict[str, tuple[str, int]] = {}
    for replica in replicas:
        _, most = used.get(replica.node, ("", 0))
        used[replica.node] = (replica.gpu_type, max(most, 1 + max(replica.gpus)))
    return Cluster(
        gpu_types=tuple(replace(kind, name=name) for name, kind in kinds.items()),
        nodes=tuple(Node(id=node, gpu_type=kind, num_gpus=count) for node, (kind, count) in used.items()),
    )
