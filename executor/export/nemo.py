"""Fields of a recipe of Megatron-Bridge, with which NeMo trains since 25.09: what a plan decides, in the names of its
`ConfigContainer`. A recipe brings its model.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from executor.export.job import ExportedJob
from executor.export.megatron import pipeline_layout, refuse_unsaid
from models.transformer import Checkpointing, Precision

_HEAD = """\
# Fields of a recipe of Megatron-Bridge for job {name}, {notation}; ranks in Megatron's order (tp-cp-ep-dp-pp).
# As a file with --config-file, or one by one: model.tensor_model_parallel_size={tp} ...
# A recipe of NeMo 2.0 has those below `model` in trainer.strategy.
"""
_MIXED: Mapping[Precision, str | None] = {
    Precision.FP32: None,
    Precision.BF16: "bf16_mixed",
    Precision.FP16: "fp16_mixed",
    Precision.FP8: "bf16_with_fp8_current_scaling_mixed",
    Precision.MXFP8: "bf16_with_mxfp8_mixed",
}


def write_nemo(job: ExportedJob) -> Mapping[str, str]:
    """Write YAML.

    Raises
    ------
    InputError
        When the plan is asymmetric, or the model is trained in a way that the fields cannot say.
    """
    layout = job.layout("Megatron-Bridge")
    stages = pipeline_layout(layout)
    model: dict[str, Any] = {
        "tensor_model_parallel_size": layout.tp,
        "pipeline_model_parallel_size": layout.pp,
        "context_parallel_size": layout.cp,
        "expert_model_parallel_size": layout.ep,
        "virtual_pipeline_model_parallel_size": layout.virtual_stages if layout.virtual_stages > 1 else None,
        "pipeline_model_parallel_layout": stages,
    }
    document: dict[str, Any] = {"model": model}
    batch = {"micro_batch_size": layout.micro_batch, "global_batch_size": layout.global_batch}
    if None not in batch.values():
        document["train"] = batch
    if (trained := job.model) is not None:
        refuse_unsaid(trained, "Megatron-Bridge")
        model["seq_length"] = trained.sequence_length
        model["sequence_parallel"] = trained.splits_sequences and layout.tp > 1
        if (count := layout.recomputed_layers) is not None:
            model |= {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": count}
        elif trained.checkpointing is Checkpointing.FULL:
            model |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        elif trained.checkpointing is Checkpointing.SELECTIVE:
            model["recompute_granularity"] = "selective"
        if mixed := _MIXED[trained.precision]:
            document["mixed_precision"] = mixed
        document["optimizer"] = {"use_distributed_optimizer": trained.zero_stage == 1}
        document["ddp"] = {"use_distributed_optimizer": trained.zero_stage == 1}
    head = _HEAD.format(name=job.plain_name, notation=layout.notation(), tp=layout.tp)
    return {"recipe.yaml": head + yaml.safe_dump(document, sort_keys=False)}
