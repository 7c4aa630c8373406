"""A run as a folder: everything that starts it, readable and usable without us.

job.json         what every rank of our trainer reads (`executor.training_job`)
launch.json      ranks, command, environment: what the agents read (`executor.launch.agent`)
ds_config.json   the DeepSpeed configuration that follows from job.json, where that is the engine
plan.json        the plan, and every rank with its coordinates: what a program of the user's own reads
ranks.csv        rank, host, GPU, local rank, pipe, data and tensor coordinate
hostfile         hosts in the order of their first rank, with slots, as DeepSpeed and MPI read them
slurm_hosts      the same, one line per host, for SLURM_HOSTFILE
launch-local.sh, launch-ssh.sh, job.sbatch, jobset.yaml
README.txt       how to start it with each

Where it runs, logs/, status/HOST.json and agent-HOST.log are added; names of hosts are written there as in a URL.
"""

import csv
import io
import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from executor.deepspeed_config import ds_config
from executor.deployment import Deployment, LaunchOptions
from executor.launch.batch_script import batch_script
from executor.launch.kubernetes import jobset_manifest
from executor.rank_table import Rank, hostfile, hosts_of
from executor.records import write_text
from executor.run_files import (
    BESIDE_VARIABLE,
    GO_FILE,
    PLAN_FILE,
    PREPARE_VARIABLE,
    STOP_FILE,
    WAIT_VARIABLE,
    Preparation,
)
from executor.training_job import SYNTHETIC_DATA, write_training_job
from executor.training_options import EngineName
from models.wording import counted
from stowplan.errors import InputError

_README = """{title}

{notation}
{data}{ranks} on {hosts}; rank 0 is on {first}, the others meet it there on port {port}.

This folder must lie under the same path on every host: {folder}
The hosts need Python with the executor installed: pip install -e '.[executor]' in a checkout

This machine       sh launch-local.sh
Hosts by SSH       sh launch-ssh.sh          (keys set up; no passwords are asked for)
Slurm              sbatch job.sbatch
Kubernetes         kubectl apply -f jobset.yaml   (JobSet controller; see the comments in the file)

Started again, it goes on from the last good checkpoint in {checkpoints}.
Slurm and Kubernetes end the run after {hours:g} h (launch.time_limit_s of the request).

ranks.csv says which rank sits where. The groups of the plan come out right only with these ranks: every process must
get RANK and LOCAL_RANK as listed there. Output goes to logs/rank-N.log, the end of every rank to status/HOST.json.
"""


def write_bundle(
    deployment: Deployment,
    folder: Path,
    checkpoints: Path,
    *,
    preparation: Preparation | None = None,
    beside: Path | None = None,
) -> None:
    """Write the run into `folder`, which is made; whenever it is started, it goes on from the last good checkpoint.

    Parameters
    ----------
    checkpoints
        Folder of the checkpoints, shared by all runs of the deployment.
    preparation
        How far the ranks come before they wait for GO_FILE; None: they do not wait.
    beside
        Folder of the run whose ranks may hand the state over to them then.

    Raises
    ------
    InputError
        When the folder holds a run already, or cannot be written.
    """
    folder = folder.resolve()
    if (folder / "launch.json").exists():
        raise InputError(f"{folder} holds a run already; choose another folder")
    own = deployment.launch.program is not None
    job = None if own else deployment.training_job(folder, checkpoints.resolve())
    ranks = deployment.ranks()
    launch = launch_document(deployment, folder)
    if preparation is not None:
        launch["environment"] |= {WAIT_VARIABLE: str(folder / GO_FILE), PREPARE_VARIABLE: preparation.value}
    if beside is not None:
        launch["environment"][BESIDE_VARIABLE] = str(beside.resolve())
    texts = {
        PLAN_FILE: _plan_text(deployment),
        "ranks.csv": _table(ranks),
        "hostfile": hostfile(ranks),
        "slurm_hosts": "".join(f"{host}\n" for host in hosts_of(ranks)),
        "launch-local.sh": _local_script(launch, folder),
        "launch-ssh.sh": _ssh_script(launch, folder),
        "job.sbatch": batch_script(deployment, folder, folder / STOP_FILE),
        "jobset.yaml": jobset_manifest(deployment, folder, checkpoints.resolve()),
        "README.txt": _readme(deployment, folder, checkpoints.resolve()),
        "launch.json": json.dumps(launch, indent=1) + "\n",
    }
    if job is not None and job.engine is EngineName.DEEPSPEED:
        texts["ds_config.json"] = json.dumps(ds_config(job), indent=2) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if job is not None:
            write_training_job(job, folder / "job.json")
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror}") from error


