"""Plans to export, and what ranks a framework would put where, computed here after the frameworks' own code."""

import numpy as np
from hypothesis import strategies as st

from executor.export import ExportedJob
from executor.export.job import job_of_plan
from models.parallel_plan import ParallelPlan, even_split, symmetric_plan
from models.parallelism.recomputation import recomputing
from models.pipeline_schedule import PipelineSchedule
from models.software import Software
from models.transformer import Biases, Checkpointing, Normalisation, Positions, Precision, Transformer

LLAMA = Transformer(
    num_layers=8,
    hidden_size=64,
    vocabulary_size=512,
    sequence_length=128,
    global_batch=16,
    num_heads=8,
    num_kv_heads=4,
    feed_forward_size=192,
    gated=True,
    normalisation=Normalisation.RMSNORM,
    biases=Biases.NONE,
    positions=Positions.ROTARY,
    tied_embeddings=False,
    software=Software.MEGATRON_CORE,
)


def plan_of(
    *,
    pp: int = 2,
    dp: int = 2,
    tp: int = 2,
    num_micro_batches: int = 2,
    layers: tuple[int, ...] | None = None,
    virtual_stages: int = 1,
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B,
    gpus_per_node: int = 4,
    global_batch: int = 16,
    cp: int = 1,
    ep: int = 1,
) -> ParallelPlan:
    """A symmetric plan on hosts a0, a1, ..., node by node."""
    return symmetric_plan(
        num_layers=layers or 8,
        pp=pp,
        dp=dp,
        tp=tp,
        global_batch=global_batch,
        num_micro_batches=num_micro_batches,
        gpu_type="h100",
        gpus=tuple((f"a{k // gpus_per_node}", k % gpus_per_node) for k in range(pp * dp * cp * tp)),
        virtual_stages=virtual_stages,
        schedule=schedule,
        cp=cp,
        ep=ep,
    )


def job(plan: ParallelPlan | None = None, model: Transformer | None = LLAMA) -> ExportedJob:
    return job_of_plan("my job", plan or plan_of(), model)


@st.composite
def plans(draw: st.DrawFn) -> ParallelPlan:
    """Symmetric plans, perhaps interleaved, with layers that need not be even."""
    pp, dp, tp = (draw(st.sampled_from((1, 2, 4))) for _ in range(3))
    parts = draw(st.sampled_from((1, 2))) if pp > 1 else 1
    layers = [count + parts for count in even_split(draw(st.integers(0, 12)), pp)]
    layers = draw(st.permutations(layers))
    batch, count = draw(st.integers(1, 3)), draw(st.sampled_from((4, 8)))
    cp = draw(st.sampled_from((1, 2)))
    plan = plan_of(
        pp=pp,
        dp=dp,
        tp=tp,
        num_micro_batches=count,
        layers=tuple(layers),
        virtual_stages=parts,
        global_batch=batch * count * dp,
        cp=cp,
        ep=draw(st.sampled_from((1, dp * cp))),
    )
    # Fewer than all layers of the longest stage: all of all stages is the model's own checkpointing.
    recomputed = draw(st.integers(0, max(layers) // parts - 1))
    return recomputing_first(plan, recomputed) if recomputed else plan


def recomputing_first(plan: ParallelPlan, count: int) -> ParallelPlan:
    """The plan with full checkpointing of the first layers of every part."""
    wanted = count * plan.virtual_stages
    counts = (wanted if wanted < stage.num_layers else None for stage in plan.stages)
    return recomputing(plan, [(Checkpointing.FULL, one) for one in counts])


@st.composite
def models(draw: st.DrawFn, plan: ParallelPlan) -> Transformer:
    """Transformers that Megatron-LM can be told of."""
    heads = draw(st.sampled_from((4, 8)))
    experts = draw(st.sampled_from((1, 8)))
    return Transformer(
        num_layers=plan.num_layers,
        hidden_size=64 * draw(st.integers(1, 4)),
        vocabulary_size=128 * draw(st.integers(1, 9)),
        sequence_length=draw(st.sampled_from((128, 1000))),
        global_batch=plan.global_batch,
        micro_batch=plan.stages[0].replicas[0].local_batch,
        num_heads=heads,
        num_kv_heads=draw(st.sampled_from((2, heads))),
        head_size=draw(st.sampled_from((16, 32))),
        query_key_norms=draw(st.booleans()),
        feed_forward_size=draw(st.sampled_from((96, 256))),
        gated=draw(st.booleans()),
        normalisation=draw(st.sampled_from(Normalisation)),
        biases=draw(st.sampled_from(Biases)),
        positions=draw(st.sampled_from((Positions.LEARNED, Positions.ROTARY))),
        tied_embeddings=draw(st.booleans()),
        num_experts=experts,
        experts_per_token=2 if experts > 1 else 1,
        first_dense_layers=draw(st.integers(0, plan.num_layers - 1)) if experts > 1 else 0,
        expert_feed_forward_size=48 if experts > 1 else None,
        shared_expert_size=draw(st.sampled_from((None, 32))) if experts > 1 else None,
        precision=draw(st.sampled_from(Precision)),
        checkpointing=draw(st.sampled_from(Checkpointing)),
        zero_stage=draw(st.sampled_from((0, 1))),
        software=Software.MEGATRON_CORE,
    )


def megatron_groups(order: str, sizes: dict[str, int], axis: str) -> list[list[int]]:
    """Groups of ranks along an axis, after `generate_masked_orthogonal_rank_groups` of
    `megatron/core/parallel_state.py`: the first axis of the order is the fastest."""
    names = order.split("-")
    ranks = np.arange(np.prod([sizes[name] for name in names])).reshape([sizes[name] for name in reversed(names)])
    moved = np.moveaxis(ranks, len(names) - 1 - names.index(axis), -1)
    groups: list[list[int]] = moved.reshape(-1, sizes[axis]).tolist()
    return sorted(groups)


def mesh_groups(names: tuple[str, ...], sizes: dict[str, int], axis: str) -> list[list[int]]:
    """Groups of ranks along an axis of a mesh, row-major: `init_device_mesh` of torch, and `ProcessTopology` of
    DeepSpeed."""
    ranks = np.arange(np.prod([sizes[name] for name in names])).reshape([sizes[name] for name in names])
    groups: list[list[int]] = np.moveaxis(ranks, names.index(axis), -1).reshape(-1, sizes[axis]).tolist()
    return sorted(groups)
