"""What is wrong with the description of a model: what is out of range, or not done by its software."""

import math
from collections.abc import Iterator

from models.performance.iteration.shape_issues import shape_issues
from models.software import FEATURES, Software
from models.transformer import MAX_CAPACITY_FACTOR, JobModel, OperatorModel, Transformer
from stowplan.errors import Issue, pointer_of

# Planners keep tables by the samples that a replica may have; the largest batches known are of some ten thousands.
MAX_GLOBAL_BATCH = 2**20
_COUNTS = ("global_batch", "micro_batch")
_SHAPE = (
    "num_layers",
    "hidden_size",
    "vocabulary_size",
    "sequence_length",
    "num_heads",
    "num_kv_heads",
    "head_size",
    "value_head_size",
    "rotary_head_size",
    "query_rank",
    "kv_rank",
    "attention_window",
    "global_attention_interval",
    "feed_forward_size",
    "num_experts",
    "experts_per_token",
    "expert_interval",
    "expert_feed_forward_size",
    "shared_expert_size",
)
_OPERATOR_COSTS = (
    "parameters",
    "forward_flops",
    "memory_traffic_bytes",
    "activation_bytes",
    "output_bytes",
    "tensor_parallel_bytes",
)


def model_issues(model: JobModel, pointer: str) -> list[Issue]:
    """Everything that is wrong with a description, below `pointer`."""
    issues = [
        _issue("not_positive", f"{pointer}/{field}", f"is {value}; must be at least 1")
        for field in (*_COUNTS, *(_SHAPE if isinstance(model, Transformer) else ()))
        if (value := getattr(model, field)) is not None and value < 1
    ]
    if isinstance(model, Transformer) and model.first_dense_layers < 0:
        detail = f"is {model.first_dense_layers}; must be at least 0"
        issues.append(_issue("out_of_range", f"{pointer}/first_dense_layers", detail))
    if not 0 <= model.zero_stage <= 3:
        issues.append(_issue("out_of_range", f"{pointer}/zero_stage", f"is {model.zero_stage}; one of 0, 1, 2, 3"))
    if model.global_batch > MAX_GLOBAL_BATCH:
        detail = f"is {model.global_batch}; at most {MAX_GLOBAL_BATCH} sequences (samples) per optimiser step"
        issues.append(_issue("out_of_range", f"{pointer}/global_batch", detail))
    if issues:
        return issues
    if isinstance(model, Transformer) and not 1.0 <= model.capacity_factor <= MAX_CAPACITY_FACTOR:
        detail = (
            f"is {model.capacity_factor}; from 1, where all experts get as many tokens, to {MAX_CAPACITY_FACTOR:.0f}"
        )
        issues.append(_issue("out_of_range", f"{pointer}/capacity_factor", detail))
    if model.micro_batch is not None and model.global_batch % model.micro_batch:
        detail = f"is {model.micro_batch}, which does not divide global_batch {model.global_batch}"
        issues.append(_issue("batch_not_divisible", f"{pointer}/micro_batch", detail))
    issues += _software_issues(model, pointer)
    if isinstance(model, Transformer):
        return [*issues, *shape_issues(model, pointer)]
    return [*issues, *_operator_issues(model, pointer)]


def _software_issues(model: JobModel, pointer: str) -> Iterator[Issue]:
    """What the software does not do."""
    if model.precision.in_8_bits and not getattr(FEATURES[model.software], model.precision):
        able = ", ".join(software for software in Software if getattr(FEATURES[software], model.precision))
        detail = f"is {model.precision}, in which {model.software} does not compute; a software that does: {able}"
        yield _issue("not_in_software", f"{pointer}/precision", detail)
    if isinstance(model, Transformer) and model.sequence_parallel and not FEATURES[model.software].sequence_parallel:
        able = ", ".join(software for software in Software if FEATURES[software].sequence_parallel)
        detail = f"is true, and {model.software} has none; a software that has: {able}"
        yield _issue("not_in_software", f"{pointer}/sequence_parallel", detail)


def _operator_issues(model: OperatorModel, pointer: str) -> Iterator[Issue]:
    if not model.operators:
        yield _issue("no_operators", f"{pointer}/operators", "the model has no operators; at least 1")
        return
    legal = True
    for k, operator in enumerate(model.operators):
        for field in _OPERATOR_COSTS:
            value = getattr(operator, field)
            if not (math.isfinite(value) and value >= 0):
                legal = False
                where = f"{pointer}{pointer_of('operators', k, field)}"
                yield _issue("negative", where, f"is {value}; must be finite and at least 0")
    if legal and not any(operator.forward_flops > 0 for operator in model.operators):
        yield _issue("no_computation", f"{pointer}/operators", "no operator has forward_flops above 0")


def _issue(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail)
