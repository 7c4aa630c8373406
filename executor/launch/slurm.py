"""One agent per host, started by Slurm in the host order of the plan.

`job.sbatch` in the folder asks for exactly the hosts of the plan; `srun -m arbitrary` with SLURM_HOSTFILE keeps their
order, whatever Slurm's own would be. DeepSpeed's runner for Slurm ignores the order and sets no ranks.
"""

import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from executor.launch.agent import GPUS_GIVEN
from executor.launch.base import LaunchBackend, LaunchError, RunState, RunStatus, last_lines, read_launch

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
_UNKNOWN = "UNKNOWN"


class SlurmBackend(LaunchBackend):
    """Jobs of the Slurm cluster that this machine submits to."""

    name: ClassVar[str] = "slurm"

    def start(self, folder: Path) -> None:
        """Submit `job.sbatch`."""
        read_launch(folder)
        for report in (folder / "status").glob("*.json"):
            report.unlink()
        job_id = _command("sbatch", "--parsable", str(folder / "job.sbatch")).split(";")[0]
        (folder / "slurm.json").write_text(json.dumps({"job_id": job_id}))

    def status(self, folder: Path) -> RunStatus:
        """State from the agents; where they have not spoken, from Slurm."""
        found = super().status(folder)
        if found.state not in (RunState.STARTING, RunState.LOST, RunState.RUNNING):
            return found
        state, reason = _job_state(_job_id(folder))
        if state == _UNKNOWN:
            return replace(found, detail=f"Slurm does not answer: {reason}")
        if state in _OVER:
            # The last words of the agents may have come between the two questions.
            found = super().status(folder)
            if found.state.final:
                return found
            ended = RunState.STOPPED if state == "CANCELLED" else RunState.FAILED
            said = " | ".join(last_lines(folder / "slurm.log", 5))
            return RunStatus(
                state=ended, detail=f"Slurm ended the job as {state}: {said}" if said else f"Slurm: {state}"
            )
        if found.state is RunState.STARTING and state == "PENDING":
            return RunStatus(state=RunState.STARTING, detail=f"waits in Slurm's queue: {reason}")
        return found

    def stop(self, folder: Path, grace_s: float = 10.0) -> None:
        """Cancel the job and wait until Slurm has let go of it."""
        job_id = _job_id(folder)
        if _job_state(job_id)[0] in _OVER:
            return
        _command("scancel", job_id)
        deadline = time.monotonic() + 3 * grace_s
        while _job_state(job_id)[0] not in _OVER and time.monotonic() < deadline:
            time.sleep(_POLL_S)


def batch_script(folder: Path, launch: Mapping[str, Any], name: str, gpus_per_host: int, time_limit_s: float) -> str:
    """Script for sbatch; with `gpus_per_host` 0 no generic resources are asked for."""
    hosts = list(dict.fromkeys(rank["node"] for rank in launch["ranks"]))
    minutes = max(1, round(time_limit_s / 60))
    gres = [f"#SBATCH --gres=gpu:{gpus_per_host}"] if gpus_per_host else []
    # The name of the node is known on the node only.
    agent = ["bash", "-c", 'exec "$@" "$SLURMD_NODENAME"', "agent"]
    agent += [launch["python"], "-P", "-m", "executor.launch.agent", str(folder)]
    return "\n".join(
        [
            "#!/bin/bash",
            f"#SBATCH --job-name={name}",
            f"#SBATCH --nodes={len(hosts)}",
            f"#SBATCH --ntasks={len(hosts)}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --nodelist={','.join(hosts)}",
            *gres,
            f"#SBATCH --time={minutes}",
            f"#SBATCH --output={shlex.quote(str(folder / 'slurm.log'))}",
            "#SBATCH --open-mode=append",
            *([f"export {GPUS_GIVEN}=1"] if gpus_per_host else []),
            "# One line per agent: srun keeps this order.",
            f"export SLURM_HOSTFILE={shlex.quote(str(folder / 'slurm_hosts'))}",
            f"exec srun --distribution=arbitrary --ntasks={len(hosts)} --kill-on-bad-exit=1 \\",
            f"    {shlex.join(agent)}",
            "",
        ]
    )


def _job_id(folder: Path) -> str:
    try:
        return str(json.loads((folder / "slurm.json").read_text())["job_id"])
    except (OSError, ValueError, KeyError) as error:
        raise LaunchError(f"{folder} was never submitted to Slurm ({error})") from error


def _job_state(job_id: str) -> tuple[str, str]:
    """State and reason of a job: one that Slurm has forgotten is over, and unknown is what it does not tell."""
    try:
        done = _run("scontrol", "--oneliner", "show", "job", job_id)
    except LaunchError as error:
        return _UNKNOWN, str(error)
    if done.returncode != 0:
        said = done.stderr.strip()
        return ("COMPLETED", "") if "Invalid job id" in said else (_UNKNOWN, said)
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
        return subprocess.run(line, capture_output=True, text=True, timeout=_COMMAND_S, check=False)  # noqa: S603
    except subprocess.TimeoutExpired as error:
        raise LaunchError(f"{line[0]} did not answer within {_COMMAND_S:.0f} s") from error
