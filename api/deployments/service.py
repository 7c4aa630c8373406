"""Deployments of the service: each a folder, looked after by one thread, alive beyond the service itself."""

import logging
import math
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import IO

from api.common.errors import (
    DeploymentElsewhereError,
    NotFoundError,
    NothingDeployedError,
)
from api.common.settings import Settings
from api.deployments.allowed import refuse_forbidden, refuse_forbidden_files, refuse_foreign_hosts
from api.deployments.choice import (
    CLUSTERS,
    PlannedJob,
    choose,
    deployment_of,
    engine_of,
    given_model,
    keep_cluster,
    schedule_of,
    taken_back_on_error,
)
from api.deployments.conflicts import claim_elsewhere, refuse_conflicts, who
from api.deployments.folder import REQUEST, DeploymentFolder, no_deployment, room_in
from api.deployments.present import DeploymentRequest, deployment_document, told_document
from api.deployments.sharing import DeploymentSharing
from api.jobs.feedback import JobFeedback
from api.schemas.deployment import DeploymentBody, ReconfigureBody
from api.schemas.deployment_answer import DeploymentDoc, DeploymentList
from api.store.deployments import KnownDeployment
from api.store.purge import DAY_S
from executor.feedback.run import given_cluster
from executor.gpu_holders import Holder, holders_of
from executor.launch.agent import log_file
from executor.launch.backends import launch_backend
from executor.lifecycle import Phase, Run
from executor.records import write_text
from executor.supervision import Supervisor
from stowplan.errors import InputError, StowplanError

_ADVANCE_S = 0.5
_logger = logging.getLogger("stowplan.api.deployments.service")


