"""A folder of Hugging Face whose weights a training is to start from: does it hold the model that is trained?"""

from dataclasses import replace
from pathlib import Path

from models.dimensions import Dimensions
from models.numerics import Numerics
from models.performance.iteration.layer_sizes import LayerKind
from models.readers import read_model_file
from models.transformer import Transformer
from stowplan.errors import FileFormatError, InputError, Issue

# What must be the same beside the sizes; sequences may be of another length, and weights are converted.
_SAME = (
    *("num_layers", "hidden_size", "vocabulary_size", "gated", "normalisation", "biases", "positions"),
    *("tied_embeddings", "query_key_norms", "kv_rank", "post_norms", "attention_window"),
    *("num_experts", "experts_per_token", "expert_interval", "first_dense_layers", "shared_expert_size"),
)


def numerics_of(folder: Path, model: Transformer) -> Numerics:
    """What the model in a folder computes with, as its config.json says.

    Raises
    ------
    InputError
        When there is no such file, its model is another one, or it asks for what the trainer has not; all differences,
        with pointers below `/model`, or at `/initial_weights`.
    """
    where = "/initial_weights"
    if not (folder / "config.json").is_file():
        raise InputError(
            "there are no weights to start from",
            [Issue(code="no_weights", pointer=where, detail=f"is {str(folder)!r}; that folder has no config.json")],
        )
    try:
        found = read_model_file(folder)
        theirs = found.transformer(global_batch=model.global_batch)
    except FileFormatError as error:
        raise InputError(
            "the weights cannot be read", [Issue(code="no_weights", pointer=where, detail=error.detail)]
        ) from error
    except InputError as error:
        issues = [_in_config(issue, where) for issue in error.issues]
        raise InputError("the trainer cannot start from these weights", issues) from error
    if found.numerics is None:
        issues = [_in_config(issue, where) for issue in found.not_trained]
        raise InputError("the trainer cannot start from these weights", issues)
    differences = [(name, getattr(theirs, name), getattr(model, name)) for name in _SAME]
    sizes, wanted = Dimensions.of(theirs), Dimensions.of(model)
    has_dense = not all(LayerKind.of(model, k).experts for k in range(model.num_layers))
    differences += [
        (pointer, getattr(sizes, name), getattr(wanted, name))
        for name, pointer in (
            ("heads", "num_heads"),
            ("kv_heads", "num_kv_heads"),
            ("head", "head_size"),
            *((("expert", "expert_feed_forward_size"),) if model.num_experts > 1 else ()),
            *((("feed_forward", "feed_forward_size"),) if has_dense else ()),
        )
    ]
    issues = [
        Issue(
            code="other_weights",
            pointer=f"/model/{name}",
            detail=f"is {_shown(here)}, in the config.json of the initial weights {_shown(there)}",
        )
        for name, there, here in differences
        if there != here
    ]
    if issues:
        raise InputError("the initial weights are those of another model", issues)
    return found.numerics


def _in_config(issue: Issue, where: str) -> Issue:
    return replace(issue, pointer=where, detail=f"config.json: {issue.pointer.lstrip('/')} {issue.detail}")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
