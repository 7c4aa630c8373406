"""`job.sbatch`: the hosts of the plan and no others, with one agent each in the order of the plan.

`srun -m arbitrary` with SLURM_HOSTFILE keeps the order, whatever Slurm's own would be. DeepSpeed's runner for Slurm
ignores it and sets no ranks.
"""

import shlex
from pathlib import Path

from executor.deployment import Deployment
from executor.launch.agent import GPUS_GIVEN
from executor.launch.slurm_options import GpuRequest
from executor.rank_table import hosts_of
from executor.training_options import Device


def batch_script(deployment: Deployment, folder: Path, stop: Path) -> str:
    """Script for sbatch; `stop` is the file that asks the ranks to write a checkpoint and end."""
    launch, options, hosts = deployment.launch, deployment.launch.slurm, hosts_of(deployment.ranks())
    gpus = max(map(len, hosts.values())) if deployment.training.device is Device.CUDA else 0
    asks = shlex.quote(str(stop))
    # The name of the node is known on the node only.
    agent = ["bash", "-c", 'exec "$@" "$SLURMD_NODENAME"', "agent"]
    agent += [launch.python, "-P", "-m", "executor.launch.agent", str(folder)]
    return "\n".join(
        [
            "#!/bin/bash",
            # Slurm takes the last word on an option: ours.
            *options.extra_lines,
            f"#SBATCH --job-name={deployment.name}",
            f"#SBATCH --nodes={len(hosts)}",
            f"#SBATCH --ntasks={len(hosts)}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --nodelist={','.join(hosts)}",
            *(["#SBATCH --exclusive"] if options.exclusive else []),
            *(f"#SBATCH --{name}={shlex.quote(value)}" for name, value in options.arguments(gpus, launch.time_limit_s)),
            f"#SBATCH --time={max(1, round(launch.time_limit_s / 60))}",
            f"#SBATCH --output={shlex.quote(str(folder / 'slurm.log'))}",
            "#SBATCH --open-mode=append",
            "# What goes on after a fault, a preemption or the time limit is a new job.",
            "#SBATCH --no-requeue",
            *([f"export {GPUS_GIVEN}=1"] if gpus and options.gpu_request is not GpuRequest.NONE else []),
            "# The signal comes before the time limit: the ranks write a checkpoint and end.",
            f"trap {shlex.quote(f'echo asked by Slurm > {asks}')} USR1",
            "# It asked an earlier job of this folder; the file of anybody else is empty.",
            f"if [ -s {asks} ]; then rm {asks}; fi",
            "# One line per agent: srun keeps this order. The ranks of a host share all the CPUs of the job there.",
            f"export SLURM_HOSTFILE={shlex.quote(str(folder / 'slurm_hosts'))}",
            f"srun --distribution=arbitrary --ntasks={len(hosts)} --cpu-bind=none --kill-on-bad-exit=1 \\",
            f"    {shlex.join(agent)} &",
            "# The first wait ends with the signal.",
            'wait "$!" || wait "$!"',
            "",
        ]
    )
