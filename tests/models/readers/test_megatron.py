"""Arguments of Megatron-LM: scripts, lists of arguments, what a run prints, and files that are wrong."""

from dataclasses import replace
from pathlib import Path

import pytest

from models.catalogue import find_model
from models.performance.iteration.architecture import parameter_count, profile_of
from models.readers import FilePlan, read_model_file
from models.readers.megatron import read_megatron
from models.software import Software
from models.transformer import Biases, Checkpointing, Optimizer, Positions, Precision
from stowplan.errors import FileFormatError, InputError
from tests.growth import work

_LLAMA = """#!/bin/bash
# Runs the "70B" model; don't change
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${NUM_NODES:-16}
HIDDEN=8192

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes=$NUM_NODES
    --master_addr $MASTER_ADDR
)
MODEL_ARGS=(
    --num-layers 80
    --hidden-size $HIDDEN
    --ffn-hidden-size 28672
    --num-attention-heads 64  # of 128
    --group-query-attention
    --num-query-groups 8
    --seq-length 4096
    --max-position-embeddings 4096
    --position-embedding-type rope
    --normalization RMSNorm
    --swiglu
    --untie-embeddings-and-output-weights
    --disable-bias-linear
    --vocab-size 32000
    --make-vocab-size-divisible-by 1
)
TRAINING_ARGS="
    --micro-batch-size 1 --global-batch-size 512 \\
    --bf16 --use-distributed-optimizer
    --recompute-granularity full --recompute-method uniform
"
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS[@]} $TRAINING_ARGS --tensor-model-parallel-size 8 \\
    --pipeline-model-parallel-size 4 --sequence-parallel --data-path $DATA --log-interval 1 > log.txt
"""
_GPT = """--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024
--tokenizer-type GPT2BPETokenizer --micro-batch-size 4 --global-batch-size 64 --fp16"""
_PRINTED = """using world size: 64, data-parallel size: 8
------------------------ arguments ------------------------
  add_bias_linear ................................. False
  add_qkv_bias .................................... True
  bf16 ............................................ True
  encoder_num_layers .............................. 28
  ffn_hidden_size ................................. 18944
  fp8 ............................................. None
  global_batch_size ............................... 256
  group_query_attention ........................... True
  hidden_size ..................................... 3584
  kv_channels ..................................... 128
  kv_lora_rank .................................... 32
  micro_batch_size ................................ 2
  multi_latent_attention .......................... False
  normalization ................................... RMSNorm
  num_attention_heads ............................. 28
  num_experts ..................................... None
  num_layers ...................................... 28
  num_query_groups ................................ 4
  optimizer ....................................... adam
  padded_vocab_size ............................... 152064
  position_embedding_type ......................... rope
  recompute_granularity ........................... selective
  seq_length ...................................... 4096
  swiglu .......................................... True
  tensor_model_parallel_size ...................... 4
  pipeline_model_parallel_size .................... 2
  untie_embeddings_and_output_weights ............. True
  use_distributed_optimizer ....................... False
  window_size ..................................... None
  world_size ...................................... 64
-------------------- end of arguments ---------------------
"""
_DEEPSEEK = """
--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 --kv-channels 128 --seq-length 4096
--position-embedding-type rope --normalization RMSNorm --swiglu --untie-embeddings-and-output-weights
--disable-bias-linear --padded-vocab-size 129280 --multi-latent-attention --qk-layernorm --q-lora-rank 1536
--kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128
--num-experts 256 --moe-router-topk 8 --moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048
--moe-layer-freq ([0]*3+[1]*58) --mtp-num-layers 1 --expert-model-parallel-size 64 --pipeline-model-parallel-size 16
--bf16 --fp8-format hybrid
"""


