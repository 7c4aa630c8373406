import pytest

from models.catalogue import find_model, model_names
from models.performance.iteration.architecture import parameter_count, profile_of
from models.transformer import Checkpointing, OperatorModel, Optimizer, Precision, Transformer
from stowplan.errors import InputError
from tests.models.test_published_parameters import RELEASED

# Counts in the index files of the released weights (LLaMA paper, table 2: 6.7, 13.0, 32.5, 65.2 billion).
_RELEASED = {
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-7b": 7_615_616_512,
    "qwen2-72b": 72_706_203_648,
}
# Narayanan et al. 2021, tables 1 and 2, in billions.
_MEGATRON = {"gpt2-39b": 39.1, "gpt2-76b": 76.1, "gpt2-175b": 174.6}


def _count(name: str) -> float:
    return parameter_count(profile_of(find_model(name, global_batch=8)))


def _transformer(name: str) -> Transformer:
    model = find_model(name, global_batch=8)
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize("name", _RELEASED)
def test_released_models_to_the_parameter(name: str) -> None:
    assert _count(name) == _RELEASED[name]


@pytest.mark.parametrize("name", _MEGATRON)
def test_megatrons_table(name: str) -> None:
    assert _count(name) / 1e9 == pytest.approx(_MEGATRON[name], rel=0.001)


@pytest.mark.parametrize("name", [name for name in model_names() if name.startswith(("gpt2-", "bert-"))])
def test_gpt_against_alpas_count(name: str) -> None:
    """Alpa's own formula, l (12 h^2 + 13 h) + V (h + 1), which leaves out the learned positions and the last norm."""
    model = _transformer(name)
    h = model.hidden_size
    published = model.num_layers * (12 * h**2 + 13 * h) + model.vocabulary_size * (h + 1)
    assert _count(name) == pytest.approx(published, rel=0.004)


@pytest.mark.parametrize("name", [name for name in model_names() if name.startswith("moe-")])
def test_mixtures_against_alpas_count(name: str) -> None:
    """Alpa's own formula: every second layer has E feed-forward parts of size 8 h; without router and positions."""
    model = _transformer(name)
    h, half = model.hidden_size, model.num_layers / 2
    expert = 2 * 8 * h**2 + 9 * h
    attention_and_norms = 4 * h**2 + 4 * h + 4 * h
    published = half * (2 * attention_and_norms + (1 + model.num_experts) * expert) + model.vocabulary_size * (h + 1)
    assert _count(name) == pytest.approx(published, rel=0.002)


# Names say as much as they have digits: Alpa's 15B is one of 15.4 billion, and its 1.3B mixture one of 1.35 billion.
@pytest.mark.parametrize("name", [name for name in model_names() if name not in RELEASED])
def test_count_is_near_the_name(name: str) -> None:
    size = name.rsplit("-", 1)[1]
    named = float(size[:-1]) * {"m": 1e6, "b": 1e9}[size[-1]]
    # llama-30b has always had 32.5 billion.
    tolerance = {"llama-30b": 0.09, "llama2-7b": 0.04, "llama-7b": 0.04, "qwen2-7b": 0.09, "moe-1.3b": 0.04}
    assert _count(name) == pytest.approx(named, rel=tolerance.get(name, 0.03))


@pytest.mark.parametrize("name", model_names())
def test_every_model_has_a_profile(name: str) -> None:
    profile = profile_of(find_model(name, global_batch=64, micro_batch=2))
    assert profile.name == name
    assert (profile.global_batch, profile.micro_batch) == (64, 2)
    assert all(layer.forward_flops > 0 and layer.boundary_bytes > 0 for layer in profile.layers)


def test_names_are_unique_in_every_notation() -> None:
    keys = [name.replace("-", "") for name in model_names()]
    assert len(set(keys)) == len(keys) == 9 + 7 + 4 + 6 + 6 + 6 + len(RELEASED)


@pytest.mark.parametrize("name", ["LLaMA2-13B", "llama2_13b", "Llama 2 13B", "llama-2-13b"])
def test_notation_does_not_matter(name: str) -> None:
    assert find_model(name, global_batch=4) == find_model("llama2-13b", global_batch=4)


def test_names_of_arenas_tables() -> None:
    """Family and size as the artifact writes them."""
    assert find_model("wide_resnet-6.8B", global_batch=256).name == "wide-resnet-6.8b"
    assert find_model("moe-690M", global_batch=256).name == "moe-690m"
    bert = find_model("bert-1.3B", global_batch=128)
    assert isinstance(bert, Transformer)
    assert (bert.sequence_length, bert.precision) == (1024, Precision.FP16)


def test_what_is_given_overrules_the_catalogue() -> None:
    model = find_model(
        "qwen2-7b",
        global_batch=32,
        sequence_length=32768,
        precision=Precision.FP16,
        optimizer=Optimizer.SGD,
        checkpointing=Checkpointing.FULL,
        zero_stage=0,
    )
    assert isinstance(model, Transformer)
    assert (model.sequence_length, model.precision, model.optimizer) == (32768, Precision.FP16, Optimizer.SGD)
    assert (model.checkpointing, model.zero_stage, model.micro_batch) == (Checkpointing.FULL, 0, None)
    assert model.num_kv_heads == 4


def test_precision_of_a_wide_resnet_changes_its_operators() -> None:
    full = find_model("wide-resnet-1b", global_batch=256)
    half = find_model("wide-resnet-1b", global_batch=256, precision=Precision.FP16)
    assert isinstance(full, OperatorModel)
    assert isinstance(half, OperatorModel)
    assert (full.precision, half.precision) == (Precision.FP32, Precision.FP16)
    assert full.operators[3].output_bytes == 2 * half.operators[3].output_bytes


def test_wide_resnets_have_no_sequences() -> None:
    with pytest.raises(InputError, match="wide-resnet-1b is a list of operators and has no sequence_length"):
        find_model("wide-resnet-1b", global_batch=256, sequence_length=1024)
    with pytest.raises(InputError, match="has no sequence_length and no checkpointing; leave it out"):
        find_model("wide-resnet-1b", global_batch=256, sequence_length=1024, checkpointing=Checkpointing.FULL)


def test_unknown_name_gives_near_matches_and_all_names() -> None:
    with pytest.raises(InputError) as raised:
        find_model("llama2-14b", global_batch=8)
    assert "'llama2-14b'" in raised.value.detail
    assert "'llama2-13b'" in raised.value.detail
    assert raised.value.detail.endswith(", ".join(model_names()))
    with pytest.raises(InputError, match="no model 'xyzzy' in the catalogue; known: gpt2-350m"):
        find_model("xyzzy", global_batch=8)
