"""What is kept of one deployment on disk, for whoever looks after it and whoever reads.

<root>/lock               held by whoever changes something
<root>/lease              held by whoever looks after the deployment
<root>/state.json         `executor.lifecycle`: phase, runs, and what every change of plan cost
<root>/runs/0001/         a run as `executor.bundle` writes it, with deployment.json; a new plan or a restart makes
                          the next one
<root>/checkpoints/       shared by all runs
"""

import fcntl
import time
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from executor.deployment import Deployment
from executor.lifecycle import DeploymentState, Phase, Run
from executor.locks import locked
from executor.records import read_record, write_record
from executor.run_files import STOP_FILE
from executor.run_folders import RunFolders

Method = TypeVar("Method", bound=Callable[..., Any])

_STATE = "state.json"
_LOCK = "lock"
_LEASE = "lease"


def alone(method: Method) -> Method:
    """Let one process or thread at a time change a deployment."""

    @wraps(method)
    def alone(self: "KeptDeployment", *args: Any, **kwargs: Any) -> Any:
        with locked(self.root / _LOCK):
            return method(self, *args, **kwargs)

    return cast("Method", alone)


class KeptDeployment:
    """A deployment in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._runs = RunFolders(root)

    @property
    def exists(self) -> bool:
        """Whether anything was deployed in the folder."""
        return (self.root / _STATE).exists()

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self._runs.checkpoints

    def folder(self, number: int) -> Path:
        """Folder of a run."""
        return self._runs.folder(number)

    def state(self) -> DeploymentState:
        """What is known on disk.

        Raises
        ------
        InputError
            When nothing was deployed in the folder.
        """
        return read_record(DeploymentState, self.root / _STATE, "deployment")

    def deployment(self, number: int | None = None) -> Deployment:
        """What a run deploys; None: the newest one."""
        return self._runs.deployment(self.state().current.number if number is None else number)

    def steps_done(self) -> int:
        """Steps of the training that are done and, where nothing runs, not lost."""
        state = self.state()
        if state.phase.final:
            return self._runs.good_step()
        trains = state.runs[-2] if state.phase is Phase.RECONFIGURING else state.current
        newest = self._runs.last_step(trains.number)
        return trains.from_step if newest is None else newest.step

    def training_run(self) -> int:
        """Number of the newest run that has done a step; before the first step that of the newest run."""
        runs = self.state().runs
        trained = (run.number for run in reversed(runs) if self._runs.first_step(run.number) is not None)
        return next(trained, runs[-1].number)

    def lease(self) -> IO[str] | None:
        """Become the one who looks after the deployment, until the file is closed; None where another is."""
        self.root.mkdir(parents=True, exist_ok=True)
        lease = (self.root / _LEASE).open("w")
        try:
            fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lease.close()
            return None
        return lease

    def _asked(self, run: Run) -> Path:
        """File that asks a run to stop."""
        return self.folder(run.number) / STOP_FILE

    def _move(self, state: DeploymentState, phase: Phase, detail: str = "") -> DeploymentState:
        since = state.phase_since_s if phase is state.phase else time.time()
        moved = replace(state, phase=phase, detail=detail, phase_since_s=since)
        self._save(moved)
        return moved

    def _noted(self, state: DeploymentState, detail: str) -> DeploymentState:
        """Say what is waited for, once."""
        return state if state.detail == detail else self._move(state, state.phase, detail)

    def _save(self, state: DeploymentState) -> None:
        write_record(state, self.root / _STATE)
