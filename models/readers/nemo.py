"""YAML of NeMo's Megatron models: `model` (sizes, degrees, batches, optimiser) and `trainer` (GPUs, precision).

Of OmegaConf's interpolations references (`${.hidden_size}`, `${model.hidden_size}`) and `${multiply:4, ...}` are filled
in. Defaults are those of `nemo/collections/nlp/models/language_modeling` and Megatron.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import yaml

from models.readers.base import MAX_DEGREE, FilePlan, ForeignModel, Reading
from models.readers.megatron_model import model_fields, padded_vocabulary, recomputed_layers
from models.software import Software
from models.transformer import MAX_TOKENS, Checkpointing, Optimizer, Precision
from stowplan.errors import FileFormatError, InputError, pointer_of

# What is called differently than the argument of Megatron whose name it has else.
_NAMES = MappingProxyType(
    {
        "encoder_seq_length": "seq-length",
        "num_moe_experts": "num-experts",
        "qkv_bias": "add-qkv-bias",
        "override_vocab_size": "padded-vocab-size",
    }
)
_ACTIVATIONS = MappingProxyType(
    {name: "glu" in name for name in ("gelu", "openai-gelu", "squared-relu", "relu", "swiglu", "geglu", "reglu")}
    | {f"fast-{name}": True for name in ("swiglu", "geglu", "reglu")}
)
_NORMS = MappingProxyType({"layernorm": "LayerNorm", "layernorm1p": "LayerNorm", "rmsnorm": "RMSNorm"})
_PRECISIONS = MappingProxyType(
    {"bf16": "bf16", "bf16-mixed": "bf16", "bf16-true": "bf16", "16": "fp16", "16-mixed": "fp16", "fp16": "fp16"}
    | {"32": "fp32", "32-true": "fp32", "fp32": "fp32"}
)
_REFERENCE = re.compile(r"\$\{(?:\.|model\.)(\w+)\}")
_PRODUCT = re.compile(r"\$\{multiply:\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\}")
# The time that PyYAML takes grows with the square of the depth of brackets.
_MAX_CHARACTERS, _MAX_BRACKETS = 2**18, 1000
_DISTRIBUTED = ("distributed_fused_adam", "mcore_distributed_optim")


def read_nemo(text: str) -> ForeignModel:
    """Read a configuration.

    Raises
    ------
    FileFormatError
        When the text is not YAML.
    InputError
        When it describes no model, or one that cannot be described; pointers lead into the document.
    """
    if len(text) > _MAX_CHARACTERS or text.count("[") + text.count("{") > _MAX_BRACKETS:
        raise FileFormatError("is too large for a configuration of NeMo")
    try:
        document = yaml.safe_load(text) if not _has_aliases(text) else None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FileFormatError(f"is not YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise FileFormatError("has no `model` with keys such as num_layers and hidden_size (and no aliases are read)")
    model = {str(key): _filled(value, document["model"]) for key, value in document["model"].items()}
    reading = Reading(_as_arguments(model))
    try:
        return _read(reading, Reading(document, issues=reading.issues).section("trainer"))
    except InputError as error:
        keys = {f"--{_argument(key)}": key for key in model}
        moved = [_in_yaml(issue.pointer, keys) for issue in error.issues]
        raise InputError(
            error.detail, [replace(i, pointer=p) for i, p in zip(error.issues, moved, strict=True)]
        ) from error


def _read(reading: Reading, trainer: Reading) -> ForeignModel:
    fields = model_fields(reading)
    reading.word("--activation", _ACTIVATIONS, default="gelu")
    tp = reading.number("--tensor-model-parallel-size", most=MAX_DEGREE, default=1)
    fields["vocabulary_size"] = padded_vocabulary(reading, tp)
    nodes, devices = trainer.given("num_nodes"), trainer.given("devices")
    known = isinstance(nodes, int) and isinstance(devices, int) and 0 < nodes * devices <= MAX_DEGREE
    plan = FilePlan(
        pp=reading.number("--pipeline-model-parallel-size", most=MAX_DEGREE, default=1),
        tp=tp,
        cp=reading.number("--context-parallel-size", most=MAX_DEGREE, default=1),
        ep=reading.number("--expert-model-parallel-size", most=MAX_DEGREE, default=1),
        num_gpus=nodes * devices if known else None,
        recomputed_layers=recomputed_layers(reading, "--activations-checkpoint"),
    )
    stated = trainer.given("precision") or reading.given("--precision")
    precision = _PRECISIONS.get(str(stated).lower())
    if stated is not None and precision is None:
        trainer.refuse("precision", f"is {str(stated)[:60]!r}; known: {', '.join(_PRECISIONS)}", code="unsupported")
    optimizer = reading.given("--optim")
    name = str(optimizer.get("name") if isinstance(optimizer, Mapping) else "adam")
    checkpointing = reading.word(
        "--activations-checkpoint-granularity", {kind.value: kind for kind in Checkpointing}, default="none"
    )
    return reading.finish(
        fields
        | {
            "global_batch": reading.optional("--global-batch-size", most=MAX_TOKENS),
            "micro_batch": reading.optional("--micro-batch-size", most=MAX_TOKENS),
            "precision": Precision.FP8 if reading.given("--fp8") is True else precision and Precision(precision),
            "optimizer": Optimizer.SGD if name == "sgd" else Optimizer.ADAM,
            "checkpointing": checkpointing,
            "zero_stage": 1 if name in _DISTRIBUTED else 0,
            "software": Software.MEGATRON_CORE,
            "sequence_parallel": reading.given("--sequence-parallel") is True,
        },
        plan,
    )


def _as_arguments(model: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of Megatron that say the same."""
    values = {f"--{_argument(key)}": value for key, value in model.items()}
    activation = str(values.get("--activation") or "gelu").lower()
    values["--swiglu"] = _ACTIVATIONS.get(activation, False)
    values["--group-query-attention"] = values.get("--num-query-groups") is not None
    values["--disable-bias-linear"] = values.get("--bias") is False
    values["--untie-embeddings-and-output-weights"] = values.get("--share-embeddings-and-output-weights") is False
    tokenizer = values.get("--tokenizer")
    values["--tokenizer-type"] = tokenizer.get("type") if isinstance(tokenizer, Mapping) else None
    norm = values.get("--normalization")
    values["--normalization"] = _NORMS.get(str(norm).lower(), norm)
    return values


def _argument(key: str) -> str:
    return _NAMES.get(key, key.replace("_", "-"))


def _in_yaml(pointer: str, keys: Mapping[str, str]) -> str:
    """Where in the document an argument stands that a pointer names."""
    name = pointer.removeprefix("/")
    if not name.startswith("--"):
        return pointer
    return pointer_of("model", keys.get(name, name[2:].replace("-", "_")))


def _filled(value: object, model: Mapping[str, Any]) -> object:
    """A value whose interpolations are replaced, as far as they are known."""
    if not isinstance(value, str) or "${" not in value:
        return value
    text = _REFERENCE.sub(lambda found: str(model.get(found[1], found[0]))[:200], value[:1000])
    product = _PRODUCT.fullmatch(text)
    if product is not None:
        return int(product[1]) * int(product[2])
    return int(text) if re.fullmatch(r"\d{1,25}", text) else text


def _has_aliases(text: str) -> bool:
    """Whether a document refers to parts of itself: a few lines of that can stand for more than memory holds."""
    return any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text))
