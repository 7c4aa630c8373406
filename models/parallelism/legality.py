"""Is this 3D plan legal for this job, on these GPUs? Pure functions that know no solver and return every violation.

They judge plans of ours before they leave, and plans by anybody else. What is wrong whatever the job (a GPU twice,
degrees that differ inside a stage) is refused by `ParallelPlan` itself. Pointers are relative to the plan.
"""

import math
from collections.abc import Iterator, Mapping, Set

from models.parallel_plan import ParallelPlan, Replica, Stage
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.profile import ModelProfile
from models.pipeline_schedule import PipelineSchedule
from models.software import FEATURES
from models.transformer import Checkpointing
from models.wording import counted, size_of
from stowplan.errors import Issue, pointer_of

FreeGpus = Mapping[str, tuple[str, Set[int]]]


def plan_violations(plan: ParallelPlan, model: PerformanceModel, available: FreeGpus | None = None) -> list[Issue]:
    """Every rule that a plan breaks.

    Layers and batches add up to those of the job. Every tensor-parallel group sits in one node, is of that node's GPU
    type, and its degree divides what tensor parallelism divides. Software has pipelines up to a ZeRO stage of its own,
    and context and expert parallelism or not; their degrees divide sequences and experts. Some have stages that
    differ in what they recompute, some zero-bubble schedules, under which nothing is recomputed.
    Every replica fits into the memory of its GPUs. With `available`, GPUs exist and are free.

    Parameters
    ----------
    available
        Node -> (GPU type, indices of its free GPUs). None: all nodes of the fabric, whatever their GPUs do.
    """
    profile = model.profile
    known = {name: host.gpu_type for name, host in model.fabric.hosts.items()}
    if available is not None:
        known = {name: gpu_type for name, (gpu_type, _) in available.items()}
    replicas = [
        (pointer_of("stages", i, "replicas", j), stage, replica)
        for i, stage in enumerate(plan.stages)
        for j, replica in enumerate(stage.replicas)
    ]
    return [
        *_sum_violations(plan, profile),
        *_tensor_violations(plan, profile),
        *sharing_issues(profile, plan.context_parallel, plan.expert_parallel),
        *schedule_issues(plan.schedule, profile),
        *(issue for where, _, replica in replicas for issue in _node_violations(where, replica, known, available)),
        *_memory_violations(plan, model),
    ]


def next_tensor_degree(profile: ModelProfile, tp: int) -> int:
    """Smallest admitted degree above `tp`; where there is none, the largest one."""
    common = math.gcd(*(count for _, count in profile.tensor_units))
    degrees = [d for d in range(1, common + 1) if common % d == 0]
    return min((d for d in degrees if d > tp), default=common)


def sharing_issues(profile: ModelProfile, cp: int, ep: int) -> Iterator[Issue]:
    """Degrees of context and expert parallelism that software or model do not admit; pointers to a plan's fields."""
    features = FEATURES[profile.software]
    for name, degree, able in (
        ("context_parallel", cp, features.context_parallel),
        ("expert_parallel", ep, features.expert_parallel),
    ):
        if degree > 1 and not able:
            others = ", ".join(software for software in FEATURES if getattr(FEATURES[software], name))
            detail = f"is {degree}; {profile.software} has none: use 1, or one of {others}"
            yield _issue("not_in_software", f"/{name}", detail)
    if features.context_parallel and not profile.admits_context_degree(cp):
        tokens = (
            f"sequences of {counted(profile.sequence_length, 'token')}" if profile.sequence_length else "no sequences"
        )
        detail = f"is {cp}; {profile.name} has {tokens}, of which every replica takes two parts of equal length"
        yield _issue("context_degree", "/context_parallel", detail)
    if features.expert_parallel and not profile.admits_expert_degree(ep):
        experts = counted(profile.num_experts, "expert") if profile.num_experts > 1 else "no experts"
        detail = f"is {ep}, and {profile.name} has {experts}; the degree divides their number"
        yield _issue("expert_degree", "/expert_parallel", detail)


def schedule_issues(schedule: PipelineSchedule, profile: ModelProfile) -> Iterator[Issue]:
    """A zero-bubble schedule that the software does not run, or that goes with what is recomputed; pointers to a plan's
    fields.

    PyTorch repeats the forward pass of a layer for the gradients of its inputs, and again for those of every weight
    (`torch.distributed.pipelining._backward`): 13 tokens a second in place of 128 on 512 GPUs, as torchtitan's authors
    report.
    """
    if not schedule.splits_backward:
        return
    if not FEATURES[profile.software].zero_bubble:
        able = ", ".join(software for software in FEATURES if FEATURES[software].zero_bubble)
        detail = f"is {schedule}; {profile.software} runs no zero-bubble schedule: use 1f1b, or one of {able}"
        yield _issue("not_in_software", "/schedule", detail)
    if profile.checkpointing not in (None, Checkpointing.NONE):
        detail = (
            f"is {schedule} with {profile.checkpointing} checkpointing, which {profile.software} repeats for every "
            "weight under it: use 1f1b, or checkpointing none"
        )
        yield _issue("checkpointing", "/schedule", detail)


