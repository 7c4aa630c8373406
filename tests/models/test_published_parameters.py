"""Parameters of the catalogue's models against the released ones.

`RELEASED`: numbers of parameters that the model classes of the library `transformers` 5.23 have, built without memory
(`torch.device("meta")`) from the configurations of the released weights; text only (Llama 4, Gemma 3).
"""

from collections.abc import Callable

import pytest

from models.catalogue import find_model, model_names
from models.dimensions import Dimensions
from models.performance.iteration.architecture import parameter_count, profile_of
from models.transformer import Biases, Transformer

RELEASED = {
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-8b": 8_030_261_248,
    "llama3.1-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_630_071_296,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_404_352,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2-57b-a14b": 57_408_658_944,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "gemma2-27b": 27_227_128_320,
    "gemma3-1b": 999_885_952,
    "gemma3-4b": 3_880_263_168,
    "gemma3-12b": 11_766_034_176,
    "gemma3-27b": 27_009_346_304,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "llama4-scout": 107_769_861_120,
    "llama4-maverick": 400_711_848_960,
    "bloom-560m": 559_214_592,
    "bloom-1b1": 1_065_314_304,
    "bloom-1b7": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "bloom-7b1": 7_069_016_064,
    "bloom-176b": 176_247_271_424,
    "opt-125m": 125_239_296,
    "opt-1.3b": 1_315_758_080,
    "opt-2.7b": 2_651_596_800,
    "opt-6.7b": 6_658_473_984,
    "opt-13b": 12_853_473_280,
    "opt-30b": 29_974_540_288,
    "opt-66b": 65_719_701_504,
    "opt-175b": 174_604_468_224,
    "gpt-neox-20b": 20_554_567_680,
    "pythia-70m": 70_426_624,
    "pythia-160m": 162_322_944,
    "pythia-410m": 405_334_016,
    "pythia-1b": 1_011_781_632,
    "pythia-1.4b": 1_414_647_808,
    "pythia-2.8b": 2_775_208_960,
    "pythia-6.9b": 6_857_302_016,
    "pythia-12b": 11_846_072_320,
    "mpt-7b": 6_649_286_656,
    "mpt-30b": 29_957_200_896,
}

# What `Transformer` does not describe: released parameters less described ones.
_NOT_DESCRIBED: dict[str, Callable[[Transformer], int]] = {
    # Two rows of the table of positions that no token uses.
    "opt": lambda model: 2 * model.hidden_size,
    # A layer norm behind the embedding.
    "bloom": lambda model: 2 * model.hidden_size,
    # Layer norms without biases, described as with.
    "mpt": lambda model: -(2 * model.num_layers + 1) * model.hidden_size,
    # A bias of the router, a sink of every attention head.
    "gpt-oss": lambda model: model.num_layers * (model.num_experts + (model.num_heads or 0)),
    # A gate of the shared expert.
    "qwen2-57b": lambda model: model.num_layers * model.hidden_size,
}

# Billions of parameters that work on a token, as published, in the digits published; and whether the embedding, of
# which a token uses one row, is among them.
_ACTIVE = {
    "mixtral-8x7b": ("13", True),
    "mixtral-8x22b": ("39", True),
    "llama4-scout": ("17", True),
    "llama4-maverick": ("17", True),
    "deepseek-v2-lite": ("2.4", False),
    "deepseek-v2": ("21", True),
    "deepseek-v3": ("37", True),
    "qwen2-57b-a14b": ("14", True),
    "qwen3-30b-a3b": ("3.3", True),
    "qwen3-235b-a22b": ("22", True),
    "gpt-oss-20b": ("3.61", False),
    "gpt-oss-120b": ("5.13", False),
}


def not_described(name: str, model: Transformer) -> int:
    """Released parameters of a model of this name less those of its description."""
    return sum(count(model) for family, count in _NOT_DESCRIBED.items() if name.startswith(family))


def _transformer(name: str) -> Transformer:
    model = find_model(name, global_batch=1)
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize("name", RELEASED)
def test_parameters_are_those_released(name: str) -> None:
    model = _transformer(name)
    rest = not_described(name, model)
    assert parameter_count(profile_of(model)) + rest == RELEASED[name]
    assert abs(rest) < 5e-5 * RELEASED[name]


@pytest.mark.parametrize("name", _ACTIVE)
def test_active_parameters_are_those_published(name: str) -> None:
    model, (published, with_embedding) = _transformer(name), _ACTIVE[name]
    profile = profile_of(model)
    first = model.first_dense_layers
    mixtures = sum(k >= first and (k + 1) % model.expert_interval == 0 for k in range(model.num_layers))
    h, inner = model.hidden_size, Dimensions.of(model).expert
    expert = 3 * h * inner + (2 * inner + h if model.biases is Biases.ALL else 0)
    active = parameter_count(profile) - mixtures * (model.num_experts - model.experts_per_token) * expert
    if not with_embedding:
        active -= profile.embedding.parameters
    # Some round, some cut off.
    digit = 10.0 ** -len(published.partition(".")[2])
    assert float(published) - 0.5 * digit <= active / 1e9 < float(published) + digit


def test_mixtures_of_the_catalogue_are_all_here() -> None:
    """But those of Alpa's benchmark, which nobody released."""
    mixtures = [name for name in model_names() if getattr(find_model(name, global_batch=1), "num_experts", 1) > 1]
    assert {name for name in mixtures if not name.startswith("moe-")} == set(_ACTIVE)
