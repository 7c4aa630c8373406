"""Arguments of Megatron-LM (`megatron/training/arguments.py`): what a plan decides, and the model where it is known.

`models/readers/megatron.py` reads the same plan and model back.
"""

import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from executor.export.job import ExportedJob, Layout
from models.dimensions import Dimensions
from models.software import Software
from models.transformer import Biases, Checkpointing, Normalisation, Optimizer, Positions, Precision, Transformer
from stowplan.errors import InputError, Issue

_POSITIONS = MappingProxyType({Positions.LEARNED: "learned_absolute", Positions.ROTARY: "rope"})
_PRECISIONS: Mapping[Precision, tuple[str, ...]] = MappingProxyType(
    {
        Precision.FP32: (),
        Precision.BF16: ("--bf16",),
        Precision.FP16: ("--fp16",),
        Precision.FP8: ("--bf16", "--fp8-format", "hybrid"),
        Precision.MXFP8: ("--bf16", "--fp8-format", "e4m3", "--fp8-recipe", "mxfp8"),
    }
)
_RECOMPUTE: Mapping[Checkpointing, tuple[str, ...]] = MappingProxyType(
    {
        Checkpointing.NONE: (),
        Checkpointing.SELECTIVE: ("--recompute-granularity", "selective"),
        Checkpointing.FULL: (
            *("--recompute-granularity", "full", "--recompute-method", "uniform"),
            *("--recompute-num-layers", "1"),
        ),
    }
)
_SCRIPT = """\
# Arguments of Megatron-LM for job {name}, {notation}. Ranks in Megatron's usual order (tp-cp-ep-dp-pp):
#   . ./megatron.sh; torchrun ... pretrain_gpt.py "${{MEGATRON_ARGS[@]}}" ...   (bash; --to torchrun, slurm or mpi)
MEGATRON_ARGS=(
{arguments}
)
"""


def write_megatron(job: ExportedJob) -> Mapping[str, str]:
    """Write an array of bash with the arguments.

    Raises
    ------
    InputError
        When the plan is asymmetric, or the model has something that the arguments cannot say.
    """
    layout = job.layout("Megatron-LM")
    words = [*_plan_arguments(layout)]
    if job.model is not None:
        refuse_unsaid(job.model, "Megatron-LM")
        words += [*_model_arguments(job.model), *_training_arguments(job.model, layout)]
    lines = _lines(words)
    arguments = "\n".join(f"    {' '.join(map(shlex.quote, line))}" for line in lines)
    return {"megatron.sh": _SCRIPT.format(name=job.plain_name, notation=layout.notation(), arguments=arguments)}


def pipeline_layout(layout: Layout) -> str | None:
    """The layers of all parts as Megatron's `--pipeline-model-parallel-layout` has them, `Et*4|t*3L`; None where they
    are those that it makes itself, or nobody has said any."""
    parts = layout.part_layers
    if parts is None or len(set(parts)) == 1:
        return None
    texts = [f"t*{count}" if count > 1 else "t" for count in parts]
    return "E" + "|".join(texts) + "L"


def refuse_unsaid(model: Transformer, framework: str) -> None:
    """Raise InputError when a model has something that arguments of Megatron, as written here, do not say."""
    lacks = [
        ("positions", model.positions is Positions.ALIBI, "ALiBi positions"),
        ("post_norms", model.post_norms, "norms behind attention and feed-forward part"),
        ("attention_window", model.attention_window is not None, "attention within a window"),
        ("zero_stage", model.zero_stage > 1, "ZeRO 2 and 3 (its distributed optimiser is ZeRO 1)"),
        (
            "expert_interval",
            model.expert_interval > 1 and bool(model.first_dense_layers or model.num_layers % model.expert_interval),
            "dense layers in front of an interval of experts",
        ),
    ]
    issues = [
        Issue(code="unsupported", pointer=f"/{field}", detail=f"{framework} is given no {what} by this export")
        for field, wrong, what in lacks
        if wrong
    ]
    if issues:
        raise InputError(f"the model cannot be exported to {framework}", issues)


