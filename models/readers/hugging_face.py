"""`config.json` of Hugging Face's transformers: which model types are read, and what all of them have.

The keys are those of the configuration classes (transformers 5.23), also under the names that older files have. A file
of several modalities is read for its text. Dropout, initialisation, scaling of positions and of logits cost nothing and
are not looked at.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from models.readers import families
from models.readers.base import ForeignModel, Reading
from models.readers.hugging_face_numerics import numerics_of
from models.transformer import Precision
from stowplan.errors import FileFormatError, InputError, Issue

_FAMILIES: Mapping[str, Callable[[Reading], dict[str, Any]]] = MappingProxyType(
    {
        "llama": families.llama,
        "mistral": families.mistral,
        "mixtral": families.mixtral,
        "qwen2": families.qwen2,
        "qwen2_moe": families.qwen2_moe,
        "qwen3": families.qwen3,
        "qwen3_moe": families.qwen3_moe,
        "deepseek_v2": families.deepseek,
        "deepseek_v3": families.deepseek,
        "gemma": families.gemma,
        "gemma2": families.gemma2,
        "gemma3_text": families.gemma3,
        "gpt_oss": families.gpt_oss,
        "llama4_text": families.llama4,
        "bloom": families.bloom,
        "opt": families.opt,
        "gpt_neox": families.gpt_neox,
        "gpt2": families.gpt2,
        "mpt": families.mpt,
    }
)
# Of several modalities: type -> type of its text_config.
_WITH_TEXT = MappingProxyType({"gemma3": "gemma3_text", "llama4": "llama4_text"})
# Weights are also kept in 32 bits of models that nobody trains so: that says nothing.
_PRECISIONS = MappingProxyType({"bfloat16": Precision.BF16, "float16": Precision.FP16})


def read_hugging_face(text: str) -> ForeignModel:
    """Read a config.json.

    Raises
    ------
    FileFormatError
        When the text is not JSON.
    InputError
        When it is no configuration of a known type, or of one that cannot be described.
    """
    try:
        document = json.loads(text, object_pairs_hook=_members)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise FileFormatError("is no object; a config.json has keys such as model_type and hidden_size")
    return describe(document)


def describe(document: Mapping[str, Any]) -> ForeignModel:
    """The model of a configuration.

    Raises
    ------
    InputError
        When it is none of a known type, or of one that cannot be described; pointers are relative to it.
    """
    reading = Reading(document)
    kind = document.get("model_type")
    if isinstance(kind, str) and kind in _WITH_TEXT:
        reading.note("of several modalities only the text is planned: encoders of pictures are not counted")
        if not document.get("text_config"):
            reading.refuse("text_config", "is missing; the sizes of the language model stand there", code="missing_key")
        reading, kind = reading.section("text_config"), _WITH_TEXT[kind]
    if not isinstance(kind, str) or kind not in _FAMILIES:
        known = ", ".join([*_FAMILIES, *_WITH_TEXT])
        what = "is missing" if kind is None else f"is {str(kind)[:60]!r}, which is not read"
        raise InputError(
            "the configuration is not of a known type",
            [Issue(code="unknown_model_type", pointer="/model_type", detail=f"{what}; known: {known}")],
        )
    dtype = str(document.get("dtype") or document.get("torch_dtype") or "").removeprefix("torch.")
    if document.get("quantization_config") is not None:
        reading.note("quantisation is not looked at: weights are planned in the precision of the training")
    model = reading.finish({**_FAMILIES[kind](reading), "precision": _PRECISIONS.get(dtype)})
    computing = Reading(reading.values)
    return replace(model, numerics=numerics_of(computing, kind), not_trained=tuple(computing.issues))


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:60]!r} occurs more than once")
    return members
