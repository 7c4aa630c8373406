"""Paths of measured jobs."""

from urllib.parse import quote

JOBS_PATH = "/v1/jobs"


def job_path(job_id: str) -> str:
    """Path of a job."""
    return f"{JOBS_PATH}/{quote(job_id, safe='')}"