def test_a_script(tmp_path: Path) -> None:
    file = tmp_path / "train_llama.sh"
    file.write_text(_LLAMA, encoding="utf-8")
    read = read_model_file(file)
    assert read.plan == FilePlan(pp=4, tp=8, num_gpus=128)
    model = read.transformer()
    assert parameter_count(profile_of(model)) == parameter_count(profile_of(find_model("llama2-70b", global_batch=8)))
    assert (model.global_batch, model.micro_batch, model.zero_stage) == (512, 1, 1)
    assert (model.software, model.sequence_parallel) == (Software.MEGATRON_CORE, True)
    assert (model.precision, model.checkpointing, model.optimizer) == (
        Precision.BF16,
        Checkpointing.FULL,
        Optimizer.ADAM,
    )


def test_a_list_of_arguments_and_defaults() -> None:
    model = read_megatron(_GPT).transformer()
    assert (model.biases, model.positions, model.tied_embeddings) == (Biases.ALL, Positions.LEARNED, True)
    assert (model.precision, model.zero_stage, model.checkpointing) == (Precision.FP16, 0, Checkpointing.NONE)
    assert model.sequence_parallel is False
    assert read_megatron(_GPT + " --transformer-impl local").transformer().software is Software.MEGATRON_LM
    # Megatron's own example: 50,257 tokens are padded to a multiple of 128.
    assert model.vocabulary_size == 50_304
    assert read_megatron(_GPT + " --tensor-model-parallel-size 8").transformer().vocabulary_size == 51_200
    assert read_megatron(_GPT.replace("--fp16", "")).transformer().precision is Precision.FP32
    # Two thirds of 4 x 1,024, to a multiple of 64.
    assert read_megatron(_GPT + " --swiglu").transformer().feed_forward_size == 2688
    # Groups are not used unless it is said, and one unless it is said how many.
    assert read_megatron(_GPT + " --num-query-groups 4").transformer().num_kv_heads is None
    assert read_megatron(_GPT + " --group-query-attention").transformer().num_kv_heads == 1
    # The last one holds.
    assert read_megatron(_GPT + " --num_layers=48").transformer().num_layers == 48


def test_what_a_run_prints() -> None:
    for text in (_PRINTED, "\n".join(f"[default0]:{line}" for line in _PRINTED.splitlines())):
        read = read_megatron(text)
        assert read.plan == FilePlan(pp=2, tp=4, num_gpus=64)
        model = read.transformer()
        known = find_model("qwen2-7b", global_batch=256)
        assert parameter_count(profile_of(model)) == parameter_count(profile_of(known))
        assert (model.checkpointing, model.zero_stage, model.micro_batch) == (Checkpointing.SELECTIVE, 0, 2)


def test_deepseek() -> None:
    read = read_megatron(_DEEPSEEK)
    known = find_model("deepseek-v3", global_batch=1)
    model = read.transformer()
    plain = replace(model, precision=known.precision, software=known.software)
    assert profile_of(plain).layers == profile_of(known).layers
    assert parameter_count(profile_of(model)) == 671_026_404_352
    assert (model.precision, model.software) == (Precision.FP8, Software.MEGATRON_CORE)
    assert read_megatron(_DEEPSEEK + "--fp8-recipe mxfp8").transformer().precision is Precision.MXFP8
    assert read.plan == FilePlan(pp=16, ep=64)
    assert any("multi-token" in note.text for note in read.notes)
    assert read_megatron(_DEEPSEEK + " --context-parallel-size 2").plan == FilePlan(pp=16, cp=2, ep=64)


@pytest.mark.parametrize(
    ("frequency", "first", "interval"),
    [("1", 0, 1), ("([1]*24)", 0, 1), ("[0]+[1]*23", 1, 1), ("'([0]*4 + [1]*20)'", 4, 1), ("2", 0, 2)],
)
def test_which_layers_have_experts(frequency: str, first: int, interval: int) -> None:
    model = read_megatron(f"{_GPT} --num-experts 8 --moe-layer-freq {frequency}").transformer()
    assert (model.first_dense_layers, model.expert_interval, model.experts_per_token) == (first, interval, 2)


