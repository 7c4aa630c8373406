"""Deployments of the service: each a folder, looked after by one thread, alive beyond the service itself.

<deployments>/<id>/request.json     job, plan source and projection, as answered
<deployments>/<id>/...              what `executor.supervision` keeps
"""

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from api.deploying import PlannedJob, choose, deployment_of, given_model
from api.errors import DeploymentConflictError, NotFoundError, NothingDeployedError
from api.job_feedback import JobFeedback
from api.parallel_plan import plan_to_document
from api.present import time_of
from api.schemas.base import Document
from api.schemas.deployment import (
    DeadRankDoc,
    DeploymentBody,
    DeploymentDoc,
    DeploymentLinksDoc,
    DeploymentList,
    ProjectionDoc,
    ReconfigureBody,
    RunDoc,
)
from executor.feedback.run import write_cluster
from executor.launch.backends import BACKENDS
from executor.records import write_text
from executor.supervision import DeploymentStatus, Run, Supervisor
from stowplan.errors import InputError, StowplanError

DEPLOYMENTS_PATH = "/v1/deployments"
_ADVANCE_S = 0.5
_REQUEST = "request.json"
_logger = logging.getLogger("stowplan.api.deployments")


class _Request(Document):
    """What is kept of the request that made a deployment."""

    job_id: str
    backend: str
    projection: ProjectionDoc | None