def _sum_violations(plan: ParallelPlan, profile: ModelProfile) -> Iterator[Issue]:
    """Layers and batches that do not add up, and ZeRO stages that exclude the pipeline."""
    if plan.num_layers != profile.num_layers:
        yield _issue(
            "layers",
            "/stages",
            f"the stages have {counted(plan.num_layers, 'layer')} together; {profile.name} has {profile.num_layers}",
        )
    if plan.global_batch != profile.global_batch:
        yield _issue(
            "global_batch",
            "/num_micro_batches",
            f"{plan.num_micro_batches} x {counted(plan.micro_batch, 'sequence')} make {plan.global_batch}; "
            f"the global batch of {profile.name} is {profile.global_batch}",
        )
    if plan.virtual_stages > 1 and not FEATURES[profile.software].virtual_stages:
        detail = f"is {plan.virtual_stages}; {profile.software} has no interleaved pipelines: use 1, or other software"
        yield _issue("virtual_stages", "/virtual_stages", detail)
    yield from _checkpointing_violations(plan, profile)
    if plan.pp > 1 and not profile.has_pipelines:
        yield _issue(
            "zero_with_pipeline",
            "/stages",
            f"ZeRO stage {profile.zero_stage} with {plan.pp} pipeline stages; {profile.software} has pipelines up to "
            f"stage {FEATURES[profile.software].pipeline_zero} only: use that at most, or one pipeline stage",
        )


def _checkpointing_violations(plan: ParallelPlan, profile: ModelProfile) -> Iterator[Issue]:
    for i, stage in enumerate(plan.stages):
        if stage.checkpointing is None:
            continue
        where = pointer_of("stages", i, "checkpointing")
        if profile.checkpointing is None:
            detail = f"is {stage.checkpointing}; the operators of {profile.name} say what they keep: leave it out"
            yield _issue("checkpointing", where, detail)
        elif not FEATURES[profile.software].recomputes_by_stage:
            detail = (
                f"is {stage.recomputing}; {profile.software} recomputes alike in all stages, as the job's model says: "
                "leave it out, or use other software"
            )
            yield _issue("checkpointing", where, detail)


def _tensor_violations(plan: ParallelPlan, profile: ModelProfile) -> Iterator[Issue]:
    """Tensor degrees that do not divide the model; the first unit that they do not divide is named."""
    for i, stage in enumerate(plan.stages):
        wrong = [(name, count) for name, count in profile.tensor_units if count % stage.tp]
        if wrong:
            name, count = wrong[0]
            yield _issue(
                "tensor_degree",
                pointer_of("stages", i, "replicas"),
                f"tensor degree {stage.tp} does not divide the {count} {name} of {profile.name}; "
                f"the next degree that works is {next_tensor_degree(profile, stage.tp)}",
            )


def _node_violations(
    where: str, replica: Replica, known: Mapping[str, str], available: FreeGpus | None
) -> Iterator[Issue]:
    """A group on an unknown node, of another GPU type than its node, or on GPUs that are not free there; `known`: GPU
    type of every node."""
    node = replica.node
    if node not in known:
        yield _issue("unknown_node", f"{where}/node", f"there is no node {node!r} to use")
        return
    if replica.gpu_type != known[node]:
        yield _issue(
            "gpu_type", f"{where}/gpu_type", f"is {replica.gpu_type!r}; node {node!r} has GPUs of type {known[node]!r}"
        )
    if available is None:
        return
    free = available[node][1]
    missing = sorted(set(replica.gpus) - free)
    if missing:
        yield _issue(
            "gpu_not_free",
            f"{where}/gpus",
            f"GPU {', '.join(map(str, missing))} of node {node!r} is taken or does not exist; free are {sorted(free)}",
        )


def _memory_violations(plan: ParallelPlan, model: PerformanceModel) -> Iterator[Issue]:
    """Replicas whose peak memory is above the usable memory of their GPUs (Suika A.3)."""
    profile = model.profile
    if plan.num_layers != profile.num_layers or (plan.has_own_checkpointing and profile.checkpointing is None):
        return
    for i, stage in enumerate(plan.stages):
        batches = sorted({replica.local_batch for replica in stage.replicas})
        memory = model.memory_of(plan, [(i, local_batch) for local_batch in batches])
        needed = {batch: found.total_bytes for batch, found in zip(batches, memory, strict=True)}
        yield from _stage_memory_violations(i, stage, needed, model)


def _stage_memory_violations(
    i: int, stage: Stage, needed: Mapping[int, float], model: PerformanceModel
) -> Iterator[Issue]:
    """Replicas of one stage without enough memory; `needed`: bytes per GPU by local batch."""
    for j, replica in enumerate(stage.replicas):
        where = pointer_of("stages", i, "replicas", j)
        if replica.gpu_type not in model.memory_bytes:
            yield _issue(
                "unknown_gpu_type",
                f"{where}/gpu_type",
                f"{replica.gpu_type!r} is not known here; known are {sorted(model.memory_bytes)}",
            )
            continue
        usable = model.usable_bytes(replica.gpu_type)
        if needed[replica.local_batch] > usable:
            yield _issue(
                "out_of_memory",
                where,
                f"needs {size_of(needed[replica.local_batch])} per GPU; of the memory of {replica.gpu_type!r}, "
                f"{size_of(usable)} are usable ({model.headroom:.0%} are kept free)",
            )


def _issue(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail)
