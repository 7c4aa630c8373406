"""Arguments of Megatron-LM: a script that starts `pretrain_gpt.py`, a file of arguments, or the list of arguments that
a run prints (`  hidden_size ......... 4096`).

Of a script its literal assignments are filled in (`HIDDEN=4096`, `--hidden-size $HIDDEN`); nothing is executed. The
last of several values holds, as for Megatron. Defaults are those of `megatron/training/arguments.py`.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from models.readers.base import MAX_DEGREE, FilePlan, ForeignModel, Reading, layers_by_stage
from models.readers.megatron_model import model_fields, padded_vocabulary, recomputed_layers
from models.software import Software
from models.transformer import MAX_LAYERS, MAX_TOKENS, Checkpointing, Optimizer, Precision
from stowplan.errors import FileFormatError

_FLAG = re.compile(r"--([A-Za-z][\w-]*)(?:=(.*))?", re.DOTALL)
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^${}]*))?\})")
_PRINTED = re.compile(r"(?:.*?[\]:]\s*|\s*)([a-z][a-z0-9_]*) \.{3,} ?(.*?)\s*")
_GROUP, _REPEATED = re.compile(r"\(([^()]*)\)\*(\d{1,6})"), re.compile(r"(.)\*(\d{1,6})")
# Longer words and values are no arguments of a model.
_MAX_TEXT, _MAX_VALUE = 1000, 200
_OPTIMIZERS = MappingProxyType({"adam": Optimizer.ADAM, "sgd": Optimizer.SGD})


def read_megatron(text: str) -> ForeignModel:
    """Read arguments.

    Raises
    ------
    FileFormatError
        When there are none.
    InputError
        When they describe no model, or one that cannot be described; pointers name the argument.
    """
    values = dict(_printed(text)) or _arguments(text)
    if not values:
        raise FileFormatError("has no arguments such as --num-layers 32; is it a script of Megatron-LM?")
    reading = Reading(values)
    plan = _plan(reading)
    fields = model_fields(reading)
    fields["vocabulary_size"] = padded_vocabulary(reading, plan.tp)
    return reading.finish(fields | _training(reading), plan)


def _arguments(text: str) -> dict[str, Any]:
    """Arguments of a script, `--num-layers` -> its value, True where it has none."""
    try:
        tokens = list(_words(shlex.split(text, comments=True)))
    except ValueError as error:
        raise FileFormatError(f"cannot be split into words as a shell does: {str(error).lower()}") from error
    assigned: dict[str, str] = {}
    values: dict[str, Any] = {}
    last = None
    for token in tokens:
        flag = _FLAG.fullmatch(token)
        if flag is not None:
            last = f"--{flag[1].replace('_', '-')}"
            values[last] = True if flag[2] is None else _filled(flag[2], assigned)
        elif (found := _ASSIGNED.fullmatch(token)) is not None:
            assigned[found[1]], last = _filled(found[2], assigned), None
        elif last is not None:
            if values[last] is True and not token.startswith(("\n", ")", ";", "|", "&", ">")):
                values[last] = _filled(token, assigned)
            last = None
    return {key: _literal(value) for key, value in values.items()}


def _words(tokens: list[str]) -> Iterator[str]:
    """Words of tokens, of which some are quoted lists of arguments."""
    for token in tokens:
        found = _ASSIGNED.fullmatch(token)
        inner = found[2] if found is not None else token
        if "--" in inner and (len(inner.split()) > 1 or inner.startswith("(")):
            yield from inner.strip("()").split()
        elif token not in ("(", ")"):
            yield token.removesuffix(")") if token.count(")") > token.count("(") else token


def _filled(text: str, assigned: Mapping[str, str]) -> str:
    """A text with variables replaced, as far as they are known."""
    if "$" not in text or len(text) > _MAX_TEXT:
        return text

    def value(found: re.Match[str]) -> str:
        return assigned.get(found[1] or found[2], found[0] if found[3] is None else found[3])[:_MAX_VALUE]

    return _VARIABLE.sub(value, text)


def _printed(text: str) -> Iterator[tuple[str, Any]]:
    """Arguments that a run has printed."""
    for line in text.splitlines():
        if " ..." in line and (found := _PRINTED.fullmatch(line[:_MAX_TEXT])) is not None:
            value = _literal(found[2])
            if value is not None and value is not False:
                yield f"--{found[1].replace('_', '-')}", value
            elif found[1] in ("add_bias_linear", "add_position_embedding"):
                yield f"--{found[1].replace('_', '-')}", False


def _literal(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value in ("None", "True", "False"):
        return {"None": None, "True": True, "False": False}[value]
    # Longer ones are no numbers, and int() would take long to say so.
    return int(value) if re.fullmatch(r"[+-]?\d{1,25}", value) else value


def _plan(reading: Reading) -> FilePlan:
    """Degrees, and GPUs where the launcher says how many."""

    def degree(*names: str) -> int:
        return reading.number(*(f"--{name}" for name in names), most=MAX_DEGREE, default=1)

    world = reading.optional("--world-size", most=MAX_DEGREE)
    nodes, each = (reading.given(key) for key in ("--nnodes", "--nproc-per-node"))
    if world is None and isinstance(nodes, int) and isinstance(each, int):
        world = degree("nnodes") * degree("nproc-per-node")
    pp = degree("pipeline-model-parallel-size")
    parts = layers_by_stage(_part_layers(reading), pp) or {"virtual_stages": _virtual_stages(reading, pp)}
    return FilePlan(
        pp=pp,
        tp=degree("tensor-model-parallel-size"),
        cp=degree("context-parallel-size"),
        ep=degree("expert-model-parallel-size"),
        num_gpus=world,
        recomputed_layers=recomputed_layers(reading, "--recompute"),
        **parts,
    )


def _part_layers(reading: Reading) -> tuple[int, ...]:
    """Layers of every part of a pipeline, `Et*3|(t|)*2tL`: 3, 1, 1, 1; none where no layout is given."""
    name = "--pipeline-model-parallel-layout"
    text = str(reading.given(name) or "").replace(",", "")
    if len(text) > _MAX_TEXT or any(int(found[2]) > MAX_LAYERS for found in _REPEATED.finditer(text)):
        reading.refuse(name, "is too long for a layout of layers")
        return ()
    for pattern in (_GROUP, _REPEATED):
        text = pattern.sub(lambda found: (found[1] * int(found[2]))[:MAX_LAYERS], text)
    return tuple(part.count("t") for part in text.split("|")) if text else ()


def _virtual_stages(reading: Reading, pp: int) -> int:
    """Parts of a stage where they are equal."""
    given = reading.number("--num-virtual-stages-per-pipeline-rank", most=MAX_LAYERS, default=1)
    each = reading.optional("--num-layers-per-virtual-pipeline-stage", most=MAX_LAYERS)
    layers = reading.given("--num-layers")
    return max(1, layers // (pp * each)) if each is not None and isinstance(layers, int) else given


def _training(reading: Reading) -> dict[str, Any]:
    if reading.given("--rampup-batch-size") is not None:
        reading.note("--rampup-batch-size: the batch is planned at its full size")
    precision = Precision.FP32
    for name in (Precision.BF16, Precision.FP16):
        if reading.given(f"--{name.value}") is True:
            precision = name
    if reading.given("--fp8-format") is not None or reading.given("--fp8") is not None:
        precision = Precision.MXFP8 if reading.given("--fp8-recipe") == "mxfp8" else Precision.FP8
    old = reading.given("--use-legacy-models") is True or reading.given("--transformer-impl") == "local"
    granularity = reading.word(
        "--recompute-granularity", {kind.value: kind for kind in Checkpointing}, default=Checkpointing.NONE.value
    )
    if reading.given("--recompute-activations") is True:
        granularity = Checkpointing.SELECTIVE
    return {
        "global_batch": reading.optional("--global-batch-size", most=MAX_TOKENS),
        "micro_batch": reading.optional("--micro-batch-size", most=MAX_TOKENS),
        "precision": precision,
        "optimizer": reading.word("--optimizer", _OPTIMIZERS, default="adam"),
        "checkpointing": granularity,
        "zero_stage": 1 if reading.given("--use-distributed-optimizer") is True else 0,
        "software": Software.MEGATRON_LM if old else Software.MEGATRON_CORE,
        "sequence_parallel": reading.given("--sequence-parallel") is True,
    }
