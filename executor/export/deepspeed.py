"""Hostfile, configuration and start of DeepSpeed, whose ranks go pipe, data, model
(`PipeModelDataParallelTopology` of `deepspeed/runtime/pipe/topology.py`).
"""

import json
from collections.abc import Mapping
from typing import Any

from executor.deployment import DEFAULT_PORT
from executor.export.job import ExportedJob, Layout
from models.transformer import Precision
from stowplan.errors import InputError

_SCRIPT = """\
#!/bin/sh
# sh deepspeed.sh train.py ARGUMENTS, for job {name}; the program gets ds_config.json by --deepspeed_config.
# Its groups are those of the plan with
#   PipelineModule(..., topology=PipeModelDataParallelTopology(num_pp={pp}, num_mp={tp}, num_dp={dp}))
here="$(cd "$(dirname "$0")" && pwd)"
exec deepspeed --hostfile="$here/hostfile" --include={include} --master_addr={first} --master_port={port} "$@" \\
    --deepspeed --deepspeed_config "$here/ds_config.json"
"""


def write_deepspeed(job: ExportedJob) -> Mapping[str, str]:
    """Write hostfile, configuration and a script that starts all ranks.

    Raises
    ------
    InputError
        When the plan is asymmetric, interleaved or splits layers unevenly, or has the ranks or GPUs of a host in an
        order that the launcher has not.
    """
    layout = job.layout("DeepSpeed")
    _refuse(layout)
    hosts = {host: job.gpus_of(ranks) for host, ranks in job.in_one_go("DeepSpeed").items()}
    for host, gpus in hosts.items():
        if list(gpus) != sorted(gpus):
            raise InputError(
                f"DeepSpeed sorts the GPUs of a host (--include), and the plan has those of {host} in the order "
                f"{', '.join(map(str, gpus))}: torchrun, slurm and mpi can have that"
            )
    script = _SCRIPT.format(
        name=job.plain_name,
        pp=layout.pp,
        tp=layout.tp,
        dp=layout.dp,
        include="@".join(f"{host}:{','.join(map(str, gpus))}" for host, gpus in hosts.items()),
        first=job.gpus[0][0],
        port=DEFAULT_PORT,
    )
    return {
        "hostfile": "".join(f"{host} slots={max(gpus) + 1}\n" for host, gpus in hosts.items()),
        "ds_config.json": json.dumps(_configuration(job, layout), indent=2) + "\n",
        "deepspeed.sh": script,
    }


def _refuse(layout: Layout) -> None:
    if layout.virtual_stages > 1:
        raise InputError(f"DeepSpeed has no interleaved pipelines: {layout.notation()}; plan with software deepspeed")
    if layout.cp * layout.ep > 1:
        raise InputError(
            f"DeepSpeed's pipeline engine shares neither sequences nor experts: {layout.notation()}; plan with "
            "software deepspeed"
        )
    layers = layout.stage_layers
    if layers is not None and len(set(layers)) > 1:
        raise InputError(
            f"DeepSpeed's PipelineModule splits layers by a partition_method and cannot be told {list(layers)}; "
            "Megatron-LM and torchtitan can, and so can the executor of Stowplan"
        )


def _configuration(job: ExportedJob, layout: Layout) -> dict[str, Any]:
    """What a plan decides; the optimiser is the program's."""
    config: dict[str, Any] = {}
    if layout.global_batch is not None:
        config = {
            "train_batch_size": layout.global_batch,
            "train_micro_batch_size_per_gpu": layout.micro_batch,
            "gradient_accumulation_steps": layout.num_micro_batches,
        }
    model = job.model
    if model is None:
        return config
    if model.precision.in_8_bits:
        raise InputError("DeepSpeed has no products in 8 bits; plan with precision bf16")
    if layout.pp > 1 and model.zero_stage > 1:
        raise InputError(f"DeepSpeed has no pipelines with ZeRO {model.zero_stage}; plan with zero_stage 1")
    config["zero_optimization"] = {"stage": model.zero_stage}
    if model.precision is not Precision.FP32:
        config[model.precision.value] = {"enabled": True}
    return config
