"""A symmetric plan whose degrees the user gives: what is wrong with them, and the plan."""

from collections.abc import Iterator, Mapping, Sequence

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.parallelism.legality import next_tensor_degree, schedule_issues, sharing_issues
from models.parallelism.micro_batches import divisors, least_from
from models.parallelism.recomputation import recomputing
from models.parallelism.request import Degrees
from models.performance.iteration.profile import ModelProfile
from models.pipeline_schedule import PipelineSchedule
from models.software import FEATURES
from models.transformer import Checkpointing
from models.wording import counted
from models.workload import NodeGpus
from stowplan.errors import Issue


def degree_issues(degrees: Degrees, profile: ModelProfile, gpus_per_node: int) -> Iterator[Issue]:
    """Every reason why the model cannot be trained with these degrees, memory apart; pointers relative to them."""
    layers = degrees.layers
    if degrees.pp > profile.num_layers:
        detail = (
            f"is {degrees.pp}, and {profile.name} has {counted(profile.num_layers, 'layer')}; at least one layer "
            "a stage"
        )
        yield Issue(code="layers", pointer="/pp", detail=detail)
    if layers is not None and (len(layers) != degrees.pp or sum(layers) != profile.num_layers):
        detail = (
            f"are {counted(len(layers), 'stage')} with {counted(sum(layers), 'layer')}; pp is {degrees.pp}, and "
            f"{profile.name} has {counted(profile.num_layers, 'layer')}"
        )
        yield Issue(code="layers", pointer="/layers", detail=detail)
    if degrees.pp > 1 and not profile.has_pipelines:
        detail = (
            f"is {degrees.pp} with ZeRO stage {profile.zero_stage}; {profile.software} has pipelines up to stage "
            f"{FEATURES[profile.software].pipeline_zero} only: use that at most, or pp 1"
        )
        yield Issue(code="zero_with_pipeline", pointer="/pp", detail=detail)
    shares = degrees.num_micro_batches * degrees.dp
    if profile.global_batch % shares:
        fitting = [count for count in divisors(profile.global_batch) if count % degrees.dp == 0]
        hint = f"{least_from(fitting, shares) // degrees.dp} would do" if fitting else "choose another dp"
        detail = (
            f"is {degrees.num_micro_batches}: the global batch of {profile.global_batch} does not divide into as many "
            f"micro-batches for {counted(degrees.dp, 'replica')}; {hint}"
        )
        yield Issue(code="batch_not_divisible", pointer="/num_micro_batches", detail=detail)
    yield from _tensor_issues(degrees, profile, gpus_per_node)
    yield from sharing_issues(profile, degrees.context_parallel, degrees.expert_parallel)
    replicas = degrees.dp * degrees.context_parallel
    if replicas % degrees.expert_parallel:
        detail = f"is {degrees.expert_parallel}, which does not divide the {counted(replicas, 'replica')} of a stage"
        yield Issue(code="not_divisible", pointer="/expert_parallel", detail=detail)
    if degrees.virtual_stages > 1:
        yield from _interleaving_issues(degrees, profile)
    yield from schedule_issues(degrees.schedule, profile)
    if degrees.schedule.splits_backward:
        yield from _split_issues(degrees)
    if degrees.recomputed_layers is not None:
        yield from _recomputation_issues(degrees.recomputed_layers, profile)


def given_plan(
    degrees: Degrees, profile: ModelProfile, gpu_type: str | Mapping[str, str], gpus: Sequence[NodeGpus]
) -> ParallelPlan:
    """Build the plan of degrees without issues; `gpu_type`: of all GPUs, or by node.

    Raises
    ------
    InputError
        When there are not as many GPUs as the degrees need, or a tensor group would leave its node.
    """
    plan = symmetric_plan(
        num_layers=profile.num_layers if degrees.layers is None else degrees.layers,
        pp=degrees.pp,
        dp=degrees.dp,
        tp=degrees.tp,
        global_batch=profile.global_batch,
        num_micro_batches=degrees.num_micro_batches,
        gpu_type=gpu_type,
        gpus=tuple((part.node, gpu) for part in gpus for gpu in part.gpus),
        virtual_stages=degrees.virtual_stages,
        cp=degrees.context_parallel,
        ep=degrees.expert_parallel,
        schedule=degrees.schedule,
    )
    if degrees.recomputed_layers is None:
        return plan
    wanted = degrees.recomputed_layers * degrees.virtual_stages
    counts = (wanted if wanted < stage.num_layers else None for stage in plan.stages)
    return recomputing(plan, [(Checkpointing.FULL, count) for count in counts])


