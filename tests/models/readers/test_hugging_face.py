"""`config.json` of every family, and files that are wrong.

The samples were made by the configuration classes of `transformers` 5.23 from the sizes of released models (llama4 and
gemma3, of several modalities, with the sizes of the classes; what says nothing of sizes was taken out), the parameters
counted by its model classes.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from models.catalogue import find_model, model_names
from models.dimensions import Dimensions
from models.performance.iteration.architecture import parameter_count, profile_of
from models.readers import read_model_file
from models.readers.hugging_face import describe, read_hugging_face
from models.transformer import Positions, Precision, Transformer
from stowplan.errors import FileFormatError, InputError
from tests.models.test_published_parameters import not_described

_SAMPLES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("hugging_face_samples.json").read_text(encoding="utf-8")
)
_LLAMA = _SAMPLES["llama3.1-8b"]["config"]


def _with(name: str, **changes: Any) -> dict[str, Any]:
    return {**_SAMPLES[name]["config"], **changes}


@pytest.mark.parametrize("name", _SAMPLES)
def test_parameters_are_those_of_the_model_class(name: str, tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(_SAMPLES[name]["config"]), encoding="utf-8")
    model = read_model_file(file).transformer()
    assert read_model_file(tmp_path).transformer() == model
    assert parameter_count(profile_of(model)) + not_described(name, model) == _SAMPLES[name]["parameters"]


@pytest.mark.parametrize("name", [name for name in _SAMPLES if name in model_names()])
def test_costs_are_those_of_the_catalogue(name: str) -> None:
    """Whatever is left to defaults there: layers of both kinds cost the same, windows and experts lie alike."""
    known = find_model(name, global_batch=1)
    assert isinstance(known, Transformer)
    model = describe(_SAMPLES[name]["config"]).transformer(
        sequence_length=known.sequence_length, precision=known.precision
    )
    assert Dimensions.of(model) == Dimensions.of(known)
    assert profile_of(model).layers == profile_of(known).layers
    assert profile_of(model).tensor_units == profile_of(known).tensor_units


def test_older_files() -> None:
    """The keys of a file of Llama 3.1 8B from 2024, without what came later."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 131072,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "torch_dtype": "bfloat16",
        "vocab_size": 128256,
    }
    read = describe(config)
    assert parameter_count(profile_of(read.transformer())) == _SAMPLES["llama3.1-8b"]["parameters"]
    assert (read.fields["sequence_length"], read.fields["precision"]) == (8192, Precision.BF16)
    bloom = {"model_type": "bloom", "n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "vocab_size": 250880}
    assert describe(bloom).transformer() == describe(_SAMPLES["bloom-560m"]["config"]).transformer()


def test_text_of_a_release_that_leaves_out_defaults() -> None:
    """Gemma 3 4B: five of its sizes stand in the file."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    read = describe({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **text}})
    assert parameter_count(profile_of(read.transformer())) == 3_880_263_168
    assert any("encoders of pictures" in note.text for note in read.notes)


def test_how_long_sequences_are_is_said() -> None:
    read = describe(_with("llama3.1-8b", max_position_embeddings=131072))
    assert read.fields["sequence_length"] == 8192
    assert any("131,072 are possible" in note.text for note in read.notes)
    scaled = _with("llama3.1-8b", rope_scaling={"original_max_position_embeddings": 4096})
    scaled.pop("rope_parameters")
    assert describe(scaled).fields["sequence_length"] == 4096
    # A table of positions has the rows that it has.
    assert describe(_with("gpt2", n_positions=16384)).fields["sequence_length"] == 16384


def test_patterns_of_layers() -> None:
    types = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    model = describe(_with("gpt-oss-20b", num_hidden_layers=4, layer_types=types)).transformer()
    assert (model.attention_window, model.global_attention_interval) == (128, 3)
    model = describe(_with("gpt-oss-20b", num_hidden_layers=2, layer_types=["sliding_attention"] * 2)).transformer()
    assert (model.attention_window, model.global_attention_interval) == (128, None)
    model = describe(_with("gpt-oss-20b", num_hidden_layers=2, layer_types=["full_attention"] * 2)).transformer()
    assert (model.attention_window, model.global_attention_interval) == (None, None)
    window = {"use_sliding_window": True, "sliding_window": 512, "layer_types": None}
    assert describe(_with("qwen2.5-0.5b", **window, max_window_layers=0)).fields["attention_window"] == 512
    assert "attention_window" not in describe(_with("qwen2.5-0.5b", **window, max_window_layers=24)).fields


def test_mpt_without_alibi() -> None:
    config = _with("mpt-7b", attn_config={"alibi": False}, no_bias=False)
    model = describe(config).transformer()
    assert (model.positions, model.biases.value) == (Positions.LEARNED, "all")


@pytest.mark.parametrize(
    ("config", "pointer", "detail"),
    [
        ({}, "/model_type", "is missing; known: llama, "),
        ({"model_type": "clip_vision_model"}, "/model_type", "is 'clip_vision_model', which is not read; known: "),
        ({"model_type": ["llama"]}, "/model_type", "which is not read"),
        ({"model_type": "gemma3"}, "/text_config", "the sizes of the language model stand there"),
        ({"model_type": "llama4", "text_config": [1]}, "/text_config", "must be a table"),
        (_with("llama3.1-8b", hidden_size=None), "/hidden_size", "is missing; a whole number from 1 on"),
        (
            _with("llama3.1-8b", hidden_size="4096"),
            "/hidden_size",
            "is '4096'; must be a whole number from 1 to 10000000",
        ),
        (_with("llama3.1-8b", hidden_size=True), "/hidden_size", "must be a whole number"),
        (_with("llama3.1-8b", num_hidden_layers=10**400), "/num_hidden_layers", "from 1 to 100000"),
        (_with("llama3.1-8b", num_hidden_layers=float("nan")), "/num_hidden_layers", "must be a whole number"),
        (_with("llama3.1-8b", attention_bias=True), "/attention_bias", "a bias of attention alone has no place"),
        (_with("llama3.1-8b", num_key_value_heads=5), "/num_kv_heads", "do not divide the 32 attention heads"),
        (_with("deepseek-v3", moe_layer_freq=2), "/moe_layer_freq", "dense layers between"),
        (_with("deepseek-v3", num_experts_per_tok=None), "/num_experts_per_tok", "is missing"),
        (_with("qwen3-30b-a3b", mlp_only_layers=[3]), "/mlp_only_layers", "dense layers that are not the first ones"),
        (
            _with("gpt-oss-20b", layer_types=["full_attention"] + ["sliding_attention"] * 23),
            "/layer_types",
            "another pattern",
        ),
        (_with("gpt-oss-20b", layer_types=["linear_attention"] * 24), "/layer_types", "another pattern"),
        (
            _with("qwen2.5-0.5b", use_sliding_window=True, sliding_window=512, max_window_layers=3, layer_types=None),
            "/max_window_layers",
            "a window from one layer on",
        ),
        (_with("llama4-maverick", moe_layers=[3, 5]), "/moe_layers", "experts that are not in every so-many-th layer"),
        (_with("opt-125m", word_embed_proj_dim=512), "/word_embed_proj_dim", "an embedding narrower"),
        (_with("opt-125m", do_layer_norm_before=False), "/do_layer_norm_before", "a norm behind the sum"),
        (_with("mpt-7b", attn_config={"qk_ln": True}), "/attn_config/qk_ln", "this attention"),
        (_with("gpt2", add_cross_attention="yes"), "/add_cross_attention", "is 'yes'; must be true or false"),
    ],
)
def test_what_is_refused(config: dict[str, Any], pointer: str, detail: str) -> None:
    with pytest.raises(InputError) as raised:
        describe(config)
    found = {issue.pointer: issue.detail for issue in raised.value.issues}
    assert pointer in found, found
    assert detail in found[pointer]


def test_all_faults_at_once() -> None:
    with pytest.raises(InputError, match="the description of the model has 3 faults") as raised:
        describe(_with("llama3.1-8b", hidden_size=None, vocab_size=-1, mlp_bias=True))
    assert [issue.pointer for issue in raised.value.issues] == ["/mlp_bias", "/hidden_size", "/vocab_size"]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (json.dumps(_LLAMA)[:200], "is not JSON: "),
        ("[1, 2]", "is no object"),
        ('{"model_type": "llama", "model_type": "mistral"}', "the key 'model_type' occurs more than once"),
        ("[" * 100_000, "is not JSON: "),
    ],
)
def test_what_is_no_configuration(text: str, detail: str) -> None:
    with pytest.raises(FileFormatError) as raised:
        read_hugging_face(text)
    assert detail in raised.value.detail
