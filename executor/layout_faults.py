"""What the trainer cannot run of a layout; pointers as in the file of a job."""

from collections.abc import Iterator

from executor.training_layout import Layout
from executor.training_options import EngineName, fault
from models.dimensions import Dimensions
from models.performance.iteration.layer_sizes import LayerKind
from models.pipeline_schedule import PipelineSchedule
from models.transformer import Checkpointing, Positions, Transformer
from models.wording import counted
from stowplan.errors import Issue


def layout_faults(layout: Layout) -> Iterator[Issue]:
    """What the trainer cannot run of a layout."""
    if layout.num_micro_batches < 1:
        yield fault("not_positive", "num_micro_batches", f"is {layout.num_micro_batches}; at least 1")
    if not layout.stages:
        yield fault("stage_layers", "stages", "is empty; at least 1 stage")
        return
    yield from _stage_faults(layout)
    if sum(layout.stage_layers) != layout.model.num_layers:
        layers = layout.stage_layers
        detail = f"{list(layers)} has {sum(layers)} layers; the model has {layout.model.num_layers}"
        yield fault("stage_layers", "stages", detail)
    if layout.global_batch != layout.model.global_batch:
        detail = (
            f"{layout.micro_batch} sequences x {layout.num_micro_batches} micro-batches are {layout.global_batch}; the "
            f"model's global batch is {layout.model.global_batch}"
        )
        yield fault("global_batch", "num_micro_batches", detail)
    if layout.engine is EngineName.DEEPSPEED and not layout.is_symmetric:
        detail = "have other degrees, or replicas other batches; DeepSpeed needs the same, the native engine does not"
        yield fault("asymmetric_stage", "stages", detail)
    yield from _interleaving_faults(layout)
    yield from _expert_faults(layout)
    if layout.virtual_stages > 0:
        yield from _recomputation_faults(layout)


def _expert_faults(layout: Layout) -> Iterator[Issue]:
    """What experts do not go with."""
    degree, model = layout.expert_parallel, layout.model
    if model.num_experts > 1 and layout.pipeline_schedule.splits_backward:
        detail = (
            f"is {layout.pipeline_schedule}, under which torch goes back through a layer for its inputs and again for "
            "its weights, and tokens would go to their experts twice: plan with 1f1b"
        )
        yield fault("schedule", "pipeline_schedule", detail)
    if degree < 1:
        yield fault("not_positive", "expert_parallel", f"is {degree}; at least 1")
    if degree <= 1:
        return
    if layout.engine is EngineName.DEEPSPEED:
        yield fault("expert_parallel", "expert_parallel", f"is {degree}; DeepSpeed has none, the native engine has it")
    if layout.layers_hook is not None:
        detail = f"is {degree} beside layers_hook; of your own layers all replicas have everything: 1"
        yield fault("hook", "expert_parallel", detail)
    if model.num_experts % degree:
        detail = f"is {degree}, which does not divide the model's num_experts of {model.num_experts}"
        yield fault("expert_degree", "expert_parallel", detail)
    for k, stage in enumerate(layout.stages):
        if stage.dp % degree:
            detail = f"is {degree}, which does not divide the {counted(stage.dp, 'replica')} of stage {k}"
            yield fault("expert_degree", "expert_parallel", detail)


def _interleaving_faults(layout: Layout) -> Iterator[Issue]:
    parts = layout.virtual_stages
    if layout.pipeline_schedule.splits_backward:
        yield from _split_faults(layout)
    if parts == 1:
        return
    if parts < 1:
        yield fault("not_positive", "virtual_stages", f"is {parts}; at least 1")
    elif layout.engine is EngineName.DEEPSPEED:
        yield fault("virtual_stages", "virtual_stages", f"is {parts}; DeepSpeed has no interleaved pipelines")
    elif (
        layout.pp == 1
        or min(layout.stage_layers) < parts
        or (layout.num_micro_batches % layout.pp and layout.pipeline_schedule is not PipelineSchedule.ZBV)
    ):
        detail = (
            f"is {parts}; needs several stages, a layer per part ({list(layout.stage_layers)} layers), and "
            f"micro-batches that the {layout.pp} stages divide ({layout.num_micro_batches})"
        )
        yield fault("not_interleaved", "virtual_stages", detail)


