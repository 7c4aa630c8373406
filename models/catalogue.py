"""Models by name: `llama2-13b`, `gpt2-350m`, `qwen2-0.5b`, `bert-1.3b`, `moe-2.4b`, `wide-resnet-1b`. The shipped ones
are in `models.toml`, a user's own in the file of `stowplan.catalogue`.

    [model.NAME]
    architecture  transformer (where it is left out), wide-resnet or operators; decides about the other keys:

    transformer   num_layers, hidden_size, vocabulary_size, sequence_length; and, where they differ from the defaults of
                  `models.transformer.Transformer`, its other fields but those of training
    wide-resnet   depth, channels, width_factor, image_size, num_classes: see `models.wide_resnet`
    operators     operators: tables with the fields of `models.transformer.Operator`, such as [[model.NAME.operators]]

    precision and optimizer (bf16 and adam where they are left out) hold where a job says nothing else.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from models.performance.iteration.model_issues import model_issues
from models.transformer import (
    MAX_EXPERTS,
    MAX_HEADS,
    MAX_LAYERS,
    MAX_TOKENS,
    MAX_WIDTH,
    Biases,
    Checkpointing,
    JobModel,
    Normalisation,
    Operator,
    OperatorModel,
    Optimizer,
    Positions,
    Precision,
    Transformer,
)
from models.wide_resnet import STAGES, WideResNet
from stowplan.catalogue import Catalogue, Section, own_catalogue, own_file
from stowplan.errors import InputError
from stowplan.tables import Keys, list_of, not_negative, one_of, read_table, text, truth, whole
from topology.gpu_catalogue import products

_Model = Transformer | OperatorModel | WideResNet
_MAX_IMAGE_SIZE = 2**16
_MAX_WIDTH_FACTOR = 1000


def model_names() -> tuple[str, ...]:
    """All names, family by family from small to large, and the user's own."""
    return tuple(entry.name for entry in _catalogue(own_file()).entries)


def is_model_name(name: str) -> bool:
    """Whether the catalogue has a model of this name, whatever the case and separators."""
    return _catalogue(own_file()).find(name) is not None


def find_model(
    name: str,
    *,
    global_batch: int,
    micro_batch: int | None = None,
    sequence_length: int | None = None,
    precision: Precision | None = None,
    optimizer: Optimizer | None = None,
    checkpointing: Checkpointing | None = None,
    zero_stage: int | None = None,
) -> JobModel:
    """Model of this name, whatever the case and separators; None leaves what the catalogue says.

    Raises
    ------
    InputError
        For an unknown name (the detail gives near matches and all names), and for a sequence length or checkpointing
        of a model that has no sequences, or another precision of one whose operators are listed in bytes.
    """
    catalogue = _catalogue(own_file())
    entry = catalogue.find(name)
    if entry is None:
        raise catalogue.unknown("model", name)
    sequences = {"sequence_length": sequence_length, "checkpointing": checkpointing}
    fields: dict[str, Any] = {
        "global_batch": global_batch,
        "micro_batch": micro_batch,
        "precision": precision,
        "optimizer": optimizer,
        "zero_stage": zero_stage,
    }
    if isinstance(entry.value, Transformer):
        return replace(entry.value, name=entry.name, **_given(fields | sequences))
    useless = [field for field, value in sequences.items() if value not in (None, Checkpointing.NONE)]
    if useless:
        raise InputError(f"{entry.name} is a list of operators and has no {' and no '.join(useless)}; leave it out")
    model = entry.value
    if isinstance(model, WideResNet):
        model = model.at(precision or model.precision)
    elif precision not in (None, model.precision):
        raise InputError(f"{entry.name} lists the bytes of its operators in {model.precision}; leave precision out")
    return replace(model, name=entry.name, **_given(fields))


@contextmanager
def using_catalogue(file: Path) -> Iterator[None]:
    """Find the GPUs and models of a file, too, in this process and those that it starts; all of it is read now.

    Raises
    ------
    InputError
        When the file cannot be read or is wrong.
    """
    with own_catalogue(file):
        products()
        model_names()
        yield


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in fields.items() if value is not None}


@cache
def _catalogue(own: str | None) -> Catalogue[_Model]:
    return _SECTION.read(own)


class _Architecture(StrEnum):
    TRANSFORMER = "transformer"
    WIDE_RESNET = "wide-resnet"
    OPERATORS = "operators"


