"""Which rank of a training run sits on which GPU, and with which coordinates.

Ranks go pipe slowest, then data, then tensor: the order of the native engine and, for symmetric plans, of DeepSpeed's
`PipeModelDataParallelTopology`, whose groups are exactly those of the plan when the launcher gives every process the
rank that stands here. Hosts may come in any order; inside a tensor group ranks grow with the tensor coordinate, as
DeepSpeed needs. Context and expert coordinates are part of the data coordinate, which counts all replicas: those of
Megatron-Core, whose order is the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import ClassVar

from executor.training_options import EngineName
from models.parallel_plan import ParallelPlan
from stowplan.errors import InputError, Issue


class AsymmetricPlanError(InputError):
    """DeepSpeed cannot run the plan: degrees differ between stages, or batches between replicas."""

    code: ClassVar[str] = "asymmetric_plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """One process. `local_rank` counts the GPUs that the run uses on the node, in the order of their index `gpu`.
    `context`, `expert`: which part of its sequences, and of the experts, it has.
    """

    rank: int
    node: str
    gpu: int
    local_rank: int
    pipe: int
    data: int
    tensor: int
    context: int = 0
    expert: int = 0


def ranks_of(plan: ParallelPlan) -> tuple[Rank, ...]:
    """Give every rank of a plan, symmetric or not, in rank order."""
    local = {place: k for _, places in groupby(sorted(plan.gpus), key=lambda p: p[0]) for k, place in enumerate(places)}
    places = (
        (i, j, k, replica.node, gpu)
        for i, stage in enumerate(plan.stages)
        for j, replica in enumerate(stage.replicas)
        for k, gpu in enumerate(replica.gpus)
    )
    return tuple(
        Rank(
            rank=rank,
            node=node,
            gpu=gpu,
            local_rank=local[node, gpu],
            pipe=pipe,
            data=data,
            tensor=tensor,
            context=data % plan.context_parallel,
            expert=data % plan.expert_parallel,
        )
        for rank, (pipe, data, tensor, node, gpu) in enumerate(places)
    )


def rank_table(plan: ParallelPlan, engine: EngineName = EngineName.DEEPSPEED) -> tuple[Rank, ...]:
    """Give every rank of a plan that the engine can run, in rank order.

    Raises
    ------
    AsymmetricPlanError
        Naming the stages, where the plan is not symmetric and the engine is DeepSpeed.
    InputError
        Where it has what the engine lacks.
    """
    refuse_plan(plan, engine)
    return ranks_of(plan)


def refuse_plan(plan: ParallelPlan, engine: EngineName, where: str = "") -> None:
    """Raise InputError where replicas share sequences; under DeepSpeed also where they share experts, or stages are
    cut into parts or have a checkpointing of their own, and AsymmetricPlanError where stages have other degrees or
    replicas other batches.

    `where`: pointer to the plan.
    """
    if plan.schedule.splits_backward and engine is EngineName.DEEPSPEED:
        detail = f"is {plan.schedule}; DeepSpeed has 1F1B alone: plan with software deepspeed"
        issue = Issue(code="schedule", pointer=f"{where}/schedule", detail=detail)
        raise InputError(f"the plan {plan.notation()} is zero-bubble and cannot be deployed", [issue])
    if plan.virtual_stages > 1 and engine is EngineName.DEEPSPEED:
        detail = (
            f"is {plan.virtual_stages}; DeepSpeed has no interleaved pipelines: plan with software deepspeed, or train "
            "with the engine native"
        )
        issue = Issue(code="virtual_stages", pointer=f"{where}/virtual_stages", detail=detail)
        raise InputError(f"the plan {plan.notation()} is interleaved and cannot be deployed", [issue])
    shared = [
        Issue(
            code="not_in_software",
            pointer=f"{where}/{name}",
            detail=f"is {degree}; {lacking}",
        )
        for name, lacking in (
            ("context_parallel", "the trainer has none: plan with software deepspeed, or context degree 1"),
            ("expert_parallel", "DeepSpeed's pipelines have none; train with the engine native"),
        )
        if (degree := getattr(plan, name)) > 1
        if name == "context_parallel" or engine is EngineName.DEEPSPEED
    ]
    if shared:
        raise InputError(f"the plan {plan.notation()} shares sequences or experts and cannot be deployed", shared)
    own = (
        ()
        if engine is not EngineName.DEEPSPEED
        else [
            Issue(
                code="checkpointing",
                pointer=f"{where}/stages/{i}/checkpointing",
                detail=f"is {stage.recomputing}; under DeepSpeed all stages recompute as the job's model says: plan "
                "with software deepspeed, or train with the engine native",
            )
            for i, stage in enumerate(plan.stages)
            if stage.checkpointing is not None
        ]
    )
    if own:
        raise InputError(f"stages of the plan {plan.notation()} have a checkpointing of their own", own)
    if engine is not EngineName.DEEPSPEED:
        return
    first = plan.stages[0]
    issues = [
        Issue(
            code="asymmetric_stage",
            pointer=f"{where}/stages/{i}",
            detail=f"stage {i} has DP{stage.dp} TP{stage.tp}, stage 0 has DP{first.dp} TP{first.tp}; "
            "DeepSpeed needs the same degrees in all stages",
        )
        for i, stage in enumerate(plan.stages)
        if (stage.dp, stage.tp) != (first.dp, first.tp)
    ]
    issues += [
        Issue(
            code="uneven_batches",
            pointer=f"{where}/stages/{i}/replicas",
            detail=f"the replicas of stage {i} work on {sorted({r.local_batch for r in stage.replicas})} sequences; "
            "DeepSpeed gives every replica the same batch",
        )
        for i, stage in enumerate(plan.stages)
        if len({replica.local_batch for replica in stage.replicas}) > 1
    ]
    if issues:
        raise AsymmetricPlanError(
            f"the plan {plan.notation()} is not symmetric and cannot be deployed with DeepSpeed; --engine native, or "
            "training.engine in the request, runs it as it is; with --project, or project in the request, the best "
            "symmetric plan takes its place",
            issues,
        )


def hosts_of(ranks: Sequence[Rank]) -> dict[str, tuple[Rank, ...]]:
    """Nodes in the order of their first rank, each with its ranks by local rank."""
    nodes: dict[str, list[Rank]] = {}
    for rank in ranks:
        nodes.setdefault(rank.node, []).append(rank)
    return {node: tuple(sorted(group, key=attrgetter("local_rank"))) for node, group in nodes.items()}


def hostfile(ranks: Sequence[Rank]) -> str:
    """A line `node slots=n` per node, in the order of its first rank: what DeepSpeed and MPI read."""
    return "".join(f"{node} slots={len(group)}\n" for node, group in hosts_of(ranks).items())
