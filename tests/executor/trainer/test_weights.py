"""Checkpoints of Hugging Face: `transformers` computes the same from what we read and from what we write."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from executor.token_stream import open_stream
from executor.trainer.context import LayerContext
from executor.trainer.documents import Documents
from executor.trainer.layers import layers_of
from executor.training_job import TrainingJob
from executor.training_layout import StageLayout
from executor.training_options import EngineName, Schedule
from executor.weights.given import numerics_of
from models.readers import read_model_file
from models.transformer import Precision
from stowplan.errors import InputError
from tests.executor.jobs import tiny_job
from tests.executor.trainer.launching import run_job, steps_of
from tests.executor.trainer.reference import Sequence

transformers = pytest.importorskip("transformers", reason="needs transformers: pip install -e '.[dev]' in a checkout")

pytestmark = [pytest.mark.slow, pytest.mark.training]

# 101 rows do not divide by 2, so tensor parallelism must pad them.
_SIZES: dict[str, Any] = {
    "vocab_size": 101,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
_QWEN_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 20}
_GPT2 = {"vocab_size": 101, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32}
CONFIGS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "llama2": ("llama", _SIZES),
    "llama3": ("llama", _SIZES | {"rope_parameters": _LLAMA3, "rms_norm_eps": 1e-3, "tie_word_embeddings": True}),
    "qwen2": ("qwen2", _SIZES | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen3": ("qwen3", _SIZES | {"head_dim": 16}),
    "mixtral": ("mixtral", _SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2-moe": ("qwen2_moe", _SIZES | _QWEN_EXPERTS | {"shared_expert_intermediate_size": 24}),
    "qwen3-moe": (
        "qwen3_moe",
        _SIZES | _QWEN_EXPERTS | {"head_dim": 16, "num_experts_per_tok": 3, "norm_topk_prob": True},
    ),
    "qwen3-moe-in-the-second-layer": (
        "qwen3_moe",
        _SIZES | _QWEN_EXPERTS | {"head_dim": 16, "decoder_sparse_step": 2, "tie_word_embeddings": True},
    ),
    "gpt2": ("gpt2", _GPT2),
    "gpt2-untied": ("gpt2", _GPT2 | {"activation_function": "gelu", "n_inner": 48, "tie_word_embeddings": False}),
}


def _model(name: str) -> Any:
    """A model of transformers, always with the same random numbers, also where it begins with zeros and ones."""
    model_type, keys = CONFIGS[name]
    config = transformers.AutoConfig.for_model(model_type, **keys)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.2 * torch.randn(parameter.shape, generator=generator) + (parameter.dim() == 1))
    return model


def _stored(name: str, folder: Path) -> Path:
    _model(name).save_pretrained(folder)
    return folder


def _job(folder: Path, zero_stage: int = 1, **more: Any) -> TrainingJob:
    """A training that begins with the weights in a folder."""
    sizes: dict[str, Any] = {"global_batch": 8, "precision": Precision.FP32, "sequence_length": 16}
    model = read_model_file(folder).transformer(**sizes, zero_stage=zero_stage)
    return tiny_job(model, initial_weights=str(folder), numerics=numerics_of(folder, model), **more)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    _check_logits(name, _job(_stored(name, tmp_path), stage_layers=(2,), engine=EngineName.NATIVE))


@pytest.mark.parametrize("name", ["mixtral", "qwen3-moe"])
def test_experts_that_stand_in_one_tensor_are_found(name: str, tmp_path: Path) -> None:
    """As transformers 5 holds them."""
    _model(name).save_pretrained(tmp_path, save_original_format=False)
    assert "model.layers.1.mlp.experts.gate_up_proj" in load_file(tmp_path / "model.safetensors")
    _check_logits(name, _job(tmp_path, stage_layers=(2,), engine=EngineName.NATIVE))


def _check_logits(name: str, job: TrainingJob) -> None:
    tokens = torch.from_numpy(open_stream(job).batch(0, 3))[:, :-1]
    with torch.no_grad():
        ours = Sequence(layers_of(job, LayerContext()))(tokens)
        theirs = _model(name)(tokens).logits
    assert theirs.std() > 0.5
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_of_packed_documents_are_those_of_each_alone(name: str, tmp_path: Path) -> None:
    job = _job(_stored(name, tmp_path), stage_layers=(2,), engine=EngineName.NATIVE)
    tokens = torch.from_numpy(open_stream(job).batch(0, 2))[:, :-1]
    starts = np.zeros(tokens.shape, dtype=np.bool_)
    starts[:, 0] = starts[0, 5] = starts[0, 6] = starts[1, 11] = True
    model = _model(name)
    with torch.no_grad():
        ours = Sequence(layers_of(job, LayerContext()))(tokens, Documents.beginning_at(starts))
        for sequence, first, end in ((0, 0, 5), (0, 5, 6), (0, 6, 16), (1, 0, 11), (1, 11, 16)):
            theirs = model(tokens[sequence : sequence + 1, first:end]).logits[0]
            torch.testing.assert_close(ours[sequence, first:end], theirs, rtol=0, atol=1e-4)
        assert (ours - model(tokens).logits).abs().max() > 0.1


# Two replicas, then two tensor ranks.
_UNEVEN = {
    "engine": EngineName.NATIVE,
    "stages": (
        StageLayout(num_layers=1, tp=1, batches=(1, 1)),
        StageLayout(num_layers=1, tp=2, batches=(2,)),
    ),
    "num_micro_batches": 4,
}
_DIVIDED = _UNEVEN | {"stages": (StageLayout(num_layers=1, tp=1, batches=(1, 1)),) * 2, "expert_parallel": 2}


@pytest.mark.parametrize(
    ("name", "layout", "zero_stage"),
    [
        ("gpt2", {"stage_layers": (1, 1), "tp": 2}, 1),
        ("qwen3", _UNEVEN, 3),
        ("mixtral", _UNEVEN, 1),
        ("qwen2-moe", _DIVIDED, 3),
    ],
    ids=["gpt2-deepspeed", "qwen3-native-zero-3", "mixtral", "qwen2-moe-divided-zero-3"],
)
def test_every_rank_reads_and_writes_its_part(
    name: str, layout: dict[str, Any], zero_stage: int, tmp_path: Path
) -> None:
    """Two stages of two ranks that learn nothing: what they write is what they read, and what they compute is
    what transformers computes."""
    folder = _stored(name, tmp_path / "given")
    (folder / "tokenizer.json").write_text("{}")
    still = Schedule(learning_rate=0.0, weight_decay=0.0)
    paths = {"final_weights": str(tmp_path / "weights"), "metrics_folder": str(tmp_path)}
    job = _job(folder, zero_stage, **layout, num_steps=1, schedule=still, **paths)
    run_job(job, tmp_path)
    model, tokens = _model(name), torch.from_numpy(open_stream(job).batch(0, 8))
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert steps_of(tmp_path, 3)[0].loss == pytest.approx(float(loss), abs=1e-5)
    written = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "weights", attn_implementation="eager")
    found, wanted = written.state_dict(), model.state_dict()
    # Of learned positions there are as many as a sequence has tokens.
    assert {key: t.shape for key, t in found.items()} == {
        key: (16, 32) if key.endswith("wpe.weight") else t.shape for key, t in wanted.items()
    }
    assert all(torch.equal(tensor, wanted[key][: len(tensor)]) for key, tensor in found.items())
    with torch.no_grad():
        torch.testing.assert_close(written(tokens[:, :-1]).logits, model(tokens[:, :-1]).logits)
    assert (tmp_path / "weights" / "tokenizer.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("name", "change", "detail"),
    [
        ("llama2", lambda tensors: tensors.pop("model.norm.weight"), "has no tensor model.norm.weight, which a llama"),
        (
            "gpt2",
            lambda tensors: tensors.update({"transformer.h.1.attn.c_attn.weight": torch.zeros(32, 64)}),
            r"c_attn.weight has the shape \[32, 64\]; the model of the job has \[32, 96\]",
        ),
    ],
)
def test_tensors_of_another_model_are_named(name: str, change: Any, detail: str, tmp_path: Path) -> None:
    job = _job(_stored(name, tmp_path), stage_layers=(2,))
    tensors = load_file(tmp_path / "model.safetensors")
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=detail):
        Sequence(layers_of(job, LayerContext()))


def test_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    job = _job(_stored("llama2", tmp_path), stage_layers=(2,))
    (tmp_path / "model.safetensors").write_text("no")
    with pytest.raises(InputError, match=r"model\.safetensors cannot be read as safetensors"):
        layers_of(job, LayerContext())
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="save_pretrained of transformers makes such"):
        layers_of(job, LayerContext())
