"""One agent per host, started by Slurm; `executor.launch.batch_script` says how."""

import json
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from executor.launch.base import LaunchBackend, LaunchError, RunState, RunStatus, last_lines, read_launch
from executor.records import write_text
from stowplan.child_environment import child_environment

_JOB_FILE = "slurm.json"
_COMMAND_S = 60.0
_POLL_S = 0.5
# States of a job that will not run any more; completing ones still write.
_OVER = (
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
)
# Of these, what Slurm did by itself: it tells the agents to stop, as a user would.
_NOT_ASKED_FOR = ("BOOT_FAIL", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
# How the reasons begin for which a job may wait for hosts that are down or drained, or only reserved.
_HOSTS_MISSING = ("ReqNodeNotAvail", "Nodes_required")
_REMEDY = "repair them, or move to a plan without them"
_UNKNOWN = "UNKNOWN"
_FORGOTTEN = "Slurm has forgotten the job"


class SlurmBackend(LaunchBackend):
    """Jobs of the Slurm cluster that this machine submits to."""

    name: ClassVar[str] = "slurm"
    hurried_pause_s: ClassVar[float] = _POLL_S

    def start(self, folder: Path) -> None:
        """Submit `job.sbatch`."""
        read_launch(folder)
        for report in (folder / "status").glob("*.json"):
            report.unlink()
        job_id = _command("sbatch", "--parsable", str(folder / "job.sbatch")).split(";")[0]
        try:
            _write_job(folder, job_id)
        except OSError as error:
            # Without its number nobody would find the job again.
            _command("scancel", job_id)
            raise LaunchError(f"{folder / _JOB_FILE}: {error.strerror}") from error

    def status(self, folder: Path) -> RunStatus:
        """State from the agents; where they have not spoken or were told to stop, from Slurm."""
        found = super().status(folder)
        if found.state in (RunState.SUCCEEDED, RunState.FAILED):
            return found
        state, reason = _end_or_state(folder)
        if found.state is RunState.STOPPED:
            return _believed(found, state, reason)
        if state == _UNKNOWN:
            not_judged = found.state is not RunState.RUNNING
            return replace(found, detail=f"Slurm does not answer: {reason}", is_unknown=not_judged)
        if state in _OVER:
            # The last words of the agents may have come between the two questions.
            found = super().status(folder)
            if found.state.final:
                return _believed(found, state, reason)
            ended = RunState.STOPPED if state == "CANCELLED" else RunState.FAILED
            said = " | ".join(last_lines(folder / "slurm.log", 5))
            return RunStatus(
                state=ended, detail=f"Slurm ended the job as {state}: {said}" if said else f"Slurm: {state}"
            )
        if found.state is RunState.STARTING and state == "PENDING":
            return _queued(folder, reason)
        return found

    def stop(self, folder: Path, grace_s: float = 10.0) -> None:
        """Cancel the job and wait until Slurm has let go of it."""
        if _end_or_state(folder)[0] in _OVER:
            return
        _command("scancel", _job(folder)["job_id"])
        deadline = time.monotonic() + 3 * grace_s
        while _end_or_state(folder)[0] not in _OVER and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def _queued(folder: Path, reason: str) -> RunStatus:
    """State of a job that waits; hosts of the plan that take no job are named, since it may wait for ever for them."""
    lost = _lost_hosts(folder) if reason.startswith(_HOSTS_MISSING) else {}
    detail = f"waits in Slurm's queue: {reason}"
    if lost:
        named = ", ".join(f"{host} is {why}" for host, why in lost.items())
        detail = f"waits in Slurm's queue for hosts that take no job: {named}; {_REMEDY}"
    return RunStatus(state=RunState.STARTING, detail=detail, is_queued=True, unavailable=tuple(lost))


def _lost_hosts(folder: Path) -> dict[str, str]:
    """Hosts of a run that are down, drained or failing, with the reason; empty where Slurm does not say."""
    hosts = ",".join(sorted({rank["node"] for rank in read_launch(folder)["ranks"]}))
    asked = ("--noheader", "--Node", f"--nodes={hosts}", "--states=down,drain,fail", "--format=%N|%T|%E")
    with suppress(LaunchError):
        lines = (line.split("|", 2) for line in _command("sinfo", *asked).splitlines())
        # Slurm marks with a sign behind the state that the node does not answer, reboots, sleeps.
        return {host: f"{state.rstrip('*~#!%$@^+-')} ({reason})" for host, state, reason in sorted(lines)}
    return {}


def _believed(found: RunStatus, state: str, reason: str) -> RunStatus:
    """What the agents said last, in the light of how Slurm ended the job: what it did by itself is a fault."""
    if found.state is not RunState.STOPPED or state == "CANCELLED" or reason == _FORGOTTEN:
        return found
    if state in _NOT_ASKED_FOR:
        detail = f"Slurm ended the job as {state}" + (f": {reason}" if reason not in ("", "None", state) else "")
        return RunStatus(state=RunState.FAILED, detail=detail)
    if state in _OVER:
        return found
    detail = f"Slurm does not answer: {reason}" if state == _UNKNOWN else f"ends; Slurm calls the job {state}"
    return RunStatus(state=RunState.RUNNING, detail=detail)


def _write_job(folder: Path, job_id: str, **end: str) -> None:
    """Note the job and, when it is known, its end: Slurm forgets both within minutes."""
    write_text(folder / _JOB_FILE, json.dumps({"job_id": job_id, **end}) + "\n")


def _job(folder: Path) -> dict[str, str]:
    """What was noted of the job; LaunchError when there is none."""
    try:
        known = json.loads((folder / _JOB_FILE).read_text())
        return {"job_id": str(known["job_id"])} | {key: str(known[key]) for key in ("end", "reason") if key in known}
    except (OSError, ValueError, KeyError) as error:
        raise LaunchError(f"{folder} was never submitted to Slurm ({error})") from error


def _end_or_state(folder: Path) -> tuple[str, str]:
    """State and reason of the job of a run; an end is remembered."""
    job = _job(folder)
    if "end" in job:
        return job["end"], job["reason"]
    state, reason = _job_state(job["job_id"])
    if state in _OVER and reason != _FORGOTTEN:
        # A full disk: the next question finds the same.
        with suppress(OSError):
            _write_job(folder, job["job_id"], end=state, reason=reason)
    return state, reason


def _job_state(job_id: str) -> tuple[str, str]:
    """State and reason of a job: one that Slurm has forgotten is over, and unknown is what it does not tell."""
    try:
        done = _run("scontrol", "--oneliner", "show", "job", job_id)
    except LaunchError as error:
        return _UNKNOWN, str(error)
    if done.returncode != 0:
        said = done.stderr.strip()
        return ("COMPLETED", _FORGOTTEN) if "Invalid job id" in said else (_UNKNOWN, said)
    fields = dict(part.split("=", 1) for part in done.stdout.split() if "=" in part)
    return fields.get("JobState", _UNKNOWN), fields.get("Reason", "")


def _command(*line: str) -> str:
    done = _run(*line)
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise LaunchError(f"{line[0]}: {said}")
    return done.stdout.strip()


def _run(*line: str) -> "subprocess.CompletedProcess[str]":
    if shutil.which(line[0]) is None:
        raise LaunchError(f"there is no {line[0]} here; deploy from a machine that submits to Slurm")
    try:
        # sbatch gives the job what it is given.
        environment = child_environment("SLURM_", "SBATCH_")
        return subprocess.run(  # noqa: S603
            line, env=environment, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{line[0]} did not answer within {_COMMAND_S:.0f} s") from error
