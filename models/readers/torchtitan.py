"""TOML of torchtitan: the model by name and flavor, which stands in the catalogue here; `training`, `parallelism` and
`activation_checkpoint`, also under their older names.
"""

import tomllib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from models.catalogue import SHAPE_FIELDS, find_model
from models.pipeline_schedule import PipelineSchedule
from models.readers.base import MAX_DEGREE, FilePlan, ForeignModel, Reading, layers_by_stage
from models.software import Software
from models.transformer import MAX_TOKENS, Checkpointing, Optimizer, Precision, Transformer
from stowplan.errors import FileFormatError

# Model of torchtitan -> its flavors -> name in the catalogue.
MODELS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "llama3": {"8b": "llama3.1-8b", "70b": "llama3.1-70b", "405b": "llama3.1-405b"},
        "llama4": {"17bx16e": "llama4-scout", "17bx128e": "llama4-maverick"},
        "deepseek_v3": {"16b": "deepseek-v2-lite", "236b": "deepseek-v2", "671b": "deepseek-v3"},
        "qwen3": {size: f"qwen3-{size}" for size in ("0.6b", "1.7b", "4b", "8b", "14b", "32b")},
    }
)
_OPTIMIZERS = MappingProxyType({"adamw": Optimizer.ADAM, "adam": Optimizer.ADAM})
_CHECKPOINTING = MappingProxyType({kind.value: kind for kind in Checkpointing})
# Whether FSDP frees weights behind the forward pass; None: but in pipelines.
_RESHARDING = MappingProxyType({"always": True, "never": False, "default": None})
# Of torch, which takes any case.
SPLIT_SCHEDULES = MappingProxyType(
    {PipelineSchedule.ZERO_BUBBLE: "InterleavedZeroBubble", PipelineSchedule.ZBV: "ZBVZeroBubble"}
)
_SCHEDULES = MappingProxyType(
    {
        **{name.lower(): kind for kind, name in SPLIT_SCHEDULES.items()},
        **dict.fromkeys(("1f1b", "interleaved1f1b"), PipelineSchedule.ONE_F_ONE_B),
    }
)
# Torchtitan cuts stages of these into two parts where nothing else is said.
_CUT = ("interleaved1f1b", *(name.lower() for name in SPLIT_SCHEDULES.values()))
_DTYPES = MappingProxyType({"bfloat16": Precision.BF16, "float32": Precision.FP32})


