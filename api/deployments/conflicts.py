"""Who has what: no job is deployed twice, and no GPU is given to two deployments, of this service or another one."""

import logging
from collections.abc import Iterable, Sequence

from api.common.errors import DeploymentConflictError, NotFoundError
from api.deployments.folder import DeploymentFolder
from api.deployments.pointers import issue_in_request
from api.deployments.present import DeploymentRequest
from api.deployments.sharing import DeploymentSharing
from api.schemas.deployment import PlanChoice
from api.store.deployments import KnownDeployment
from executor.deployment import Deployment
from executor.gpu_holders import Holder, holders_of, taken_gpus
from executor.host_gpus import gpus_by_host
from stowplan.errors import InputError

_logger = logging.getLogger("stowplan.api.deployments.conflicts")


def refuse_conflicts(
    own: DeploymentFolder, asked: PlanChoice, job_id: str, deployment: Deployment, besides: str = ""
) -> None:
    """Raise DeploymentConflictError when another deployment of the folder has the job or a GPU of its plan, and is not
    over."""
    holders: list[Holder] = []
    for id_ in own.ids():
        if id_ == besides:
            continue
        try:
            other, supervisor = own.request(id_), own.supervisor(id_)
            if supervisor.state().phase.final:
                continue
            if other.job_id == job_id:
                detail = f"job {job_id} is deployed already as {id_}; reconfigure or stop that one"
                raise DeploymentConflictError(detail)
            holders += holders_of(who(other, id_), supervisor)
        except (InputError, NotFoundError) as error:
            _logger.warning("%s cannot be read: %s", id_, error)
    _refuse_taken(asked, deployment, holders)


def claim_elsewhere(
    sharing: DeploymentSharing | None,
    asked: PlanChoice,
    id_: str,
    job_id: str,
    deployment: Deployment,
    present: Iterable[Holder] = (),
) -> None:
    """Have a deployment before it starts or changes; of others that share the database none may have its job or GPUs.

    `present`: what it has already, and keeps until the change is over.
    """
    if sharing is None:
        return

    def refuse(others: Iterable[KnownDeployment]) -> None:
        holders: list[Holder] = []
        for other in others:
            told = other.told
            if told.job_id == job_id:
                beside = "" if other.is_there else ", whose service is gone"
                detail = f"job {job_id} is deployed already as {told.id} on {told.host}{beside}; stop that one first"
                raise DeploymentConflictError(detail)
            holders += sharing.gpus_elsewhere(other)
        _refuse_taken(asked, deployment, holders)

    wanted = Holder(gpus=gpus_by_host(deployment), what=f"is used by job {job_id!r} ({id_})")
    sharing.claim(id_, job_id, (*present, wanted), refuse)


def who(request: DeploymentRequest, id_: str) -> str:
    """The holder of GPUs, as it is called in what is said to others."""
    return f"job {request.job_id!r} ({id_})"


def _refuse_taken(asked: PlanChoice, deployment: Deployment, holders: Sequence[Holder]) -> None:
    taken = [issue_in_request(asked, issue) for issue in taken_gpus(deployment, holders)]
    if taken:
        raise DeploymentConflictError(f"{taken[0].detail}; stop or reconfigure that deployment first", taken)
