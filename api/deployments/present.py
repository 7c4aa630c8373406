"""Deployments as clients see them: from their folders, or as another service has told of them."""

import socket
from collections.abc import Mapping

from pydantic import ValidationError

from api.common.errors import StoreError
from api.common.times import time_of
from api.convert.parallel_plan import plan_to_document
from api.deployments.choice import Choice
from api.jobs.paths import job_path
from api.schemas.base import Document
from api.schemas.deployment_answer import (
    DeadRankDoc,
    DeploymentDoc,
    DeploymentLinksDoc,
    MovementDoc,
    ProjectionDoc,
    RunDoc,
    StallDoc,
)
from api.store.deployments import KnownDeployment
from executor.feedback.run import knows_a_cluster, plan_digest
from executor.launch.base import DeadRank, RunState
from executor.lifecycle import DeploymentStatus, Run
from executor.supervision import Supervisor

DEPLOYMENTS_PATH = "/v1/deployments"
_NO_CLUSTER = "nobody says how fast its GPUs are: give cluster, or plan for GPU types of the catalogue"


class DeploymentRequest(Document):
    """What is kept of the requests that made a deployment; `projections`: of its plans, by digest."""

    job_id: str
    backend: str
    projections: Mapping[str, ProjectionDoc] = {}

    def after(self, choice: Choice) -> "DeploymentRequest":
        """The same with the projection of another plan, or without one where that plan is deployed as it is."""
        digest = plan_digest(choice.plan)
        others = {key: value for key, value in self.projections.items() if key != digest}
        own = {} if choice.projection is None else {digest: choice.projection}
        return self.model_copy(update={"projections": others | own})


def deployment_document(
    id_: str, request: DeploymentRequest, supervisor: Supervisor, status: DeploymentStatus
) -> DeploymentDoc:
    """One whose folder is here."""
    state, present = status.state, supervisor.deployment()
    dead_run, dead = _dead(status)
    path = f"{DEPLOYMENTS_PATH}/{id_}"
    return DeploymentDoc(
        id=id_,
        job_id=request.job_id,
        phase=state.phase,
        detail=state.detail,
        run_state=status.run.state,
        run_detail=status.run.detail,
        unavailable_nodes=status.run.unavailable,
        plan=plan_to_document(present.plan),
        notation=present.plan.notation(),
        projection=request.projections.get(plan_digest(present.plan)),
        step=status.step,
        num_steps=present.training.num_steps,
        synthetic_data=not present.training.sources and present.launch.program is None,
        loss=status.loss,
        step_s=status.step_s,
        not_measured=None if knows_a_cluster(supervisor.root) else _NO_CLUSTER,
        runs=tuple(_run(run) for run in state.runs),
        dead=tuple(DeadRankDoc.model_validate(rank, from_attributes=True) for rank in dead),
        dead_run=dead_run,
        restart_cost_s=state.change_cost_s,
        change_costs_s=dict(state.costs_s),
        backend=request.backend,
        time_limit_s=present.launch.run_limit_s,
        host=socket.gethostname(),
        folder=str(supervisor.folder(state.current.number)),
        links=DeploymentLinksDoc(
            self=path, logs=f"{path}/logs", job_performance=f"{job_path(request.job_id)}/performance"
        ),
    )


def told_document(known: KnownDeployment) -> DeploymentDoc:
    """One that another service has told of; where that one is gone, nobody knows what its ranks do.

    Raises
    ------
    StoreError
        When a service of another version has told what this one cannot read.
    """
    try:
        document = DeploymentDoc.model_validate_json(known.told.document)
    except ValidationError as error:
        raise StoreError(
            f"what the service on {known.told.host} has told of {known.told.id} cannot be read here; let all services "
            f"on the database be of one version: {error}"
        ) from error
    if known.is_over or known.is_there:
        return document
    detail = (
        f"the service on {document.host} that looks after it is gone or silent: nobody knows what its ranks do. One "
        f"that is started with the same --deployments {'stops it' if known.wants_end else 'goes on with it'}"
    )
    return document.model_copy(update={"run_state": RunState.LOST, "run_detail": detail})


def _dead(status: DeploymentStatus) -> tuple[int | None, tuple[DeadRank, ...]]:
    """The ranks that broke the newest run, or else the run before that broke last, and which run that was."""
    fault = status.state.fault
    if status.run.dead:
        return status.state.current.number, status.run.dead
    return (fault.run, fault.dead) if fault is not None and fault.dead else (None, ())


def _run(run: Run) -> RunDoc:
    return RunDoc(
        number=run.number,
        plan=run.plan,
        cause=run.cause,
        started=time_of(run.started_at_s),
        from_step=run.from_step,
        cost_s=run.cost_s,
        stall=None if run.stall is None else StallDoc.model_validate(run.stall, from_attributes=True),
        change=run.change,
        movement=None if run.movement is None else MovementDoc.model_validate(run.movement, from_attributes=True),
        detail=run.detail,
    )
