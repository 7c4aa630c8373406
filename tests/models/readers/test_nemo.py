"""YAML of NeMo's Megatron models, and files that are wrong."""

from pathlib import Path

import pytest

from models.catalogue import find_model
from models.performance.iteration.architecture import parameter_count, profile_of
from models.readers import FilePlan, read_model_file
from models.readers.nemo import read_nemo
from models.software import Software
from models.transformer import Biases, Checkpointing, Positions, Precision
from stowplan.errors import FileFormatError, InputError

# As the launcher's configurations of Llama 2 are written, with the interpolations of its defaults.
_LLAMA = """
trainer:
  devices: 8
  num_nodes: 16
  accelerator: gpu
  precision: bf16-mixed
model:
  micro_batch_size: 1
  global_batch_size: 512
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 4
  virtual_pipeline_model_parallel_size: 10
  sequence_parallel: true
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 40
  hidden_size: 5120
  ffn_hidden_size: 13824
  num_attention_heads: 40
  num_query_groups: null
  kv_channels: null
  make_vocab_size_divisible_by: 128
  vocab_size: 32000
  normalization: rmsnorm
  activation: fast-swiglu
  bias: false
  share_embeddings_and_output_weights: false
  position_embedding_type: rope
  activations_checkpoint_granularity: selective
  optim:
    name: distributed_fused_adam
    lr: 1e-4
"""
_BLOCK = _LLAMA.replace("granularity: selective", "granularity: full\n  activations_checkpoint_method: block").replace(
    "  bias: false", "  activations_checkpoint_num_layers: 2\n  bias: false"
)
_GPT = """
trainer: {devices: 8, num_nodes: 2, precision: 16}
model:
  micro_batch_size: 4
  global_batch_size: 256
  encoder_seq_length: 2048
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 16
  tokenizer: {library: megatron, type: GPT2BPETokenizer}
  activation: gelu
"""


def test_llama(tmp_path: Path) -> None:
    file = tmp_path / "llama2_13b.yaml"
    file.write_text(_LLAMA, encoding="utf-8")
    read = read_model_file(file)
    assert read.plan == FilePlan(pp=4, tp=4, num_gpus=128)
    model = read.transformer()
    known = find_model("llama2-13b", global_batch=1)
    # 32,000 tokens are a multiple of 128 and not of 4 x 128: 256 more rows of embedding and head.
    assert model.vocabulary_size == 32_256
    assert parameter_count(profile_of(model)) == parameter_count(profile_of(known)) + 2 * 256 * 5120
    assert (model.global_batch, model.micro_batch, model.sequence_length) == (512, 1, 4096)
    assert (model.precision, model.checkpointing, model.zero_stage) == (Precision.BF16, Checkpointing.SELECTIVE, 1)
    assert (model.software, model.sequence_parallel) == (Software.MEGATRON_CORE, True)


def test_gpt_and_interpolations() -> None:
    read = read_nemo(_GPT)
    model = read.transformer()
    assert (model.feed_forward_size, model.vocabulary_size, model.precision) == (8192, 50_304, Precision.FP16)
    assert (model.biases, model.positions, model.gated, model.zero_stage) == (Biases.ALL, Positions.LEARNED, False, 0)
    assert read.plan == FilePlan(num_gpus=16)


def test_experts() -> None:
    model = read_nemo(_GPT + "  num_moe_experts: 8\n  moe_router_topk: 1\n").transformer()
    assert (model.num_experts, model.experts_per_token) == (8, 1)
    shared = "  num_moe_experts: 8\n  context_parallel_size: 2\n  expert_model_parallel_size: 4\n"
    assert read_nemo(_GPT + shared).plan == FilePlan(cp=2, ep=4, num_gpus=16)


@pytest.mark.parametrize(
    ("line", "pointer", "detail"),
    [
        ("num_layers: many", "/model/num_layers", "is 'many'; must be a whole number"),
        ("hidden_size: ${data.size}", "/model/hidden_size", "which nothing in the file sets; write the number"),
        ("activation: mish", "/model/activation", "is 'mish'; known here: gelu"),
        ("normalization: batchnorm", "/model/normalization", "known here: layernorm, rmsnorm"),
        ("position_embedding_type: t5", "/model/position_embedding_type", "known here: learned_absolute"),
        ("encoder_seq_length: null", "/model/encoder_seq_length", "is missing; a whole number"),
        ("tokenizer: null", "/model/vocab_size", "the tokenizer decides it"),
        (
            "activations_checkpoint_granularity: some",
            "/model/activations_checkpoint_granularity",
            "none, selective, full",
        ),
        ("window_size: [128, 0]", "/model/window_size", "attention within a window"),
    ],
)
def test_what_is_refused(line: str, pointer: str, detail: str) -> None:
    with pytest.raises(InputError) as raised:
        read_nemo(f"{_GPT}  {line}\n")
    found = {issue.pointer: issue.detail for issue in raised.value.issues}
    assert pointer in found, found
    assert detail in found[pointer]


def test_precision_of_the_trainer_is_refused_where_it_stands() -> None:
    with pytest.raises(InputError) as raised:
        read_nemo(_GPT.replace("precision: 16", "precision: 64"))
    assert [issue.pointer for issue in raised.value.issues] == ["/trainer/precision"]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("model: [", "is not YAML: "),
        ("trainer: {devices: 8}", "has no `model` with keys"),
        ("- 1", "has no `model` with keys"),
        ("a: &a [1]\nmodel: {num_layers: *a}", "no aliases are read"),
        ("model: " + "[" * 200, "is not YAML: "),
        ("model: " + "[" * 50_000, "is too large"),
        ("# " * 200_000, "is too large"),
        ("model: !!python/object:os.system {}", "is not YAML: "),
    ],
)
def test_what_is_no_configuration(text: str, detail: str) -> None:
    with pytest.raises(FileFormatError) as raised:
        read_nemo(text)
    assert detail in raised.value.detail


def test_some_layers_are_recomputed() -> None:
    plan = read_nemo(_BLOCK).plan
    assert plan is not None
    assert plan.recomputed_layers == 2
