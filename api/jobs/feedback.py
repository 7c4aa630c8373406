"""Measurements of the service's own deployments: read from their folders, without a way over the network."""

import threading
from pathlib import Path

from pydantic import TypeAdapter

from api.common.errors import status_of
from api.convert.reading import MalformedJsonError, read_document
from api.jobs.service import Jobs
from api.schemas.metrics import MetricsBody
from executor.feedback.poster import Answer, MetricsPoster
from executor.feedback.run import knows_a_cluster
from stowplan.errors import StowplanError

_BODY = TypeAdapter(MetricsBody)


class _Direct:
    """Hands batches to the jobs of this process; answers as HTTP would."""

    def __init__(self, jobs: Jobs, job_id: str, database: str) -> None:
        self.target = f"{database}#{job_id}"
        self._jobs = jobs
        self._job_id = job_id

    def post(self, body: str) -> Answer:
        """Take the JSON text of a batch."""
        try:
            receipt = self._jobs.post(self._job_id, read_document(_BODY, body.encode()))
        except (StowplanError, MalformedJsonError) as error:
            errors = [{"code": issue.code, "pointer": issue.pointer, "detail": issue.detail} for issue in error.issues]
            return Answer(status=int(status_of(error.code)), document={"detail": error.detail, "errors": errors})
        return Answer(status=200, document=receipt.model_dump())


class JobFeedback:
    """Feeds the measurements of deployments into `jobs`; `database`: what no other one is called that holds them."""

    def __init__(self, jobs: Jobs, database: str) -> None:
        self._jobs = jobs
        self._database = database
        self._lock = threading.Lock()
        self._posters: dict[Path, MetricsPoster] = {}

    def read(self, job_id: str, folder: Path) -> None:
        """Take in what is new in the folder of a deployment; a run whose cluster is not known says nothing.

        Raises
        ------
        InputError
            When the folder is broken.
        """
        if not knows_a_cluster(folder):
            return
        with self._lock:
            if folder not in self._posters:
                transport = _Direct(self._jobs, job_id, self._database)
                self._posters[folder] = MetricsPoster(folder, transport, skips_unknown=True)
            self._posters[folder].flush()