_ARCHITECTURE = one_of(_Architecture)
_TRAINING = {"precision": one_of(Precision), "optimizer": one_of(Optimizer)}
_TRANSFORMER = Keys(
    required={
        "num_layers": whole(MAX_LAYERS),
        "hidden_size": whole(MAX_WIDTH),
        "vocabulary_size": whole(MAX_TOKENS),
        "sequence_length": whole(MAX_TOKENS),
    },
    optional={
        "architecture": _ARCHITECTURE,
        "num_heads": whole(MAX_HEADS),
        "num_kv_heads": whole(MAX_HEADS),
        "head_size": whole(MAX_WIDTH),
        "value_head_size": whole(MAX_WIDTH),
        "rotary_head_size": whole(MAX_WIDTH),
        "query_rank": whole(MAX_WIDTH),
        "kv_rank": whole(MAX_WIDTH),
        "query_key_norms": truth,
        "attention_window": whole(MAX_TOKENS),
        "global_attention_interval": whole(MAX_LAYERS),
        "feed_forward_size": whole(MAX_WIDTH),
        "gated": truth,
        "normalisation": one_of(Normalisation),
        "post_norms": truth,
        "biases": one_of(Biases),
        "positions": one_of(Positions),
        "tied_embeddings": truth,
        "num_experts": whole(MAX_EXPERTS),
        "experts_per_token": whole(MAX_EXPERTS),
        "expert_interval": whole(MAX_LAYERS),
        "first_dense_layers": whole(MAX_LAYERS, least=0),
        "expert_feed_forward_size": whole(MAX_WIDTH),
        "shared_expert_size": whole(MAX_WIDTH),
        **_TRAINING,
    },
)

# Fields of `Transformer` that say what a model is, and not how it is trained.
SHAPE_FIELDS = tuple(
    name for name in (*_TRANSFORMER.required, *_TRANSFORMER.optional) if name not in ("architecture", *_TRAINING)
)


def _depth(value: object) -> int:
    if value not in STAGES or not isinstance(value, int):
        raise InputError(f"is {value!r}; must be one of {', '.join(map(str, STAGES))}")
    return value


def _image_size(value: object) -> int:
    size: int = whole(_MAX_IMAGE_SIZE)(value)
    if size % 32:
        raise InputError(f"is {size}; must be a multiple of 32")
    return size


def _operator(value: object) -> Operator:
    return Operator(**read_table(value, _OPERATOR))


_WIDE_RESNET = Keys(
    required={
        "architecture": _ARCHITECTURE,
        "depth": _depth,
        "channels": whole(MAX_WIDTH),
        "width_factor": whole(_MAX_WIDTH_FACTOR),
        "image_size": _image_size,
        "num_classes": whole(MAX_WIDTH),
    },
    optional=_TRAINING,
)
_OPERATOR = Keys(
    required={
        "name": text,
        "parameters": whole(least=0),
        "forward_flops": not_negative,
        "memory_traffic_bytes": not_negative,
        "activation_bytes": not_negative,
        "output_bytes": not_negative,
        "tensor_parallel_bytes": not_negative,
    }
)
_OPERATORS = Keys(
    required={"architecture": _ARCHITECTURE, "operators": list_of(_operator)},
    optional=_TRAINING,
)


def _keys(table: Mapping[str, object]) -> Keys:
    """Keys of the architecture that the table names; a wrong name is found with those of a transformer."""
    return {"wide-resnet": _WIDE_RESNET, "operators": _OPERATORS}.get(str(table.get("architecture")), _TRANSFORMER)


def _build(name: str, source: str, values: dict[str, Any]) -> _Model:  # noqa: ARG001 - as sections build values
    """Model of an entry, with one sequence per step.

    Raises
    ------
    InputError
        When the values contradict each other; pointers are relative to the entry.
    """
    architecture = values.pop("architecture", _Architecture.TRANSFORMER)
    if architecture is _Architecture.WIDE_RESNET:
        return WideResNet(**values)
    kind = Transformer if architecture is _Architecture.TRANSFORMER else OperatorModel
    model = kind(global_batch=1, name=name, **values)
    if issues := model_issues(model, ""):
        raise InputError("the model has faults", issues)
    return model


def _key(name: str) -> str:
    """Name without case and separators; the point of `1.3b` stays."""
    return "".join(character for character in name.lower() if character.isalnum() or character == ".")


_SECTION = Section(name="model", shipped=Path(__file__).with_name("models.toml"), keys=_keys, build=_build, key=_key)