class Deployments:
    """All deployments under the folder of the settings; `planned(plan_id, job_id)` finds a plan of the service.

    Without a folder the service deploys nothing. `feedback` gets what the ranks measure, `measured` the runs whose cost
    has become known. `sharing`: where other services use its database as well.
    """

    def __init__(
        self,
        settings: Settings,
        planned: Callable[[str, str], PlannedJob],
        feedback: JobFeedback,
        measured: Callable[[Run], None],
        sharing: DeploymentSharing | None = None,
    ) -> None:
        self._settings = settings
        root = settings.deployments_folder
        self._folder = None if root is None else DeploymentFolder(root, measured)
        self._keep_s = settings.keep_deployments_days * DAY_S
        self._planned = planned
        self._feedback = feedback
        self._sharing = sharing
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._leases: dict[str, IO[str]] = {}
        # What others want to be stopped.
        self._wanted: frozenset[str] = frozenset()
        self._thread = threading.Thread(target=self._look_after, name="deployments", daemon=True)
        if self._folder is not None:
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
            When the job is deployed already, or another deployment has GPUs of the plan.
        InputError
            When the plan cannot be deployed, or the operator does not allow the launch.
        LaunchError
            When it cannot be started.
        StorageFullError
            When there is no room for it.
        """
        own = self._own()
        refuse_forbidden_files(body, self._settings)
        choice = choose(
            body, body.job_id, given_model(body), self._planned, engine=engine_of(body), schedule=schedule_of(body)
        )
        deployment = deployment_of(body, choice, self._settings.secrets_folder)
        refuse_forbidden(body, deployment, self._settings)
        id_ = f"deployment-{uuid.uuid4().hex}"
        folder = own.root / id_
        with self._lock, room_in(own.root), own.claims():
            refuse_conflicts(own, body, body.job_id, deployment)
            request = DeploymentRequest(job_id=body.job_id, backend=body.launch.backend).after(choice)
            try:
                claim_elsewhere(self._sharing, body, id_, body.job_id, deployment)
                folder.mkdir(parents=True)
                write_text(folder / REQUEST, request.model_dump_json())
                keep_cluster(choice, folder)
                supervisor = own.supervisor(id_)
                supervisor.deploy(deployment)
            except BaseException:
                # Whatever it is: a claim that is left would keep all services from the job and its GPUs.
                shutil.rmtree(folder, ignore_errors=True)
                self._forget(id_)
                raise
            # Whoever is answered may ask another service next.
            self._tell(own, id_, supervisor)
        return self.deployment(id_)

    def deployment(self, deployment_id: str) -> DeploymentDoc:
        """Look at a deployment, here or as another service has told of it; NotFoundError when there is none."""
        if (told := self._elsewhere(deployment_id)) is not None:
            return told_document(told)
        own = self._with(deployment_id)
        supervisor, request = own.supervisor(deployment_id), own.request(deployment_id)
        return deployment_document(deployment_id, request, supervisor, supervisor.status())

    def deployments(self) -> DeploymentList:
        """All deployments from the newest to the oldest, those of other services too."""
        if self._sharing is None:
            return DeploymentList(deployments=tuple(self._all(self._own())))
        here = () if self._folder is None else self._all(self._folder)
        found = sorted((*here, *self._sharing.elsewhere()), key=lambda one: (one.runs[0].started, one.id), reverse=True)
        return DeploymentList(deployments=tuple(found))

    def reconfigure(self, deployment_id: str, body: ReconfigureBody) -> DeploymentDoc:
        """Begin to move a deployment to another plan; DeploymentElsewhereError when its folder is not here."""
        if (told := self._elsewhere(deployment_id)) is not None:
            raise _elsewhere(told, "move it to another plan")
        own = self._with(deployment_id)
        request, supervisor = own.request(deployment_id), own.supervisor(deployment_id)
        folder = supervisor.root
        with self._lock, room_in(folder), own.claims():
            present = supervisor.deployment()
            choice = choose(
                *(body, request.job_id, present.model, self._planned, given_cluster(folder), set(present.plan.gpus)),
                engine=present.engine,
                schedule=present.training.schedule,
            )
            following = present.changed_to(choice.plan)
            refuse_foreign_hosts(body, following, self._settings)
            refuse_conflicts(own, body, request.job_id, following, besides=deployment_id)
            present_gpus = holders_of(who(request, deployment_id), supervisor)
            claim_elsewhere(self._sharing, body, deployment_id, request.job_id, following, present_gpus)
            with taken_back_on_error(folder, REQUEST, CLUSTERS):
                keep_cluster(choice, folder)
                write_text(folder / REQUEST, request.after(choice).model_dump_json())
                # Last: what is under way from here on is no error any more.
                supervisor.reconfigure(following)
        return self.deployment(deployment_id)

    def stop(self, deployment_id: str) -> DeploymentDoc:
        """Ask a deployment to write a checkpoint and end, here or where it is; one that is over stays as it is."""
        if self._sharing is not None and self._elsewhere(deployment_id) is not None:
            self._sharing.ask_stop(deployment_id)
            return self.deployment(deployment_id)
        supervisor = self._with(deployment_id).supervisor(deployment_id)
        with self._lock, room_in(supervisor.root):
            supervisor.stop()
        return self.deployment(deployment_id)

    def log(self, deployment_id: str, rank: int, run: int | None = None) -> Path:
        """File that a rank of a run writes to; `run` None: the newest that trains or has trained.

        Raises
        ------
        NotFoundError
            When there is no such run or rank.
        DeploymentElsewhereError
            When its folder cannot be read here.
        """
        supervisor = self._readable(deployment_id)
        number = supervisor.training_run() if run is None else run
        try:
            plan = supervisor.deployment(number).plan
        except InputError as error:
            raise NotFoundError(f"{deployment_id} has no run {number}") from error
        if not 0 <= rank < plan.num_gpus:
            raise NotFoundError(
                f"run {number} of {deployment_id} has ranks 0 to {plan.num_gpus - 1}; there is no rank {rank}"
            )
        return log_file(supervisor.folder(number), rank)

    def is_log_complete(self, deployment_id: str, log: Path) -> bool:
        """Whether nothing will be written to what `log` gave: the deployment is over, or a later run trains."""
        supervisor = self._readable(deployment_id)
        earlier = (supervisor.folder(number) for number in range(1, supervisor.training_run()))
        return supervisor.state().phase.final or any(log.is_relative_to(folder) for folder in earlier)

    def restart_cost_s(self, job_id: str) -> float | None:
        """The newest measured cost of a change of plan of a job; None where none was measured."""
        if self._sharing is not None:
            return self._sharing.restart_cost_s(job_id)
        if self._folder is None:
            return None
        costs = (state.change_cost_s for _, state in self._folder.known(job_id))
        return next((cost_s for cost_s in costs if cost_s is not None), None)

    def look(self, wanted: Collection[str]) -> None:
        """Stop what others have asked the service to stop that looks after it; returns at once."""
        self._wanted = frozenset(wanted)

    def purge(self) -> None:
        """Remove folders of deployments that have been over for as long as they are kept, and of more than are kept the
        ones that have been over for longest."""
        if self._folder is None or not (self._keep_s or self._settings.keep_deployments):
            return
        now_s, most = time.time(), self._settings.keep_deployments or math.inf
        for number, (over_since_s, id_) in enumerate(sorted(self._folder.over(), reverse=True)):
            if number >= most or (self._keep_s and now_s - over_since_s > self._keep_s):
                self._remove(self._folder.root / id_, (now_s - over_since_s) / DAY_S)

    def close(self) -> None:
        """Look after nothing any more; what runs goes on, and the next service takes over."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _remove(self, folder: Path, num_days: float) -> None:
        try:
            _logger.info("%s has been over for %.0f days and is removed", folder, num_days)
            shutil.rmtree(folder)
        except OSError as error:
            _logger.warning("%s cannot be removed: %s", folder, error)
        else:
            self._forget(folder.name)

    def _look_after(self) -> None:
        """Advance every deployment that is not over, until closed."""
        own, rest_s, is_first = self._own(), _ADVANCE_S, True
        while not self._closing.wait(rest_s):
            rest_s = _ADVANCE_S
            try:
                for id_ in own.ids():
                    rest_s = min(rest_s, self._advance(own, id_))
                if self._sharing is not None:
                    self._sharing.forget_left()
                    if is_first:
                        self._sharing.forget_all_but(own.ids)
                is_first = False
            except Exception:
                # Nobody else looks after them: the next round may find what is wrong now in order.
                _logger.exception("the deployments cannot be looked after")
        for lease in self._leases.values():
            lease.close()

    def _advance(self, own: DeploymentFolder, id_: str) -> float:
        """Do what is due for one deployment, and take in what its ranks have measured; seconds until the next look."""
        try:
            supervisor, request = own.supervisor(id_), own.request(id_)
            state = supervisor.advance()
            if id_ in self._wanted and not (state.phase.final or state.phase is Phase.STOPPING):
                supervisor.stop()
            self._keep_lease(id_, supervisor, state.phase)
            with own.claims(waits=False) as is_free:
                # Who changes something now has said so, which must stand until it can be seen here.
                is_ours = is_free and self._tell(own, id_, supervisor)
            if is_ours:
                self._feedback.read(request.job_id, supervisor.root)
            return supervisor.rest_s(state)
        except Exception:
            # One broken folder must not keep the others from being looked after.
            _logger.exception("%s cannot be looked after", id_)
            return _ADVANCE_S

    def _tell(self, own: DeploymentFolder, id_: str, supervisor: Supervisor) -> bool:
        """Tell other services of a deployment as it is now, under `claims`; whether none of them looks after it too."""
        if self._sharing is None:
            return True
        request, state = own.request(id_), supervisor.state()

        def look() -> tuple[DeploymentDoc, Sequence[Holder]]:
            document = deployment_document(id_, request, supervisor, supervisor.status())
            return document, () if state.phase.final else tuple(holders_of(who(request, id_), supervisor))

        return self._sharing.tell(id_, state, look)

    def _forget(self, id_: str) -> None:
        if self._sharing is not None:
            self._sharing.forget(id_)

    def _keep_lease(self, id_: str, supervisor: Supervisor, phase: Phase) -> None:
        """Hold the lease of a deployment until it is over, so that no command looks after it, too."""
        if phase.final and id_ in self._leases:
            self._leases.pop(id_).close()
        elif not phase.final and id_ not in self._leases and (lease := supervisor.lease()) is not None:
            self._leases[id_] = lease

    def _all(self, own: DeploymentFolder) -> Iterator[DeploymentDoc]:
        """Every deployment of the folder that can be read, newest first."""
        for id_, _ in own.known():
            try:
                yield self.deployment(id_)
            except (StowplanError, OSError) as error:
                _logger.warning("%s cannot be read: %s", id_, error)

    def _elsewhere(self, deployment_id: str) -> KnownDeployment | None:
        """What another service has told of a deployment whose folder is not here."""
        is_here = self._folder is not None and self._folder.has(deployment_id)
        return None if is_here or self._sharing is None else self._sharing.known(deployment_id)

    def _readable(self, deployment_id: str) -> Supervisor:
        """What knows the folder of a deployment, also in that of another service on this machine."""
        told = self._elsewhere(deployment_id)
        if told is None or self._sharing is None:
            return self._with(deployment_id).supervisor(deployment_id)
        document = told_document(told)
        # That of its newest run.
        root = Path(document.folder).parents[1]
        if not self._sharing.is_on_this_host(told) or not os.access(root / REQUEST, os.R_OK):
            raise _elsewhere(told, "read what its ranks print")
        return Supervisor(root, launch_backend(document.backend))

    def _with(self, deployment_id: str) -> DeploymentFolder:
        """The folder, where there may be such a deployment."""
        if self._folder is None and self._sharing is not None:
            raise no_deployment(deployment_id)
        return self._own()

    def _own(self) -> DeploymentFolder:
        if self._folder is None:
            raise NothingDeployedError("this service deploys nothing; start it with --deployments FOLDER")
        return self._folder


def _elsewhere(known: KnownDeployment, what: str) -> DeploymentElsewhereError:
    told = known.told
    return DeploymentElsewhereError(f"{told.id} is on {told.host}: ask the service there with its folder to {what}")