@pytest.mark.parametrize(
    ("arguments", "pointer", "detail"),
    [
        ("--hidden-size $WIDE", "/--hidden-size", "is $WIDE, which nothing in the file sets; write the number"),
        ("--hidden-size -4", "/--hidden-size", "must be a whole number from 1"),
        (f"--num-layers {'9' * 5000}", "/--num-layers", "must be a whole number"),
        ("--hidden-size", "/--hidden-size", "is True; must be a whole number"),
        (
            "--position-embedding-type relative",
            "/--position-embedding-type",
            "known here: learned_absolute, rope, yarn",
        ),
        ("--normalization L2", "/--normalization", "known here: layernorm, rmsnorm"),
        ("--optimizer muon", "/--optimizer", "known here: adam, sgd"),
        ("--window-size 128,0", "/--window-size", "attention within a window has no place"),
        ("--hybrid-override-pattern M*M-", "/--hybrid-override-pattern", "state-space"),
        ("--num-experts 8 --moe-layer-freq ([0,1]*12)", "/--moe-layer-freq", "experts in such layers"),
        ("--num-experts 8 --moe-layer-freq ([0]*99999999)", "/--moe-layer-freq", "experts in such layers"),
        ("--num-attention-heads 7", "/num_heads", "do not divide hidden_size 1024"),
        ("--tokenizer-type Llama2Tokenizer", "/--vocab-size", "the tokenizer decides it, which is not read"),
        ("--tensor-model-parallel-size 0", "/--tensor-model-parallel-size", "from 1 to"),
        ("--micro-batch-size 5", "/micro_batch", "does not divide global_batch 64"),
    ],
)
def test_what_is_refused(arguments: str, pointer: str, detail: str) -> None:
    with pytest.raises(InputError) as raised:
        read_megatron(f"{_GPT} {arguments}")
    found = {issue.pointer: issue.detail for issue in raised.value.issues}
    assert pointer in found, found
    assert detail in found[pointer]


def test_missing_arguments_are_all_named() -> None:
    with pytest.raises(InputError) as raised:
        read_megatron("--num-layers 24 --swiglu")
    assert [issue.pointer for issue in raised.value.issues] == [
        "/--hidden-size",
        "/--num-attention-heads",
        "/--seq-length",
        "/--vocab-size",
    ]


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("hello world", "has no arguments such as --num-layers"),
        ('ARGS="--num-layers 24', "cannot be split into words as a shell does: no closing quotation"),
    ],
)
def test_what_is_no_script(text: str, detail: str) -> None:
    with pytest.raises(FileFormatError) as raised:
        read_megatron(text)
    assert detail in raised.value.detail


def test_some_layers_are_recomputed_in_a_given_plan_only() -> None:
    block = f"{_GPT} --recompute-granularity full --recompute-method block --recompute-num-layers 3"
    found = read_megatron(block)
    assert (found.fields["checkpointing"], found.plan and found.plan.recomputed_layers) == (Checkpointing.FULL, 3)
    assert "--recompute-num-layers 3" in found.notes[-1].text
    for other in (block.replace("block", "uniform"), block.replace("full", "selective"), _GPT):
        plan = read_megatron(other).plan
        assert plan is not None
        assert plan.recomputed_layers is None


def test_variables_of_variables_do_not_grow() -> None:
    """Values are cut before they are put into others."""
    lines = ["A=" + "x" * 900, *(f"{chr(66 + k)}={'$' + chr(65 + k)}{'$' + chr(65 + k)}" for k in range(20))]
    assert read_megatron("\n".join([*lines, _GPT])).transformer().num_layers == 24


def test_work_grows_with_the_text() -> None:
    def cost(lines: int) -> int:
        return work(lambda: read_megatron("\n".join([_GPT, *(f"--flag-{k} $A{k}" for k in range(lines))])))

    assert cost(800) < 2.3 * cost(400)