def _plan_arguments(layout: Layout) -> Iterator[str]:
    yield from ("--tensor-model-parallel-size", str(layout.tp))
    yield from ("--pipeline-model-parallel-size", str(layout.pp))
    for name, degree in (("context-parallel-size", layout.cp), ("expert-model-parallel-size", layout.ep)):
        if degree > 1:
            yield from (f"--{name}", str(degree))
    stages = pipeline_layout(layout)
    if stages is not None:
        yield from ("--pipeline-model-parallel-layout", stages)
    elif layout.virtual_stages > 1:
        yield from ("--num-virtual-stages-per-pipeline-rank", str(layout.virtual_stages))
    if layout.micro_batch is not None:
        yield from ("--micro-batch-size", str(layout.micro_batch))
    if layout.global_batch is not None:
        yield from ("--global-batch-size", str(layout.global_batch))


def _model_arguments(model: Transformer) -> Iterator[str]:
    sizes = Dimensions.of(model)
    yield from ("--num-layers", str(model.num_layers), "--hidden-size", str(sizes.hidden))
    yield from ("--num-attention-heads", str(sizes.heads), "--ffn-hidden-size", str(sizes.feed_forward))
    if model.kv_rank is not None:
        yield from _latent_arguments(model, model.kv_rank)
    else:
        yield from ("--kv-channels", str(sizes.head))
        if sizes.kv_heads != sizes.heads:
            yield from ("--group-query-attention", "--num-query-groups", str(sizes.kv_heads))
        if model.query_key_norms:
            yield "--qk-layernorm"
    if model.gated:
        yield "--swiglu"
    yield from ("--normalization", "RMSNorm" if model.normalisation is Normalisation.RMSNORM else "LayerNorm")
    if model.biases is not Biases.ALL:
        yield "--disable-bias-linear"
    if model.biases is Biases.QKV:
        yield "--add-qkv-bias"
    yield from ("--position-embedding-type", _POSITIONS[model.positions])
    if not model.tied_embeddings:
        yield "--untie-embeddings-and-output-weights"
    yield from ("--seq-length", str(model.sequence_length), "--max-position-embeddings", str(model.sequence_length))
    # Rows of the embedding as they were planned; more only where the tensor ranks do not divide them.
    yield from ("--vocab-size", str(model.vocabulary_size), "--make-vocab-size-divisible-by", "1")
    if model.num_experts > 1:
        yield from _expert_arguments(model, sizes)


def _latent_arguments(model: Transformer, kv_rank: int) -> Iterator[str]:
    sizes, rotary = Dimensions.of(model), model.rotary_head_size or 0
    yield from ("--multi-latent-attention", "--kv-lora-rank", str(kv_rank))
    if model.query_rank is not None:
        yield from ("--q-lora-rank", str(model.query_rank))
    yield from ("--qk-head-dim", str(sizes.head - rotary), "--qk-pos-emb-head-dim", str(rotary))
    yield from ("--v-head-dim", str(sizes.value_head))


def _expert_arguments(model: Transformer, sizes: Dimensions) -> Iterator[str]:
    yield from ("--num-experts", str(model.num_experts), "--moe-router-topk", str(model.experts_per_token))
    yield from ("--moe-ffn-hidden-size", str(sizes.expert))
    if model.shared_expert_size is not None:
        yield from ("--moe-shared-expert-intermediate-size", str(model.shared_expert_size))
    dense = model.first_dense_layers
    if dense:
        yield from ("--moe-layer-freq", f"([0]*{dense}+[1]*{model.num_layers - dense})")
    elif model.expert_interval > 1:
        yield from ("--moe-layer-freq", str(model.expert_interval))


def _training_arguments(model: Transformer, layout: Layout) -> Iterator[str]:
    yield from _PRECISIONS[model.precision]
    if layout.recomputed_layers is None:
        yield from _RECOMPUTE[model.checkpointing]
    else:
        yield from ("--recompute-granularity", "full", "--recompute-method", "block")
        yield from ("--recompute-num-layers", str(layout.recomputed_layers))
    yield from ("--optimizer", "sgd" if model.optimizer is Optimizer.SGD else "adam")
    if model.zero_stage == 1:
        yield "--use-distributed-optimizer"
    if model.splits_sequences and layout.tp > 1:
        yield "--sequence-parallel"
    if model.software is Software.MEGATRON_LM:
        yield from ("--transformer-impl", "local")


def _lines(words: list[str]) -> list[list[str]]:
    """Words with an argument and its value on a line."""
    lines: list[list[str]] = []
    for word in words:
        if word.startswith("--"):
            lines.append([word])
        else:
            lines[-1].append(word)
    return lines
