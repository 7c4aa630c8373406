"""What the trainer does not know of a model, whatever the plan."""

from collections.abc import Iterator
from dataclasses import replace

from executor.training_options import EngineName, fault
from models.software import Software
from models.transformer import Biases, Optimizer, Positions, Precision, Transformer
from stowplan.errors import Issue

# Sizes of the model that are at least 1 where they are given.
_POSITIVE = (
    *("num_layers", "hidden_size", "vocabulary_size", "sequence_length", "global_batch"),
    *("num_heads", "num_kv_heads", "head_size", "feed_forward_size"),
)

# What a transformer may have and the trainer's blocks have not.
_NOT_TRAINED = {
    "kv_rank": "latent attention",
    "attention_window": "attention within a window",
    "post_norms": "norms behind attention and feed-forward part",
}

# What plans may be made for to be run by an engine: the native one runs what is planned for others, too.
_SOFTWARE = {
    EngineName.DEEPSPEED: (Software.DEEPSPEED,),
    EngineName.NATIVE: (Software.NATIVE, Software.DEEPSPEED, Software.TORCH_EAGER),
}

_ZERO_STAGES = {EngineName.DEEPSPEED: (1,), EngineName.NATIVE: (1, 2, 3)}
_ZERO_REASONS = {
    EngineName.DEEPSPEED: (
        "stage 1 only under DeepSpeed, as a pipeline, which it has not with 2 and 3; with 0 it clips by a wrong norm "
        "where tensors are split: plan with stage 1, or take the engine native for 1 to 3"
    ),
    EngineName.NATIVE: "stages 1, 2 and 3 under the engine native: plan with one of these",
}


def model_faults(model: Transformer, engine: EngineName = EngineName.DEEPSPEED) -> Iterator[Issue]:
    """What the trainer does not know of a model, whatever the plan; pointers below `/model`."""
    for name in _POSITIVE:
        value = getattr(model, name)
        if value is not None and value < 1:
            yield fault("not_positive", f"model/{name}", f"is {value}; at least 1")
    if model.num_experts > 1:
        yield from _mixture_faults(model, engine)
    if model.positions is Positions.ALIBI:
        yield fault("positions", "model/positions", "is alibi; the trainer knows learned and rotary positions")
    for name, what in _NOT_TRAINED.items():
        if value := getattr(model, name):
            yield fault("attention", f"model/{name}", f"is {str(value).lower()}; the trainer has no {what}")
    yield from _computation_faults(model, engine)
    if model.optimizer is not Optimizer.ADAM and engine is EngineName.DEEPSPEED:
        detail = f"is {model.optimizer}; with DeepSpeed the trainer knows adam, the native engine sgd, too"
        yield fault("optimizer", "model/optimizer", detail)
    if model.zero_stage not in _ZERO_STAGES[engine]:
        detail = f"is {model.zero_stage}; the trainer runs {_ZERO_REASONS[engine]}"
        yield fault("zero_stage", "model/zero_stage", detail)


def run_by(model: Transformer, engine: EngineName | None) -> Transformer:
    """A model as an engine runs it, which is what predicts it: the native one has priors of its own, whatever of what
    it runs a plan was made for. Sequences are split as they were planned to be."""
    if engine is not EngineName.NATIVE or model.software not in _SOFTWARE[engine]:
        return model
    return replace(model, software=Software.NATIVE, sequence_parallel=model.splits_sequences)


def _mixture_faults(model: Transformer, engine: EngineName) -> Iterator[Issue]:
    """What the trainer does not know of a mixture of experts."""
    if engine is EngineName.DEEPSPEED:
        detail = f"is {model.num_experts}; under DeepSpeed the trainer knows dense models only: take the engine native"
        yield fault("experts", "model/num_experts", detail)
    if not 1 <= model.experts_per_token <= model.num_experts:
        detail = f"is {model.experts_per_token}; from 1 to the model's num_experts of {model.num_experts}"
        yield fault("experts", "model/experts_per_token", detail)
    for name in ("expert_feed_forward_size", "shared_expert_size", "expert_interval"):
        if (value := getattr(model, name)) is not None and value < 1:
            yield fault("not_positive", f"model/{name}", f"is {value}; at least 1")
    if model.biases is Biases.ALL:
        yield fault("experts", "model/biases", "is all; the trainer's experts have no biases: none, or qkv")


def _computation_faults(model: Transformer, engine: EngineName) -> Iterator[Issue]:
    """How the trainer does not compute."""
    if model.precision is Precision.FP16 or model.precision.in_8_bits:
        yield fault("precision", "model/precision", f"is {model.precision}; the trainer knows bf16 and fp32")
    if model.software not in _SOFTWARE[engine]:
        detail = f"is {model.software}; the trainer's engine {engine} is {' or '.join(_SOFTWARE[engine])}: plan with it"
        yield fault("software", "model/software", detail)
    if not model.fuses_attention:
        yield fault("attention", "model/attention", "is plain; the trainer's attention is fused")
    if model.splits_sequences and engine is EngineName.DEEPSPEED:
        detail = "is true; under DeepSpeed the trainer replicates activations, the engine native splits them"
        yield fault("sequence_parallel", "model/sequence_parallel", detail)