def launch_document(deployment: Deployment, folder: Path) -> dict[str, Any]:
    """What the agents and the backends read."""
    options, ranks = deployment.launch, deployment.ranks()
    first = ranks[0].node
    address = "127.0.0.1" if options.backend == "local" else options.addresses.get(first, first).rpartition("@")[2]
    return {
        "ranks": [
            {"rank": rank.rank, "node": rank.node, "gpu": rank.gpu, "local_rank": rank.local_rank} for rank in ranks
        ],
        "command": list(options.program or _trainer(options, folder)),
        "trainer": options.command is None and options.program is None,
        "python": options.python,
        "device": deployment.training.device.value,
        "environment": dict(options.environment),
        "secrets": dict(options.secrets),
        "addresses": dict(options.addresses),
        "master_addr": address,
        "master_port": options.master_port,
        "grace_s": options.grace_s,
        "start_limit_s": deployment.training.start_limit_s if options.command is options.program is None else None,
        "report_limit_s": deployment.training.save_limit_s,
    }


def _trainer(options: LaunchOptions, folder: Path) -> tuple[str, ...]:
    return (*(options.command or (options.python, "-P", "-m", "executor.trainer")), str(folder / "job.json"))


def _plan_text(deployment: Deployment) -> str:
    """Plan and ranks with their coordinates, for programs of users."""
    ranks = [asdict(rank) for rank in deployment.ranks()]
    document = {"plan": asdict(deployment.plan), "ranks": ranks, "notation": deployment.plan.notation()}
    return json.dumps(document, indent=1) + "\n"


def _table(ranks: tuple[Rank, ...]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["rank", "host", "gpu", "local_rank", "pipe", "data", "tensor"])
    writer.writerows([r.rank, r.node, r.gpu, r.local_rank, r.pipe, r.data, r.tensor] for r in ranks)
    return text.getvalue()


def _local_script(launch: Mapping[str, Any], folder: Path) -> str:
    hosts = dict.fromkeys(rank["node"] for rank in launch["ranks"])
    agents = [shlex.join([launch["python"], "-P", "-m", "executor.launch.agent", str(folder), host]) for host in hosts]
    return "\n".join(
        [
            "#!/bin/sh",
            "# All hosts of the plan on this machine; ends with the first agent that fails.",
            *_waited(agents),
        ]
    )


def _ssh_script(launch: Mapping[str, Any], folder: Path) -> str:
    hosts = dict.fromkeys(rank["node"] for rank in launch["ranks"])
    agents = {
        host: shlex.join([launch["python"], "-P", "-m", "executor.launch.agent", str(folder), host]) for host in hosts
    }
    lines = [
        shlex.join(["ssh", "-o", "BatchMode=yes", "--", launch["addresses"].get(host, host), agent])
        for host, agent in agents.items()
    ]
    return "\n".join(["#!/bin/sh", "# One agent per host; ends with the first agent that fails.", *_waited(lines)])


def _waited(commands: list[str]) -> list[str]:
    """Shell lines that run the commands at the same time and fail when one of them does."""
    starts = [line for command in commands for line in (f"{command} &", 'agents="$agents $!"')]
    return [
        "agents=",
        *starts,
        "status=0",
        'for agent in $agents; do wait "$agent" || status=$?; done',
        "exit $status",
        "",
    ]


def _readme(deployment: Deployment, folder: Path, checkpoints: Path) -> str:
    ranks = deployment.ranks()
    return _README.format(
        title=f"Deployment {deployment.name}",
        notation=f"{deployment.model.name or 'transformer'}: {deployment.plan.notation()}",
        data=f"{SYNTHETIC_DATA}\n" if deployment.engine is not None and not deployment.training.sources else "",
        ranks=counted(len(ranks), "rank"),
        hosts=counted(len(hosts_of(ranks)), "host"),
        first=ranks[0].node,
        port=deployment.launch.master_port,
        folder=folder,
        checkpoints=checkpoints,
        hours=deployment.launch.time_limit_s / 3600,
    )
