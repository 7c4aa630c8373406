"""`python -P -m executor.feedback`: batches over HTTP."""

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path
from urllib.parse import quote

import httpx

from executor.feedback.poster import Answer, MetricsPoster, UnreachableError
from models.wording import counted
from stowplan import __version__
from stowplan.errors import InputError

_TIMEOUT_S = 30.0


class HttpTransport:
    """Posts to `POST /v1/jobs/{id}/metrics` of a service.

    The token is read anew for every batch, so that it can be changed while this runs.

    Raises
    ------
    InputError
        When `service` is no URL.
    """

    def __init__(self, service: str, job_id: str, token_file: Path | None = None) -> None:
        try:
            url = httpx.URL(service.rstrip("/"))
        except httpx.InvalidURL as error:
            raise InputError(f"{service!r} is no URL: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise InputError(f"{service!r} is no URL of a service; give one such as http://planner:8080")
        self.target = f"{url}/v1/jobs/{quote(job_id, safe='')}/metrics"
        self._token_file = token_file
        self._client = httpx.Client(timeout=_TIMEOUT_S, headers={"User-Agent": f"stowplan/{__version__}"})

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def post(self, body: str) -> Answer:
        """Send the JSON text of a batch.

        Raises
        ------
        UnreachableError
            When there is no answer.
        InputError
            When the token cannot be read.
        """
        headers = {"Content-Type": "application/json", **self._authorization()}
        try:
            answer = self._client.post(self.target, content=body.encode(), headers=headers)
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self.target} does not answer: {error or type(error).__name__}") from error
        try:
            document = answer.json()
        except ValueError:
            document = None
        pause = answer.headers.get("Retry-After", "")
        return Answer(
            status=answer.status_code,
            document=document,
            retry_after_s=float(pause) if pause.isdecimal() else None,
        )

    def _authorization(self) -> dict[str, str]:
        if self._token_file is None:
            return {}
        try:
            return {"Authorization": f"Bearer {self._token_file.read_text(encoding='ascii').strip()}"}
        except (OSError, ValueError) as error:
            raise InputError(f"the token cannot be read from {self._token_file}: {error}") from error


def main(arguments: list[str]) -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -P -m {__package__}", description=main.__doc__)
    parser.description = "Send what the ranks of a run or deployment measured to the service that plans the job."
    parser.add_argument("folder", type=Path, help="of a run or of a deployment")
    parser.add_argument("--service", required=True, help="such as http://planner:8080")
    parser.add_argument("--job", required=True, help="id of the job in snapshots")
    parser.add_argument("--token-file", type=Path, help="holds the token, where the service asks for one")
    parser.add_argument("--once", action="store_true", help="send what there is and end")
    given = parser.parse_args(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        transport = HttpTransport(given.service, given.job, given.token_file)
        poster = MetricsPoster(given.folder, transport)
        done = poster.flush() if given.once else poster.run(stop)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    logging.getLogger("stowplan.executor.feedback").info(
        "%d records accepted, %d known before, %d refused", done.accepted, done.duplicates, done.refused
    )
    if done.kept is not None:
        sys.stderr.write(f"some records wait in {given.folder}; {done.kept}\n")
        return 1
    if done.refused:
        sys.stderr.write(f"refused: {counted(done.refused, 'record')}; {poster.refused} says why\n")
        return 3
    return 0
