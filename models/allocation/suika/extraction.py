"""From chosen scale-outs to a plan: names of GPUs, one plan per job, what changes, who waits and why, and the score."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from models.allocation.suika.basic_demand import Refused
from models.allocation.suika.ilp import ScaleOutProgram
from models.allocation.suika.placing import renamed
from models.allocation.suika.planner import Planner
from models.allocation.suika.scale_out import Column
from models.allocation.suika.state import ClusterState, RunningJob, by_node, current_gpus, gpus_in, node_gpus
from models.parallel_plan import Gpu
from models.placement.occupancy import occupancy
from models.plan import Change, JobAllocation, Plan, ScoreTerm, UnplacedJob
from models.wording import counted
from models.workload import Expansion, Job, Snapshot

TERM = "normalised_throughput"


def extract_plan(
    snapshot: Snapshot,
    program: ScaleOutProgram,
    chosen: Sequence[Column],
    refused: Sequence[Refused],
    planner: Planner,
) -> Plan:
    """The consolidated plan: every job goes from where it is to its last plan at once."""
    final = dict(program.jobs)
    for job_id, running in scaled_out(program, chosen).items():
        # The search knows it but for rounding; the next snapshot, with this plan in it, is to say the same.
        final[job_id] = replace(running, throughput=planner.throughput(running.job, running.plan))
    ran = occupancy(snapshot).running.keys()
    weights = {job_id: program.weight(job_id) for job_id in final}
    types = {node.id: node.gpu_type for node in snapshot.cluster.nodes}
    return Plan(
        allocations=tuple(
            _allocation(job, final.get(job.id), ran, types)
            for job in snapshot.jobs
            if job.id in final or job.id in program.state.fixed
        ),
        unplaced=tuple(_unplaced(entry, program.state, ran, planner) for entry in refused),
        score=tuple(
            ScoreTerm(
                term=TERM,
                job_id=job.id,
                value=weights[job.id] * final[job.id].throughput / program.jobs[job.id].throughput,
            )
            for job in snapshot.jobs
            if job.id in final
        ),
    )


def scaled_out(program: ScaleOutProgram, chosen: Sequence[Column]) -> dict[str, RunningJob]:
    """The jobs that are scaled out, on GPUs of their own: columns count GPUs of a node, and may name the same ones."""
    left = {node: set(gpus) for nodes in program.state.free.values() for node, gpus in nodes.items()}
    given: list[dict[Gpu, Gpu]] = []
    for column in chosen:
        own = {gpu: gpu for gpu in column.added if gpu[1] in left[gpu[0]]}
        for node, gpu in own:
            left[node].remove(gpu)
        given.append(own)
    found = {}
    for column, own in zip(chosen, given, strict=True):
        for node, gpus in by_node(sorted(column.added - own.keys())).items():
            spare = sorted(left[node])[: len(gpus)]
            left[node] -= set(spare)
            own |= {(node, gpu): (node, other) for gpu, other in zip(sorted(gpus), spare, strict=True)}
        settled = program.jobs[column.job_id]
        found[column.job_id] = replace(
            settled,
            plan=renamed(column.build(), own),
            throughput=column.throughput,
            expansions=tuple(_renamed_expansion(grown, own) for grown in column.expansions),
        )
    return found


def _renamed_expansion(grown: Expansion, places: Mapping[Gpu, Gpu]) -> Expansion:
    return replace(grown, gpus=node_gpus([places.get(gpu, gpu) for gpu in gpus_in([grown])]))


def _allocation(job: Job, running: RunningJob | None, ran: Collection[str], types: Mapping[str, str]) -> JobAllocation:
    """What a job gets; without a running job it is fixed, and keeps what it has."""
    if running is None:
        gpus = current_gpus(job)
        return JobAllocation(
            job_id=job.id,
            gpu_type=types[next(iter(gpus))[0]],
            num_gpus=len(gpus),
            gpus=node_gpus(gpus),
            change=Change.KEPT,
            parallel_plan=job.parallel_plan,
            expansions=job.expansions,
        )
    return JobAllocation(
        job_id=job.id,
        gpu_type=running.gpu_type,
        num_gpus=running.plan.num_gpus,
        gpus=node_gpus(running.plan.gpus),
        change=_change(job, running, types) if job.id in ran else Change.STARTED,
        batch_size=running.plan.global_batch,
        expected_goodput=running.throughput,
        parallel_plan=running.plan,
        expansions=running.expansions,
    )


def _change(job: Job, running: RunningJob, types: Mapping[str, str]) -> Change:
    before, after = current_gpus(job), frozenset(running.plan.gpus)
    if before == after:
        return Change.KEPT
    if types[next(iter(before))[0]] != running.gpu_type:
        return Change.RETYPED
    return Change.MOVED if len(before) == len(after) else Change.RESCALED


def _unplaced(entry: Refused, state: ClusterState, ran: Collection[str], planner: Planner) -> UnplacedJob:
    """Why a basic demand is not served: no plan, too few GPUs beside other basic demands, or not in one piece."""
    job = entry.job
    if not entry.plans:
        no_plan = planner.why_no_plan(job)
        return UnplacedJob(
            job_id=job.id,
            reason=no_plan.reason,
            detail=no_plan.detail,
            counts=no_plan.counts,
            remedy=no_plan.remedy,
            preempted=job.id in ran,
        )
    counts = {"min_gpus": job.min_gpus}
    short: dict[str, int] = {}
    for start in entry.plans:
        kind = start.gpu_type
        free = len(state.released(kind))
        elastic = sum(
            len(gpus_in(running.expansions)) for running in state.running.values() if running.gpu_type == kind
        )
        counts |= {f"free_gpus.{kind}": free, f"scaled_out_gpus.{kind}": elastic}
        short[kind] = start.plan.num_gpus - free - elastic
    kind = min(short, key=lambda name: short[name])
    if short[kind] > 0:
        return UnplacedJob(
            job_id=job.id,
            reason="capacity",
            detail=_too_few(counts[f"free_gpus.{kind}"], counts[f"scaled_out_gpus.{kind}"], short[kind], kind, state),
            counts=counts,
            remedy=f"{counted(short[kind], 'more GPU')} of type {kind}",
            preempted=job.id in ran,
        )
    tp = max(stage.tp for start in entry.plans if start.gpu_type == kind for stage in start.plan.stages)
    return UnplacedJob(
        job_id=job.id,
        reason="fragmentation",
        detail=f"there are enough GPUs, but not in groups of {tp} on one node, also when jobs that may move are moved",
        counts=counts | {"tensor_degree": tp},
        remedy=f"{counted(tp, 'more GPU')} of type {kind} on one node, or a plan with a smaller tensor degree",
        preempted=job.id in ran,
    )


def _too_few(free: int, elastic: int, short: int, kind: str, state: ClusterState) -> str:
    """What a job that is short of GPUs of a type needs, and where they are."""
    others = [running for running in state.running.values() if running.gpu_type == kind]
    held = sum(running.held for running in others)
    there = f"{free} are free" + (f", {elastic} more if every scale-out is taken back" if elastic else "")
    beside = f"; {held} serve the basic demands of {counted(len(others), 'other job')}" if others else ""
    return f"it needs {counted(free + elastic + short, 'GPU')} of type {kind}, of which {there}{beside}"
