"""A folder of weights is held against the model that is to be trained before anything starts."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from executor.weights.families import family_of
from executor.weights.given import numerics_of
from models.numerics import Activation, Numerics, RotaryScaling
from models.transformer import Biases, Transformer
from stowplan.errors import InputError
from tests.executor.jobs import GPT, LLAMA

_SCALING = RotaryScaling(factor=8.0, low_factor=1.0, high_factor=4.0, original_length=16)
_STRETCHED = Numerics(rotary_base=5e5, rotary_scaling=_SCALING, norm_epsilon=1e-3, activation=Activation.SILU)

_MIXTRAL = replace(LLAMA, num_experts=4, experts_per_token=2)
_QWEN2 = replace(_MIXTRAL, biases=Biases.QKV, shared_expert_size=80, expert_feed_forward_size=40)
_QWEN3 = replace(_MIXTRAL, query_key_norms=True, first_dense_layers=1, expert_feed_forward_size=40)


def _folder(path: Path, model: Transformer, numerics: Numerics, **changes: Any) -> Path:
    family = family_of(model, numerics)
    assert family is not None
    (path / "config.json").write_text(json.dumps(family.config(model, numerics) | changes))
    return path


@pytest.mark.parametrize(
    ("model", "numerics"),
    [
        (GPT, Numerics(activation=Activation.GELU_TANH)),
        (replace(GPT, tied_embeddings=False), Numerics(activation=Activation.GELU)),
        (LLAMA, _STRETCHED),
        (replace(LLAMA, biases=Biases.QKV), _STRETCHED),
        (replace(LLAMA, query_key_norms=True, head_size=32), _STRETCHED),
        (_MIXTRAL, _STRETCHED),
        (_QWEN3, replace(_STRETCHED, normalised_routing=False)),
        (_QWEN2, replace(_STRETCHED, gated_shared_expert=True)),
    ],
)
def test_configuration_that_is_written_is_read_as_the_same_model(
    model: Transformer, numerics: Numerics, tmp_path: Path
) -> None:
    assert numerics_of(_folder(tmp_path, model, numerics), model) == numerics


@pytest.mark.parametrize(
    ("model", "numerics"),
    [
        (replace(GPT, biases=Biases.NONE), Numerics()),
        (replace(GPT, num_kv_heads=2), Numerics()),
        (replace(LLAMA, biases=Biases.ALL), Numerics()),
        (LLAMA, Numerics(activation=Activation.GELU)),
        # A shared expert without a gate, experts in some layers of Mixtral, weights that do not add up there.
        (_QWEN2, Numerics()),
        (replace(_MIXTRAL, first_dense_layers=1), Numerics()),
        (_MIXTRAL, Numerics(normalised_routing=False)),
        (replace(_MIXTRAL, biases=Biases.QKV), Numerics()),
        (replace(_MIXTRAL, gated=False), Numerics()),
    ],
)
def test_other_architectures_are_of_no_family(model: Transformer, numerics: Numerics) -> None:
    assert family_of(model, numerics) is None


def test_every_parameter_has_a_place_of_its_own() -> None:
    for model in (GPT, LLAMA, replace(LLAMA, query_key_norms=True), _MIXTRAL, _QWEN2, _QWEN3):
        family = family_of(model, Numerics(gated_shared_expert=model.shared_expert_size is not None))
        assert family is not None
        places = family.parameters(model).values()
        assert len({(place.tensor, place.part) for place in places}) == len(places)


def test_differences_are_named_where_the_model_says_them(tmp_path: Path) -> None:
    folder = _folder(tmp_path, LLAMA, _STRETCHED)
    other = replace(LLAMA, hidden_size=128, num_heads=8, feed_forward_size=None, sequence_length=8)
    with pytest.raises(InputError, match="those of another model") as refused:
        numerics_of(folder, other)
    assert {issue.pointer: issue.detail for issue in refused.value.issues} == {
        "/model/hidden_size": "is 128, in the config.json of the initial weights 64",
        "/model/num_heads": "is 8, in the config.json of the initial weights 4",
        "/model/feed_forward_size": "is 512, in the config.json of the initial weights 96",
    }


def test_other_experts_are_named(tmp_path: Path) -> None:
    folder = _folder(tmp_path, _QWEN3, _STRETCHED)
    other = replace(_QWEN3, num_experts=8, experts_per_token=1, expert_feed_forward_size=48, first_dense_layers=0)
    with pytest.raises(InputError, match="those of another model") as refused:
        numerics_of(folder, other)
    assert {issue.pointer for issue in refused.value.issues} == {
        *("/model/num_experts", "/model/experts_per_token", "/model/expert_feed_forward_size"),
        "/model/first_dense_layers",
    }
    # Mixtral has no dense layers: their size is nobody's.
    assert numerics_of(_folder(tmp_path, _MIXTRAL, _STRETCHED), _MIXTRAL) == _STRETCHED


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"rope_scaling": {"rope_type": "yarn"}}, "config.json: rope_scaling/rope_type is 'yarn'"),
        ({"attention_bias": True}, "config.json: attention_bias is True: a bias of attention alone"),
        ({"model_type": "mamba"}, "config.json: model_type is 'mamba', which is not read"),
    ],
)
def test_what_cannot_be_trained_is_named(changes: dict[str, Any], detail: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        numerics_of(_folder(tmp_path, LLAMA, _STRETCHED, **changes), LLAMA)
    (issue,) = refused.value.issues
    assert issue.pointer == "/initial_weights"
    assert detail in issue.detail


def test_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no config"):
        numerics_of(tmp_path, LLAMA)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="is not JSON"):
        numerics_of(tmp_path, LLAMA)
