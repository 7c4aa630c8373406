"""Launchers that put every rank where a file says, whatever the order: Slurm and Open MPI.

Both start `rank.sh`, which turns their variables into those of torchrun, which frameworks read.
"""

import re
import shlex
from collections.abc import Mapping

from executor.deployment import DEFAULT_PORT
from executor.export.job import ExportedJob
from executor.launch.slurm_options import GpuRequest, SlurmOptions
from stowplan.errors import InputError, Issue
from topology.readers.hostlist import fold_hostlist, hostlist_order

# As sbatch takes times.
_TIME = re.compile(r"(?:\d{1,5}-)?\d{1,7}(?::\d{1,2}){0,2}", re.ASCII)

_RANK = """\
#!/bin/sh
# One rank of job {name}: variables as torchrun sets them, GPUs of the host in the order of its ranks, the program.
set -eu
RANK="${{OMPI_COMM_WORLD_RANK:-${{SLURM_PROCID:-}}}}"
LOCAL_RANK="${{OMPI_COMM_WORLD_LOCAL_RANK:-${{SLURM_LOCALID:-}}}}"
case "$RANK" in
{cases}
*) echo "rank.sh is started by srun or mpirun" >&2; exit 2 ;;
esac
WORLD_SIZE={ranks}
MASTER_ADDR="${{MASTER_ADDR:-{first}}}"
MASTER_PORT="${{MASTER_PORT:-{port}}}"
export RANK LOCAL_RANK LOCAL_WORLD_SIZE WORLD_SIZE MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES
# A rankfile has to name CPUs, to which Open MPI then ties a rank, also with --bind-to none.
[ -z "${{OMPI_COMM_WORLD_RANK:-}}" ] || taskset -pc "0-$(($(getconf _NPROCESSORS_CONF) - 1))" $$ >/dev/null || true
exec "$@"
"""
_SBATCH = """\
#!/bin/bash
# In this folder: sbatch job.sbatch{arguments}, with what your site wants besides, such as --gres=gpu:8.
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks={ranks}
#SBATCH --nodelist={hosts}
#SBATCH --exclusive
{asked}# Line r + 1 is the host of rank r.
export SLURM_HOSTFILE="$SLURM_SUBMIT_DIR/slurm_hosts"
exec srun --distribution=arbitrary sh "$SLURM_SUBMIT_DIR/rank.sh" {command}"$@"
"""
_MPIRUN = """\
#!/bin/sh
# sh mpirun.sh PROGRAM ARGUMENTS
here="$(cd "$(dirname "$0")" && pwd)"
exec mpirun -np {ranks} --hostfile "$here/mpi_hosts" --rankfile "$here/rankfile" sh "$here/rank.sh" "$@"
"""


def write_slurm(job: ExportedJob, options: Mapping[str, str]) -> Mapping[str, str]:
    """Write a batch script, the file with a host per rank, and what starts a rank.

    Raises
    ------
    InputError
        When an option is wrong, or GPUs are asked for and nodes have different numbers of them.
    """
    hosts, asked = job.hosts, _slurm_options(options)
    numbers = {len(ranks) for ranks in hosts.values()}
    if len(numbers) > 1 and asked.gpu_request is not GpuRequest.NONE:
        several = " and ".join(map(str, sorted(numbers)))
        raise InputError(
            f"Slurm is asked for as many GPUs of every node, and the plan has {several} of them; leave gpus out where "
            "whole nodes bring theirs"
        )
    lines = [f"#SBATCH --{name}={shlex.quote(value)}\n" for name, value in asked.arguments(max(numbers), None)]
    if limit := options.get("time"):
        lines.append(f"#SBATCH --time={limit}\n")
    words = _words(options.get("command", ""))
    script = _SBATCH.format(
        name=job.plain_name,
        nodes=len(hosts),
        ranks=len(job.gpus),
        hosts=fold_hostlist(sorted(hosts, key=hostlist_order)),
        asked="".join(lines),
        arguments="" if words else " PROGRAM ARGUMENTS",
        command="".join(f"{shlex.quote(word)} " for word in words),
    )
    return {
        "job.sbatch": script,
        "slurm_hosts": "".join(f"{host}\n" for host, _ in job.gpus),
        "rank.sh": _rank_script(job),
    }


def _slurm_options(given: Mapping[str, str]) -> SlurmOptions:
    if not _TIME.fullmatch(given.get("time", "1")):
        detail = f"is {given['time']!r}; must be minutes, hours:minutes:seconds, or days-hours as in 2-12"
        raise InputError("options of the export to slurm", [Issue(code="bad_option", pointer="/time", detail=detail)])
    return SlurmOptions(
        partition=given.get("partition"),
        account=given.get("account"),
        qos=given.get("qos"),
        reservation=given.get("reservation"),
        constraint=given.get("constraint"),
        gpu_request=GpuRequest(given["gpus"]),
        gpu_type=given.get("gpu-type"),
    )


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        detail = f"is no command: {error}"
        issue = Issue(code="bad_option", pointer="/command", detail=detail)
        raise InputError("options of the export to slurm", [issue]) from error


def write_mpi(job: ExportedJob) -> Mapping[str, str]:
    """Write rankfile and hostfile of Open MPI, what starts it, and what starts a rank."""
    return {
        "mpirun.sh": _MPIRUN.format(ranks=len(job.gpus)),
        "rankfile": "".join(f"rank {rank}={host} slot=0:*\n" for rank, (host, _) in enumerate(job.gpus)),
        "mpi_hosts": "".join(f"{host} slots={len(ranks)}\n" for host, ranks in job.hosts.items()),
        "rank.sh": _rank_script(job),
    }


def _rank_script(job: ExportedJob) -> str:
    cases = [
        f"{'|'.join(map(str, ranks))}) LOCAL_WORLD_SIZE={len(ranks)} "
        f"CUDA_VISIBLE_DEVICES={','.join(map(str, job.gpus_of(ranks)))} ;;"
        for ranks in job.hosts.values()
    ]
    return _RANK.format(
        name=job.plain_name,
        cases="\n".join(cases),
        ranks=len(job.gpus),
        first=job.gpus[0][0],
        port=DEFAULT_PORT,
    )