def read_torchtitan(text: str) -> ForeignModel:
    """Read a job configuration.

    Raises
    ------
    FileFormatError
        When the text is not TOML.
    InputError
        When it names no known model, or values are wrong; pointers lead into the document.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"is not TOML: {error}") from error
    reading = Reading(document)
    model = _model(reading.section("model"))
    training, degrees = reading.section("training"), _degrees(reading)
    fields: dict[str, Any] = {name: getattr(model, name) for name in SHAPE_FIELDS}
    shards, replicas = degrees["shard"], degrees["replicate"]
    dp = None if shards == -1 else shards * replicas
    local = training.optional("local_batch_size", "batch_size", most=MAX_TOKENS)
    whole = training.number("global_batch_size", most=MAX_TOKENS, least=-1, default=-1)
    if whole < 1:
        whole = local * dp if local is not None and dp is not None else 0
    if not whole:
        text = "the global batch is not said: local_batch_size on as many GPUs as there are; give --global-batch"
        reading.note(text, of="global_batch")
    fields |= {
        "sequence_length": training.number("seq_len", most=MAX_TOKENS, default=2048),
        "global_batch": whole or None,
        "micro_batch": local if degrees["pp"] == 1 else _micro_batch(reading),
        "precision": training.word("mixed_precision_param", _DTYPES, default="bfloat16"),
        "optimizer": reading.section("optimizer").word("name", _OPTIMIZERS, default="adamw"),
        "checkpointing": _checkpointing(reading.section("activation_checkpoint")),
        "zero_stage": _zero_stage(reading, shards * degrees["cp"], degrees["pp"]),
        "software": Software.TORCH if _compiles(reading) else Software.TORCH_EAGER,
    }
    schedule = _schedule(reading.section("parallelism"), degrees["pp"])
    plan = FilePlan(
        pp=degrees["pp"],
        dp=dp,
        tp=degrees["tp"],
        cp=degrees["cp"],
        ep=degrees["ep"],
        **schedule,
    )
    return reading.finish(fields, plan)


def _micro_batch(reading: Reading) -> int | None:
    """Sequences of a micro-batch of a pipeline."""
    return reading.section("parallelism").optional("pipeline_parallel_microbatch_size", most=MAX_TOKENS)


def _schedule(table: Reading, pp: int) -> dict[str, Any]:
    """Fields of `FilePlan` about the schedule, and the parts of stages."""
    name = str(table.given("pipeline_parallel_schedule") or "1F1B")
    if pp == 1:
        return {}
    if name.lower() not in _SCHEDULES:
        table.note(f"the pipeline schedule {name[:60]} is planned as 1f1b")
    kind = _SCHEDULES.get(name.lower(), PipelineSchedule.ONE_F_ONE_B)
    listed = layers_by_stage(_part_layers(table, pp), pp, kind)
    cut = {"virtual_stages": 2} if name.lower() in _CUT else {}
    return {"schedule": kind, **(listed or cut)}


def _part_layers(table: Reading, pp: int) -> tuple[int, ...]:
    """Layers of every part of the model as its modules are listed; none where they are not."""
    modules = table.given("module_fqns_per_model_part")
    if not isinstance(modules, list) or not modules or len(modules) % pp:
        return ()
    layers = [[str(name).startswith("layers.") for name in part] for part in modules if isinstance(part, list)]
    return tuple(map(sum, layers))


def _compiles(reading: Reading) -> bool:
    """Whether the model is compiled: `compile.enable`, before that `training.compile`."""
    return True in (reading.section("compile").given("enable"), reading.section("training").given("compile"))


def _model(model: Reading) -> Transformer:
    """The model of the catalogue; any other where none is named, which is refused."""
    name, flavor = str(model.given("name")), str(model.given("flavor"))
    flavors = MODELS.get(name)
    known = "llama3.1-8b"
    if flavors is None:
        what = "is missing" if model.given("name") is None else f"is {name[:60]!r}"
        model.refuse("name", f"{what}; known: {', '.join(MODELS)}", code="unsupported")
    elif flavor.lower() not in flavors:
        detail = f"is {flavor[:60]!r}; known of {name}: {', '.join(size.upper() for size in flavors)}"
        model.refuse("flavor", detail, code="unsupported")
    else:
        known = flavors[flavor.lower()]
    found = find_model(known, global_batch=1)
    assert isinstance(found, Transformer)  # noqa: S101 - the table names transformers only
    return found


def _degrees(reading: Reading) -> dict[str, int]:
    """Degrees by short name; shard -1 stands for all GPUs that are left."""
    tables = [reading.section(name) for name in ("parallelism", "training", "experimental")]

    def degree(name: str, *, least: int = 1, default: int = 1) -> int:
        table = next((table for table in tables if table.given(name) is not None), tables[0])
        return table.number(name, most=MAX_DEGREE, least=least, default=default)

    shard = degree("data_parallel_shard_degree", least=-1, default=-1)
    if shard == 0:
        tables[0].refuse("data_parallel_shard_degree", "is 0; 1 and above, or -1 for all GPUs that are left")
    return {
        "shard": shard,
        "replicate": degree("data_parallel_replicate_degree"),
        "tp": degree("tensor_parallel_degree"),
        "pp": degree("pipeline_parallel_degree"),
        "cp": degree("context_parallel_degree"),
        "ep": degree("expert_parallel_degree"),
    }


def _zero_stage(reading: Reading, shards: int, pp: int) -> int:
    """What FSDP shards: all of the weights where they are gathered again for the backward pass, else gradients;
    over context-parallel GPUs, too.

    In pipelines torchtitan gathers weights once a step unless `fsdp_reshard_after_forward` is `always`, and PyTorch's
    pipelines reduce gradients behind the last micro-batch: what is left is stage 1.
    """
    table = reading.section("parallelism")
    again: bool | None = table.word("fsdp_reshard_after_forward", _RESHARDING, default="default")
    if shards == 1:
        return 0
    if again or (again is None and pp == 1):
        return 3
    return 2 if pp == 1 else 1


def _checkpointing(table: Reading) -> Checkpointing:
    mode: Checkpointing = table.word("mode", _CHECKPOINTING, default="selective")
    if mode is Checkpointing.SELECTIVE:
        text = "selective activation checkpointing is planned as that of all but products and attention"
        table.note(text, of="checkpointing")
    return mode