def _recomputation_issues(count: int, profile: ModelProfile) -> Iterator[Issue]:
    where = "/recomputed_layers"
    if count < 1:
        yield Issue(code="not_positive", pointer=where, detail=f"is {count}; at least 1, or leave it out")
    if profile.checkpointing is None:
        detail = f"is {count}; the operators of {profile.name} say what they keep: leave it out"
        yield Issue(code="checkpointing", pointer=where, detail=detail)
    elif not FEATURES[profile.software].recomputes_by_stage:
        able = ", ".join(software for software in FEATURES if FEATURES[software].recomputes_by_stage)
        detail = f"is {count}; {profile.software} recomputes all layers or none: leave it out, or use one of {able}"
        yield Issue(code="checkpointing", pointer=where, detail=detail)


def _interleaving_issues(degrees: Degrees, profile: ModelProfile) -> Iterator[Issue]:
    """Parts of stages that the software does not have, or that do not go with stages and micro-batches."""
    parts, where = degrees.virtual_stages, "/virtual_stages"
    if not FEATURES[profile.software].virtual_stages:
        able = ", ".join(software for software in FEATURES if FEATURES[software].virtual_stages)
        detail = f"is {parts}; {profile.software} has no interleaved pipelines: use 1, or one of {able}"
        yield Issue(code="virtual_stages", pointer=where, detail=detail)
        return
    fewest = profile.num_layers // degrees.pp if degrees.layers is None else min(degrees.layers, default=0)
    if degrees.pp == 1 or parts > fewest:
        detail = f"is {parts} for {counted(degrees.pp, 'stage')}, the shortest of {counted(fewest, 'layer')}"
        yield Issue(code="virtual_stages", pointer=where, detail=f"{detail}; use several stages, and a layer per part")
    if degrees.num_micro_batches % degrees.pp and degrees.schedule is not PipelineSchedule.ZBV:
        detail = f"is {degrees.num_micro_batches}; interleaved pipelines take multiples of their {degrees.pp} stages"
        yield Issue(code="virtual_stages", pointer="/num_micro_batches", detail=detail)


def _split_issues(degrees: Degrees) -> Iterator[Issue]:
    """Parts of stages that a zero-bubble schedule does not have, and layers that are recomputed."""
    is_v = degrees.schedule is PipelineSchedule.ZBV
    if not (degrees.virtual_stages == 2 if is_v else degrees.virtual_stages > 1):
        few = counted(degrees.virtual_stages, "part")
        detail = f"is {degrees.schedule} with {few} a stage; give virtual_stages {'2' if is_v else '2 or more'}"
        yield Issue(code="schedule", pointer="/schedule", detail=detail)
    if degrees.recomputed_layers is not None:
        detail = (
            f"is {degrees.recomputed_layers}; {degrees.schedule} goes with nothing that is recomputed: leave it out"
        )
        yield Issue(code="schedule", pointer="/recomputed_layers", detail=detail)


def _tensor_issues(degrees: Degrees, profile: ModelProfile, gpus_per_node: int) -> Iterator[Issue]:
    tp = degrees.tp
    wrong = next(((name, count) for name, count in profile.tensor_units if count % tp), None)
    if wrong is not None:
        detail = (
            f"is {tp}, which does not divide the {wrong[1]} {wrong[0]} of {profile.name}; the next degree that does is "
            f"{next_tensor_degree(profile, tp)}"
        )
        yield Issue(code="tensor_degree", pointer="/tp", detail=detail)
    elif min(gpus_per_node, degrees.num_gpus) % tp:
        detail = f"is {tp}; tensor groups stay inside nodes, and nodes have {counted(gpus_per_node, 'GPU')}"
        yield Issue(code="tensor_degree", pointer="/tp", detail=detail)
