"""Starting and ending the runs of a deployment."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager

from executor.deployment import Deployment
from executor.launch.base import LaunchBackend, LaunchError, PortError
from executor.lifecycle import Cause, Run
from executor.run_files import Preparation
from executor.run_folders import NUM_PORTS, RunFolders
from stowplan.errors import InputError


class RunLauncher:
    """Starts runs in `runs` with `backend`."""

    def __init__(self, runs: RunFolders, backend: LaunchBackend) -> None:
        self._runs = runs
        self._backend = backend

    @contextmanager
    def started(
        self,
        deployment: Deployment,
        cause: Cause,
        detail: str = "",
        preparation: Preparation | None = None,
        beside: int | None = None,
    ) -> Iterator[Run]:
        """Start a run, whose record is kept in the block; nothing is left of one that cannot be started or kept.

        Parameters
        ----------
        preparation
            How far its ranks come before they wait to be let go; None: they do not wait.
        beside
            Number of the run that may hand its state over to them then.

        Raises
        ------
        LaunchError
            When it cannot be written, started or kept.
        """
        run = Run(
            number=self._runs.next_number(),
            plan=deployment.plan.notation(),
            cause=cause,
            started_at_s=time.time(),
            from_step=self._runs.good_step(),
            detail=detail,
        )
        folder, kept = self._runs.folder(run.number), False
        try:
            self._start(deployment, run.number, preparation, beside)
            yield run
            kept = True
        except InputError as error:
            raise LaunchError(error.detail) from error
        except OSError as error:
            raise LaunchError(f"{folder}: {error.strerror}") from error
        finally:
            if not kept:
                self.end(run)
                shutil.rmtree(folder, ignore_errors=True)

    def _start(self, deployment: Deployment, number: int, preparation: Preparation | None, beside: int | None) -> None:
        """Write and start a run on the first port that is free."""
        for attempt in range(NUM_PORTS):
            self._runs.write(deployment, number, attempt, preparation, beside)
            try:
                self._backend.start(self._runs.folder(number))
                return
            except PortError:
                if attempt == NUM_PORTS - 1:
                    raise
                shutil.rmtree(self._runs.folder(number))

    def end(self, run: Run) -> str:
        """End what is left of a run; what went wrong in that, since what cannot be reached keeps nobody waiting."""
        try:
            self._backend.stop(self._runs.folder(run.number))
        except LaunchError as error:
            return f"run {run.number} could not be ended: {error.detail}"
        return ""

    def is_over(self, run: Run) -> bool:
        """Whether all of a run has ended by itself, or has been ended."""
        return self._backend.status(self._runs.folder(run.number)).state.final
