"""TOML of torchtitan, whose mesh is pp, dp_replicate, dp_shard, cp, tp (`torchtitan/distributed/parallel_dims.py`).

`models/readers/torchtitan.py` reads the same plan and model back.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Any

from executor.export.job import ExportedJob, Layout
from models.catalogue import SHAPE_FIELDS, find_model
from models.dimensions import Dimensions
from models.readers.torchtitan import MODELS, SPLIT_SCHEDULES
from models.software import Software
from models.transformer import Checkpointing, JobModel, Optimizer, Precision, Transformer
from stowplan.errors import InputError

_DTYPES = MappingProxyType({Precision.BF16: "bfloat16", Precision.FP32: "float32"})
_SIZES = ("num_heads", "num_kv_heads", "head_size", "value_head_size", "feed_forward_size", "expert_feed_forward_size")
_SHAPE = tuple(field for field in SHAPE_FIELDS if field not in (*_SIZES, "sequence_length"))
_HEAD = """\
# torchtitan for job {name}, {notation}. It reads such files up to 0.2 (--job.config_file); later it takes the same keys
# as options: --parallelism.tensor_parallel_degree {tp} ...
"""


def write_torchtitan(job: ExportedJob) -> Mapping[str, str]:
    """Write the configuration.

    Raises
    ------
    InputError
        When the plan is asymmetric, the model is not known or none of torchtitan's, or is trained in a way that it has
        not.
    """
    layout = job.layout("torchtitan", zero_bubble=True)
    if layout.recomputed_layers is not None:
        raise InputError(
            f"torchtitan recomputes all layers alike, and the plan {layout.recomputed_layers} of every part; plan with "
            "a checkpointing that is not auto"
        )
    if job.model is None:
        raise InputError("torchtitan trains models of its own: give the request, which says what the job trains")
    name, flavor = _flavor(job.model)
    tables: dict[str, dict[str, Any]] = {
        "model": {"name": name, "flavor": flavor},
        "training": _training(job.model, layout),
        "optimizer": {"name": "AdamW"},
        "parallelism": dict(_parallelism(job.model, layout)),
        "activation_checkpoint": {"mode": job.model.checkpointing.value},
        "compile": {"enable": job.model.software is Software.TORCH},
    }
    head = _HEAD.format(name=job.plain_name, notation=layout.notation(), tp=layout.tp)
    return {"torchtitan.toml": head + "".join(_table(name, values) for name, values in tables.items())}


def _flavor(model: Transformer) -> tuple[str, str]:
    """Model and flavor of the same shape."""
    for name, flavors in MODELS.items():
        for flavor, known in flavors.items():
            if _shape(find_model(known, global_batch=1)) == _shape(model):
                return name, flavor.upper().replace("X", "x")
    known = ", ".join(f"{name} {flavor.upper()}" for name, flavors in MODELS.items() for flavor in flavors)
    raise InputError(f"torchtitan has no model of this shape; known of it: {known}")


def _shape(model: JobModel) -> tuple[Any, ...]:
    """What a model is: with the sizes that it leaves out, without the length of its sequences."""
    assert isinstance(model, Transformer)  # noqa: S101 - the table names transformers only
    return (Dimensions.of(model), *(getattr(model, field) for field in _SHAPE))


def _training(model: Transformer, layout: Layout) -> dict[str, Any]:
    if model.precision not in _DTYPES:
        raise InputError(f"torchtitan is not given precision {model.precision} by this export; plan with bf16 or fp32")
    if model.optimizer is not Optimizer.ADAM:
        raise InputError(f"torchtitan has no optimiser {model.optimizer}; plan with adam")
    batch: dict[str, Any] = {}
    if layout.micro_batch is not None and layout.num_micro_batches is not None:
        # Of a pipeline it is cut into micro-batches, of others it is one of those that are accumulated.
        parts = layout.num_micro_batches if layout.pp > 1 else 1
        batch = {"local_batch_size": layout.micro_batch * parts, "global_batch_size": layout.global_batch}
    return {**batch, "seq_len": model.sequence_length, "mixed_precision_param": _DTYPES[model.precision]}


def _parallelism(model: Transformer, layout: Layout) -> Iterator[tuple[str, Any]]:
    """FSDP2 shards from ZeRO 2 on: gradients and states in any case, weights where they are freed after use."""
    sharded = model.zero_stage > 0
    if layout.cp > 1 and not sharded:
        raise InputError("torchtitan shards over parts of sequences in any case; plan with zero_stage 1 to 3")
    yield "data_parallel_replicate_degree", 1 if sharded else layout.dp
    yield "data_parallel_shard_degree", layout.dp if sharded else 1
    if sharded:
        yield "fsdp_reshard_after_forward", "always" if model.zero_stage == 3 else "never"
    yield "tensor_parallel_degree", layout.tp
    for name, degree in (("context_parallel_degree", layout.cp), ("expert_parallel_degree", layout.ep)):
        if degree > 1:
            yield name, degree
    if layout.ep > 1:
        yield "expert_tensor_parallel_degree", layout.tp
    yield "pipeline_parallel_degree", layout.pp
    if layout.pp == 1:
        return
    yield "pipeline_parallel_schedule", _schedule(model, layout)
    if layout.micro_batch is not None:
        yield "pipeline_parallel_microbatch_size", layout.micro_batch
    if layout.part_layers is not None:
        # Its own split counts embedding and head as layers.
        yield "module_fqns_per_model_part", _modules(layout.part_layers)


def _schedule(model: Transformer, layout: Layout) -> str:
    if not layout.schedule.splits_backward:
        return "Interleaved1F1B" if layout.virtual_stages > 1 else "1F1B"
    if model.software is Software.TORCH or model.checkpointing is not Checkpointing.NONE:
        raise InputError(
            f"torchtitan runs no schedule {layout.schedule} of compiled models, nor with what is recomputed; plan with "
            f"software torch-eager and checkpointing none, or with schedules 1f1b"
        )
    return SPLIT_SCHEDULES[layout.schedule]


def _modules(parts: tuple[int, ...]) -> list[list[str]]:
    """Names of the modules of every part."""
    starts = [0, *accumulate(parts)]
    modules = [[f"layers.{k}" for k in range(a, b)] for a, b in pairwise(starts)]
    modules[0].insert(0, "tok_embeddings")
    modules[-1] += ["norm", "output"]
    return modules


def _table(name: str, values: Mapping[str, Any]) -> str:
    """A table of TOML; its words, numbers and lists are those of JSON."""
    return f"\n[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
