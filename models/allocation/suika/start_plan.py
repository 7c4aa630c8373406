"""The plan that a job starts with: of the degrees that the user gives, or what the grid planner finds for the count."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from models.allocation.suika.planner import NoPlan
from models.parallel_plan import ParallelPlan, even_split
from models.parallelism.grid.planner import plan_grids
from models.parallelism.layout import build_plan
from models.parallelism.micro_batches import divisors
from models.parallelism.training import Training
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.profile import ModelProfile
from models.remembered import remembered
from models.transformer import JobModel
from models.wording import counted, size_of
from models.workload import Parallelism
from topology.cluster import GpuType


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPlan:
    """The fastest plan; None, and why, when none is legal."""

    plan: ParallelPlan | None
    throughput: float = 0.0
    why: NoPlan | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartQuestion:
    """A job, its GPUs, and the degrees if they are given; `key` stands for model and calibration. `training`: what the
    plan says of how it trains."""

    key: Hashable
    model: JobModel = field(compare=False, repr=False)
    calibration: Calibration | None = field(compare=False, repr=False)
    gpu_type: GpuType
    gpus_per_node: int
    num_gpus: int
    degrees: Parallelism | None
    training: Training | None = None


@remembered(1024)
def find_start_plan(question: StartQuestion) -> FoundPlan:
    """The fastest plan on virtual nodes."""
    found = _from_grids(question) if question.degrees is None else _from_degrees(question, question.degrees)
    if found.plan is None or question.training is None:
        return found
    return replace(found, plan=replace(found.plan, training=question.training))


def _from_degrees(question: StartQuestion, degrees: Parallelism) -> FoundPlan:
    groups = max(1, question.gpus_per_node // degrees.tp)
    num_nodes = -(-degrees.pp * degrees.dp // groups)
    model = virtual_model(question.model, question.gpu_type, question.gpus_per_node, num_nodes, question.calibration)
    return _of_degrees(degrees, model, question.gpu_type.name, question.gpus_per_node)


def _from_grids(question: StartQuestion) -> FoundPlan:
    kind, count = question.gpu_type, question.num_gpus
    result = plan_grids(question.model, kind, question.gpus_per_node, [count], calibration=question.calibration)
    best = result.best.get((kind.name, count))
    if best is not None:
        return FoundPlan(plan=best.plan, throughput=best.throughput)
    rejections = [rejection for grid in result.grids for rejection in grid.rejections]
    full = [rejection for rejection in rejections if rejection.needed_bytes is not None]
    if not full:
        return FoundPlan(
            plan=None,
            why=NoPlan(
                reason="no_plan",
                detail=f"no plan on {counted(count, 'GPU')} of type {kind.name!r}: "
                + "; ".join(dict.fromkeys(rejection.detail for rejection in rejections)),
                counts={"min_gpus": count},
                remedy="another `min_gpus`",
            ),
        )
    closest = min(full, key=lambda rejection: rejection.needed_bytes or 0.0)
    needed, usable = closest.needed_bytes or 0.0, closest.usable_bytes or 0.0
    return FoundPlan(
        plan=None, why=_out_of_memory(f"{closest.candidate}, which needs least,", kind.name, needed, usable)
    )


def _of_degrees(degrees: Parallelism, model: PerformanceModel, gpu_type: str, gpus_per_node: int) -> FoundPlan:
    """Choose the number of micro-batches for given degrees."""
    profile = model.profile
    fault = _degree_fault(degrees, profile, gpus_per_node)
    counts = [] if fault else _micro_batch_counts(profile, degrees.dp)
    if not counts:
        return FoundPlan(plan=None, why=fault or _batch_fault(degrees, profile))
    plans = [_plan(degrees, profile, gpu_type, gpus_per_node, count) for count in counts]
    legal = [(model.throughput(plan), plan) for plan in plans if model.fits(plan)]
    if legal:
        throughput, plan = max(legal, key=lambda item: item[0])
        return FoundPlan(plan=plan, throughput=throughput)
    needed = min(max(memory.total_bytes for memory in model.memory(plan)) for plan in plans)
    usable = model.usable_bytes(gpu_type)
    name = f"PP{degrees.pp} DP{degrees.dp} TP{degrees.tp}"
    return FoundPlan(plan=None, why=_out_of_memory(name, gpu_type, needed, usable))


def _out_of_memory(candidate: str, gpu_type: str, needed: float, usable: float) -> NoPlan:
    return NoPlan(
        reason="out_of_memory",
        detail=f"{candidate} needs {size_of(needed)} on a GPU; of the memory of {gpu_type!r}, {size_of(usable)} are "
        "usable",
        counts={"needed_bytes": round(needed), "usable_bytes": round(usable)},
        remedy="a larger `min_gpus`, larger pipeline or tensor degrees, activation checkpointing, or larger GPUs",
    )


def _micro_batch_counts(profile: ModelProfile, dp: int) -> list[int]:
    """Numbers of micro-batches that give every replica something to do; the job's own micro-batch decides."""
    if profile.micro_batch is not None:
        whole = profile.micro_batch * dp
        return [] if profile.global_batch % whole else [profile.global_batch // whole]
    return [count for count in divisors(profile.global_batch) if profile.global_batch // count >= dp]


def _plan(degrees: Parallelism, profile: ModelProfile, gpu_type: str, gpus_per_node: int, count: int) -> ParallelPlan:
    groups = gpus_per_node // degrees.tp
    per_stage = degrees.dp * degrees.tp
    gpus = [
        (str(k // groups), k % groups * degrees.tp + shard)
        for k in range(degrees.pp * degrees.dp)
        for shard in range(degrees.tp)
    ]
    return build_plan(
        layers=even_split(profile.num_layers, degrees.pp),
        degrees=[(degrees.dp, degrees.tp)] * degrees.pp,
        places=[tuple(gpus[k * per_stage : (k + 1) * per_stage]) for k in range(degrees.pp)],
        gpu_type=gpu_type,
        micro_batch=profile.global_batch // count,
        num_micro_batches=count,
    )


def _degree_fault(degrees: Parallelism, profile: ModelProfile, gpus_per_node: int) -> NoPlan | None:
    faults: Sequence[tuple[bool, str, str]] = (
        (
            degrees.tp > gpus_per_node,
            f"tensor degree {degrees.tp} does not fit into nodes of {counted(gpus_per_node, 'GPU')}",
            "a tensor degree that fits into one node",
        ),
        (
            not profile.admits_tensor_degree(degrees.tp),
            f"tensor degree {degrees.tp} does not divide "
            + " and ".join(f"{count} {name}" for name, count in profile.tensor_units if count % degrees.tp),
            "a tensor degree that divides them",
        ),
        (
            degrees.pp > profile.num_layers,
            f"{degrees.pp} pipeline stages for {counted(profile.num_layers, 'layer')}",
            "at most one stage per layer",
        ),
        (
            degrees.pp > 1 and not profile.has_pipelines,
            f"{profile.software} has no pipelines at ZeRO stage {profile.zero_stage}",
            "ZeRO stage 1 at most, or one pipeline stage",
        ),
    )
    for is_wrong, detail, remedy in faults:
        if is_wrong:
            counts = {"tp": degrees.tp, "pp": degrees.pp, "dp": degrees.dp}
            return NoPlan(reason="illegal_degrees", detail=detail, counts=counts, remedy=remedy)
    return None


def _batch_fault(degrees: Parallelism, profile: ModelProfile) -> NoPlan:
    return NoPlan(
        reason="batch",
        detail=f"a global batch of {profile.global_batch} does not divide among {degrees.dp} replicas"
        + ("" if profile.micro_batch is None else f" with a micro-batch of {profile.micro_batch}"),
        counts={"global_batch": profile.global_batch, "dp": degrees.dp},
        remedy="a data degree that divides the global batch, or another batch",
    )
