"""The folder of a service's deployments: which there are, and what knows each of them.

<deployments>/claims.lock          held while somebody looks who has what, and starts or changes a deployment
<deployments>/<id>/request.json     job, backend, and the projections that gave its plans
<deployments>/<id>/...              what `executor.kept_deployment` says
"""

import errno
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from pydantic import ValidationError

from api.common.errors import NotFoundError, StorageFullError
from api.deployments.present import DeploymentRequest
from executor.launch.backends import launch_backend
from executor.lifecycle import DeploymentState, Run
from executor.locks import locked
from executor.supervision import Supervisor
from stowplan.errors import StowplanError

REQUEST = "request.json"
_STATE, _CLAIMS = "state.json", "claims.lock"
_ID = re.compile(r"deployment-[\w-]+")
_logger = logging.getLogger("stowplan.api.deployments.folder")


class DeploymentFolder:
    """Deployments in `root`. `measured` is told of runs whose cost has become known."""

    def __init__(self, root: Path, measured: Callable[[Run], None]) -> None:
        self.root = root
        self._measured = measured

    def claims(self, *, waits: bool = True) -> AbstractContextManager[bool]:
        """Let nobody else, of any service, start or change a deployment of the folder, or tell of one; see `locked`."""
        return locked(self.root / _CLAIMS, waits=waits)

    def ids(self) -> list[str]:
        """Deployments that were started; a folder that lacks its request is none of this service."""
        folders = sorted(path.parent for path in self.root.glob(f"deployment-*/{_STATE}"))
        return [folder.name for folder in folders if (folder / REQUEST).exists()]

    def has(self, deployment_id: str) -> bool:
        """Whether there is a folder of this id, which is the name of one, not a way to one."""
        return _ID.fullmatch(deployment_id) is not None and (self.root / deployment_id).exists()

    def request(self, deployment_id: str) -> DeploymentRequest:
        """What was asked for; NotFoundError where there is no such deployment."""
        missing = no_deployment(deployment_id)
        if not self.has(deployment_id):
            raise missing
        try:
            return DeploymentRequest.model_validate_json((self.root / deployment_id / REQUEST).read_text())
        except (OSError, ValidationError) as error:
            raise missing from error

    def supervisor(self, deployment_id: str) -> Supervisor:
        """What looks after a deployment; NotFoundError where there is none."""
        backend = launch_backend(self.request(deployment_id).backend)
        return Supervisor(self.root / deployment_id, backend, measured=self._measured)

    def known(self, job_id: str | None = None) -> list[tuple[str, DeploymentState]]:
        """Deployments of a job, or all, whose state can be read, newest first; no backend is asked."""
        known = []
        for id_ in self.ids():
            try:
                if job_id in (None, self.request(id_).job_id):
                    known.append((id_, self.supervisor(id_).state()))
            except (StowplanError, OSError) as error:
                _logger.warning("%s cannot be read: %s", id_, error)
        return sorted(known, key=lambda one: (-one[1].runs[0].started_at_s, one[0]))

    def over(self) -> Iterator[tuple[float, str]]:
        """Deployments that are over, each with the time since when (Unix seconds)."""
        for id_, state in self.known():
            if state.phase.final:
                try:
                    yield (self.root / id_ / _STATE).stat().st_mtime, id_
                except OSError as error:
                    _logger.warning("%s cannot be read: %s", id_, error)


def no_deployment(deployment_id: str) -> NotFoundError:
    """Say that there is none."""
    return NotFoundError(f"there is no deployment {deployment_id!r}")


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Say clearly when a folder cannot be written since its file system is full."""
    try:
        yield
    except (StowplanError, OSError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__
        if cause is None or cause.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        detail = f"{folder} cannot be written: {cause.strerror}; make room, or deploy to another folder"
        raise StorageFullError(detail) from error