class Deployments:
    """All deployments under one folder; `planned(plan_id, job_id)` finds a plan of the service.

    `folder` None: the service deploys nothing. `feedback` gets what the ranks measure.
    """

    def __init__(self, folder: Path | None, planned: Callable[[str, str], PlannedJob], feedback: JobFeedback) -> None:
        self._folder = folder
        self._planned = planned
        self._feedback = feedback
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="deployments", daemon=True)
        if folder is not None:
            self._thread.start()

    def create(self, body: DeploymentBody) -> DeploymentDoc:
        """Start a deployment.

        Raises
        ------
        NothingDeployedError
            When this service deploys nothing.
        NotFoundError
            When there is no such plan, or no such job in it.
        DeploymentConflictError
            When the job is deployed already.
        InputError
            When the plan cannot be deployed.
        LaunchError
            When it cannot be started.
        """
        root = self._root()
        choice = choose(body, body.job_id, given_model(body), self._planned)
        deployment = deployment_of(body, choice)
        id_ = f"deployment-{uuid.uuid4().hex}"
        with self._lock:
            for known in self._all():
                if known.job_id == body.job_id and not known.phase.final:
                    raise DeploymentConflictError(
                        f"job {body.job_id} is deployed already as {known.id}; reconfigure or stop that one"
                    )
            request = _Request(job_id=body.job_id, backend=body.launch.backend, projection=choice.projection)
            (root / id_).mkdir(parents=True)
            write_text(root / id_ / _REQUEST, request.model_dump_json())
            if choice.cluster is not None:
                write_cluster(choice.cluster, root / id_)
            self._supervisor(id_).deploy(deployment)
        return self.deployment(id_)

    def deployment(self, deployment_id: str) -> DeploymentDoc:
        """Look at a deployment; NotFoundError when there is none."""
        supervisor, request = self._supervisor(deployment_id), self._request(deployment_id)
        return _document(deployment_id, request, supervisor, supervisor.status())

    def deployments(self) -> DeploymentList:
        """All deployments from the newest to the oldest."""
        return DeploymentList(deployments=tuple(self._all()))

    def reconfigure(self, deployment_id: str, body: ReconfigureBody) -> DeploymentDoc:
        """Begin to move a deployment to another plan."""
        request, supervisor = self._request(deployment_id), self._supervisor(deployment_id)
        with self._lock:
            present = supervisor.deployment()
            choice = choose(body, request.job_id, present.model, self._planned)
            supervisor.reconfigure(replace(present, plan=choice.plan))
            changed = request.model_copy(update={"projection": choice.projection})
            write_text(self._root() / deployment_id / _REQUEST, changed.model_dump_json())
        return self.deployment(deployment_id)

    def stop(self, deployment_id: str) -> DeploymentDoc:
        """Ask a deployment to write a checkpoint and end; one that is over stays as it is."""
        self._request(deployment_id)
        with self._lock:
            self._supervisor(deployment_id).stop()
        return self.deployment(deployment_id)

    def log(self, deployment_id: str, rank: int) -> Path:
        """File that a rank of the newest run writes to; NotFoundError when there is no such rank."""
        self._request(deployment_id)
        supervisor = self._supervisor(deployment_id)
        plan = supervisor.deployment().plan
        if not 0 <= rank < plan.num_gpus:
            raise NotFoundError(f"{deployment_id} has ranks 0 to {plan.num_gpus - 1}; there is no rank {rank}")
        return supervisor.folder(supervisor.state().current.number) / "logs" / f"rank-{rank}.log"

    def restart_cost_s(self, job_id: str) -> float | None:
        """The newest measured cost of a change or restart of a job; None where none was measured."""
        if self._folder is None:
            return None
        return next((known.restart_cost_s for known in self._all() if known.job_id == job_id), None)

    def close(self) -> None:
        """Look after nothing any more; what runs goes on, and the next service takes over."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _look_after(self) -> None:
        """Advance every deployment that is not over, until closed."""
        while not self._closing.wait(_ADVANCE_S):
            for id_ in self._ids():
                try:
                    self._supervisor(id_).advance()
                    self._feedback.read(self._request(id_).job_id, self._root() / id_)
                except (StowplanError, OSError, ValueError):
                    # One broken folder must not keep the others from being looked after.
                    _logger.exception("%s cannot be looked after", id_)

    def _all(self) -> Iterator[DeploymentDoc]:
        """Every deployment that can be read, newest first."""
        for id_ in self._ids():
            try:
                yield self.deployment(id_)
            except InputError as error:
                _logger.warning("%s cannot be read: %s", id_, error)

    def _ids(self) -> list[str]:
        """Deployments that were started, newest first."""
        states = [path.parent for path in self._root().glob("deployment-*/state.json")]
        return [folder.name for folder in sorted(states, key=lambda f: -(f / _REQUEST).stat().st_ctime_ns)]

    def _supervisor(self, deployment_id: str) -> Supervisor:
        return Supervisor(self._root() / deployment_id, BACKENDS[self._request(deployment_id).backend]())

    def _request(self, deployment_id: str) -> _Request:
        known = {path.name: path for path in self._root().glob("deployment-*")}
        try:
            return _Request.model_validate_json((known[deployment_id] / _REQUEST).read_text())
        except (KeyError, OSError, ValidationError) as error:
            raise NotFoundError(f"there is no deployment {deployment_id!r}") from error

    def _root(self) -> Path:
        if self._folder is None:
            raise NothingDeployedError("this service deploys nothing; start it with --deployments FOLDER")
        return self._folder


def _document(id_: str, request: _Request, supervisor: Supervisor, status: DeploymentStatus) -> DeploymentDoc:
    state, present = status.state, supervisor.deployment()
    costs = [run.cost_s for run in state.runs if run.cost_s is not None]
    path = f"{DEPLOYMENTS_PATH}/{id_}"
    return DeploymentDoc(
        id=id_,
        job_id=request.job_id,
        phase=state.phase,
        detail=state.detail,
        run_state=status.run.state,
        run_detail=status.run.detail,
        plan=plan_to_document(present.plan),
        notation=present.plan.notation(),
        projection=request.projection,
        step=status.step,
        num_steps=present.training.num_steps,
        loss=status.loss,
        runs=tuple(_run(run) for run in state.runs),
        dead=tuple(DeadRankDoc.model_validate(rank, from_attributes=True) for rank in status.run.dead),
        restart_cost_s=costs[-1] if costs else None,
        backend=request.backend,
        folder=str(supervisor.folder(state.current.number)),
        links=DeploymentLinksDoc(
            self=path, logs=f"{path}/logs", job_performance=f"/v1/jobs/{request.job_id}/performance"
        ),
    )


def _run(run: Run) -> RunDoc:
    return RunDoc(
        number=run.number,
        plan=run.plan,
        cause=run.cause,
        started=time_of(run.started_at_s),
        from_step=run.from_step,
        cost_s=run.cost_s,
        detail=run.detail,
    )
