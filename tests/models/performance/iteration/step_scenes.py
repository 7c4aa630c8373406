"""Steps as a trainer would measure them on a cluster whose coefficients are known."""

from dataclasses import replace

import numpy as np

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.coefficients import Calibration, GpuCoefficients
from models.performance.iteration.inversion import observe
from models.performance.iteration.modelling import performance_model
from models.performance.iteration.step_measurements import rank_places
from models.performance.iteration.step_table import WARM_UP_STEPS, MeasuredRun, StepTable
from models.transformer import Precision, Transformer
from topology.cluster import Cluster, GpuType, Node

MODEL = Transformer(
    num_layers=8,
    hidden_size=512,
    vocabulary_size=8_000,
    sequence_length=256,
    global_batch=32,
    num_heads=8,
    precision=Precision.FP32,
)
# The data sheet promises three times what the truth is.
CPU = GpuType(
    name="cpu",
    memory_bytes=64 * 2**30,
    peak_flops_per_s=300e9,
    intra_node_bandwidth_bytes_per_s=4e9,
    inter_node_bandwidth_bytes_per_s=1e9,
)
CLUSTER = Cluster(gpu_types=(CPU,), nodes=tuple(Node(id=f"n{k}", gpu_type="cpu", num_gpus=4) for k in range(2)))
TRUTH = Calibration(gpus={"cpu": GpuCoefficients(compute_s=0.03, backward_ratio=2.3, optimizer_s=0.02, overlap=3.0)})


def plan_of(pp: int, dp: int, tp: int, num_micro_batches: int = 4, job: Transformer = MODEL) -> ParallelPlan:
    """A symmetric plan that fills n0 first, then n1."""
    gpus = tuple((f"n{k // 4}", k % 4) for k in range(pp * dp * tp))
    return symmetric_plan(
        num_layers=job.num_layers,
        pp=pp,
        dp=dp,
        tp=tp,
        global_batch=job.global_batch,
        num_micro_batches=num_micro_batches,
        gpu_type="cpu",
        gpus=gpus,
    )


def true_step_s(plan: ParallelPlan, job: Transformer = MODEL) -> float:
    """Time of a step without noise."""
    return performance_model(job, CLUSTER, TRUTH).iteration(plan).total_s


def measured_run(
    plan: ParallelPlan,
    launch: int = 1,
    *,
    job: Transformer = MODEL,
    num_steps: int = 30,
    first_step: int = 1,
    noise: float = 0.05,
    seed: int = 0,
) -> MeasuredRun:
    """A launch whose ranks wait in reductions and optimiser, with a slow start and a few steps that stall."""
    random = np.random.default_rng(seed)
    model = performance_model(job, CLUSTER, TRUTH)
    seen = {(m.stage, m.replica): m for m in observe(model, plan)}
    of_rank = [seen[i, j] for i, j, _ in rank_places(plan)]
    shape = (num_steps, len(of_rank))
    factor = 1.0 + noise * random.random((num_steps, 1))
    factor[:WARM_UP_STEPS] *= 10.0
    factor[random.choice(np.arange(WARM_UP_STEPS, num_steps), num_steps // 10, replace=False)] *= 5.0

    def times(name: str) -> np.ndarray:
        return np.array([getattr(m, name) or 0.0 for m in of_rank]) * factor

    # One rank of every stage comes last and does not wait; stage 0 ends last of all.
    waits = random.random(shape) * 0.5
    waits[:, [k for k, (_, j, _) in enumerate(rank_places(plan)) if j == 0]] = 0.0
    late = np.array([0.0 if i == 0 else 0.3 for i, _, _ in rank_places(plan)])
    replicas = plan.stages[0].dp
    table = StepTable(
        rank=np.tile(np.arange(shape[1]), num_steps),
        step=np.repeat(np.arange(first_step, first_step + num_steps), shape[1]),
        started_at_s=np.repeat(1e9 + np.arange(num_steps), shape[1]).astype(float),
        step_s=(np.ones(shape) * true_step_s(plan, job) * factor).ravel(),
        forward_s=(times("forward_s") * plan.num_micro_batches).ravel(),
        backward_s=(times("backward_s") * plan.num_micro_batches).ravel(),
        reduction_s=(times("exposed_reduction_s") + (waits if replicas > 1 else 0.0)).ravel(),
        optimizer_s=(times("optimizer_s") + late).ravel(),
        peak_memory_bytes=np.full(shape, 1e9).ravel(),
        small_square=np.full(shape, 3.0).ravel(),
        large_square=np.full(shape, 3.0 if replicas == 1 else 2.0).ravel(),
    )
    shuffled = random.permutation(len(table.rank))
    return MeasuredRun(
        launch=launch,
        job=job,
        plan=plan,
        cluster=CLUSTER,
        records=StepTable(**{name: getattr(table, name)[shuffled] for name in StepTable.__slots__}),
        first_step=first_step,
    )


def without_ranks(run: MeasuredRun, *ranks: int) -> MeasuredRun:
    """The launch as it looks when some ranks have reported nothing."""
    kept = ~np.isin(run.records.rank, ranks)
    table = StepTable(**{name: getattr(run.records, name)[kept] for name in StepTable.__slots__})
    return replace(run, records=table)