def _split_faults(layout: Layout) -> Iterator[Issue]:
    """What zero-bubble schedules do not go with."""
    kind, parts = layout.pipeline_schedule, layout.virtual_stages
    if layout.engine is EngineName.DEEPSPEED:
        yield fault("schedule", "pipeline_schedule", f"is {kind}; DeepSpeed has 1F1B alone, the engine native has it")
    if not (parts == 2 if kind is PipelineSchedule.ZBV else parts > 1):
        yield fault("schedule", "pipeline_schedule", f"is {kind} with {parts} parts a stage; zbv has 2, others more")
    if layout.model.checkpointing is not Checkpointing.NONE:
        recomputed = layout.model.checkpointing
        detail = f"is {kind} with {recomputed} checkpointing, which the passes for weights repeat once more; none"
        yield fault("schedule", "pipeline_schedule", detail)
    if layout.model.zero_stage > 1:
        detail = (
            f"is {kind} with ZeRO stage {layout.model.zero_stage}; under it torch gives the gradients of weights of "
            "all layers of a part at once, so that nothing is saved: plan with stage 1, or 1f1b"
        )
        yield fault("schedule", "pipeline_schedule", detail)
    if kind is PipelineSchedule.ZBV and layout.model.tied_embeddings:
        detail = "is zbv, under which one stage has embedding and head; the native engine ties those of two stages"
        yield fault("schedule", "pipeline_schedule", detail)


def _stage_faults(layout: Layout) -> Iterator[Issue]:
    for k, stage in enumerate(layout.stages):
        if stage.num_layers < 1:
            yield fault("stage_layers", f"stages/{k}/num_layers", "is below 1; every stage has at least 1 layer")
        if stage.tp < 1:
            yield fault("not_positive", f"stages/{k}/tp", f"is {stage.tp}; at least 1")
        if not stage.batches or min(stage.batches) < 1:
            detail = f"is {list(stage.batches)}; at least 1 replica, each with at least 1 sequence"
            yield fault("not_positive", f"stages/{k}/batches", detail)
        if sum(stage.batches) != layout.micro_batch:
            detail = (
                f"{list(stage.batches)} are {sum(stage.batches)} sequences, those of stage 0 {layout.micro_batch}; "
                "every stage works on all samples of a micro-batch"
            )
            yield fault("micro_batch_differs", f"stages/{k}/batches", detail)


def _recomputation_faults(layout: Layout) -> Iterator[Issue]:
    """What stages cannot recompute on their own."""
    for k, stage in enumerate(layout.stages):
        count, where = stage.recomputed_layers, f"stages/{k}"
        if stage.checkpointing is None and count is None:
            continue
        if layout.engine is EngineName.DEEPSPEED:
            detail = "is given; under DeepSpeed all stages recompute as the model says, the engine native knows each"
            yield fault("checkpointing", f"{where}/checkpointing", detail)
        if layout.layers_hook is not None:
            detail = "is given beside layers_hook; your own layers recompute as they like"
            yield fault("hook", f"{where}/checkpointing", detail)
        if count is None:
            continue
        if stage.checkpointing is not Checkpointing.FULL:
            detail = f"is {count}; only beside the checkpointing full"
            yield fault("recomputed_layers", f"{where}/recomputed_layers", detail)
        parts = layout.virtual_stages
        if count < 1 or count % parts or count // parts > stage.num_layers // parts:
            detail = f"is {count}; each of the {parts} parts of {stage.num_layers} layers recomputes equally many"
            yield fault("recomputed_layers", f"{where}/recomputed_layers", detail)


def degree_faults(layout: Layout) -> Iterator[Issue]:
    """Head counts and sequences that do not divide; a user's own layers may divide anything but sequences."""
    if layout.layers_hook is not None:
        if layout.model.splits_sequences and any(stage.tp > 1 for stage in layout.stages):
            detail = "is true; layers of a hook have whole sequences on all tensor ranks: plan with false"
            yield fault("sequence_parallel", "model/sequence_parallel", detail)
        return
    sizes = Dimensions.of(layout.model)
    if sizes.heads % sizes.kv_heads:
        yield fault(
            "heads", "model/num_kv_heads", f"{sizes.heads} heads do not divide into {sizes.kv_heads} key-value heads"
        )
    if layout.model.positions is Positions.ROTARY and sizes.head % 2:
        yield fault("head_size", "model/head_size", f"is {sizes.head}; rotary positions need an even size")
    divided = [*_divided(layout.model, sizes)]
    for k, stage in enumerate(layout.stages):
        for name, count in divided:
            if stage.tp > 0 and count % stage.tp:
                detail = f"{stage.tp} does not divide the model's {name} of {count}"
                yield fault("tensor_degree", f"stages/{k}/tp", detail)


def _divided(model: Transformer, sizes: Dimensions) -> Iterator[tuple[str, int]]:
    """What tensor ranks share."""
    yield from (("num_heads", sizes.heads), ("num_kv_heads", sizes.kv_heads))
    layers = range(model.num_layers if model.expert_interval > 0 else 0)
    kinds = {LayerKind.of(model, k).experts for k in layers}
    if False in kinds:
        yield "feed_forward_size", sizes.feed_forward
    if True in kinds:
        yield "expert_feed_forward_size", sizes.expert
        if model.shared_expert_size is not None:
            yield "shared_expert_size", model.shared_expert_size
    if model.splits_sequences:
        yield "sequence_length", model.sequence_length
