"""Does a plan keep the rules of Suika, and is its objective what it claims? Knows no solver.

Threshold, throughputs and objective are computed again from the plan, the snapshot and the performance model. What is
taken from the decision is only what a plan cannot tell: the settled plan of every job (Problem 1 counts from there),
and the plans that waiting jobs were tried with. Whether the GPUs may be used is decided by `models.placement.check`,
whether a 3D plan is legal by `models.parallelism.legality`.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import pairwise

from models.allocation.parallel_plan_check import training_violations
from models.allocation.plan_check import TOLERANCE, coverage_violations, score_violations
from models.allocation.suika.basic_demand import Refused
from models.allocation.suika.benefit import gpu_sizes, threshold
from models.allocation.suika.heuristic import Decision
from models.allocation.suika.parameters import SuikaParameters
from models.allocation.suika.state import RunningJob, by_node, current_gpus, gpus_in
from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.legality import plan_violations
from models.parallelism.training import Training
from models.performance.iteration.model import PerformanceModel
from models.plan import JobAllocation, Plan
from models.workload import Job, NodeGpus, Snapshot
from stowplan.errors import Issue
from topology.cluster import NodeState

ModelOf = Callable[[Job, Training | None], PerformanceModel]


def suika_violations(
    snapshot: Snapshot,
    parameters: SuikaParameters,
    decision: Decision,
    model_of: ModelOf,
    plan: Plan,
    objective: float,
) -> list[Issue]:
    """Every rule that the plan breaks, and every number of its score that is wrong."""
    jobs = {job.id: job for job in snapshot.jobs}
    settled, fixed = decision.settled.running, decision.settled.fixed
    tau = threshold(_intensity(snapshot, plan), parameters.aggressiveness)
    issues = list(coverage_violations(snapshot, plan))
    expected: dict[str | None, float] = {}
    sizes = gpu_sizes(snapshot.cluster)
    for k, allocation in enumerate(plan.allocations):
        job, base = jobs.get(allocation.job_id), settled.get(allocation.job_id)
        if job is None or job.id in fixed:
            continue
        if base is None or allocation.parallel_plan is None:
            issues.append(
                Issue(
                    code="no_plan",
                    pointer=f"/allocations/{k}/parallel_plan",
                    detail=f"job {job.id!r} is allocated without a 3D plan, or did not run in the settled state",
                )
            )
            continue
        audit = _Audit(f"/allocations/{k}", job, allocation, allocation.parallel_plan, base, model_of)
        illegal = list(audit.plan_faults())
        issues += [*illegal, *audit.expansion_faults(tau)]
        size = sizes[allocation.gpu_type] * base.plan.num_gpus
        expected[job.id] = math.nan if illegal else job.weight * size * audit.normalised_throughput()
    keys = [term.job_id for term in plan.score]
    return [
        *issues,
        *_waiting_violations(snapshot, plan, decision.refused, decision.settled.stuck | fixed.keys()),
        *score_violations(plan.score, keys, expected, objective, wanted="running job"),
    ]


class _Audit:
    """One allocation with a plan."""

    def __init__(
        self,
        pointer: str,
        job: Job,
        allocation: JobAllocation,
        plan: ParallelPlan,
        base: RunningJob,
        model_of: ModelOf,
    ) -> None:
        self._pointer = pointer
        self._job = job
        self._allocation = allocation
        self._plan = plan
        self._base = base
        self._model_of = model_of
        self._gpus = _places(allocation.gpus)
        # What runs already needs no model to prove that it can.
        self._is_new = plan != job.parallel_plan or current_gpus(job) != self._gpus

    def plan_faults(self) -> Iterator[Issue]:
        """The plan uses exactly the GPUs of the job, is legal, and then as fast as it claims."""
        if frozenset(self._plan.gpus) != self._gpus:
            yield self._issue("plan_not_on_gpus", "/parallel_plan", "its plan does not use exactly its GPUs")
            return
        if not self._is_new:
            return
        kind = self._allocation.gpu_type
        own = {node: (kind, gpus) for node, gpus in by_node(self._gpus).items()}
        model = self._model_of(self._job, self._plan.training)
        illegal = [*training_violations(self._job, self._plan), *plan_violations(self._plan, model, own)]
        for issue in illegal:
            yield self._issue(issue.code, f"/parallel_plan{issue.pointer}", issue.detail)
        if illegal:
            return
        throughput = model.throughput(self._plan)
        claimed = self._allocation.expected_goodput
        if claimed is None or not math.isclose(claimed, throughput, rel_tol=TOLERANCE):
            yield self._issue("wrong_goodput", "/expected_goodput", f"claims {claimed} samples/s; it is {throughput}")

    def expansion_faults(self, tau: float) -> Iterator[Issue]:
        """Expansions are GPUs of the job, each once, beyond its basic demand; new ones reach the threshold."""
        expansions = self._allocation.expansions
        added = Counter(gpu for grown in expansions for gpu in _places(grown.gpus))
        if any(count > 1 for count in added.values()) or not added.keys() <= self._gpus:
            yield self._issue("bad_expansion", "/expansions", "expansions must list GPUs of the job, each once")
        held = len(self._gpus) - len(added)
        if held < self._job.min_gpus:
            yield self._issue("basic_demand_not_met", "/expansions", f"{held} GPUs serve {self._job.min_gpus}")
        num_old = len(self._base.expansions)
        for k, grown in enumerate(expansions[num_old:], start=num_old):
            if grown.benefit < tau * (1.0 - TOLERANCE):
                yield self._issue(
                    "below_threshold", f"/expansions/{k}/benefit", f"is {grown.benefit}; the threshold is {tau}"
                )
        if frozenset(self._base.plan.gpus) != self._gpus - gpus_in(expansions[num_old:]):
            yield self._issue("wrong_base", "/expansions", "without its new expansions the job is not what it was")

    def normalised_throughput(self) -> float:
        """Throughput over that of the settled plan (Eq. 1)."""
        if self._plan == self._base.plan:
            return 1.0
        now, base = (
            self._model_of(self._job, plan.training).throughput(plan) for plan in (self._plan, self._base.plan)
        )
        return now / base

    def _issue(self, code: str, pointer: str, detail: str) -> Issue:
        return Issue(code=code, pointer=self._pointer + pointer, detail=f"job {self._job.id!r}: {detail}")


def _places(gpus: Sequence[NodeGpus]) -> frozenset[Gpu]:
    return frozenset((part.node, gpu) for part in gpus for gpu in part.gpus)


def _intensity(snapshot: Snapshot, plan: Plan) -> float:
    """U from the plan: GPUs that are no expansions over GPUs that jobs have or can have."""
    sizes = gpu_sizes(snapshot.cluster)
    kind_of = {node.id: node.gpu_type for node in snapshot.cluster.nodes}
    basic = math.fsum(
        sizes[kind_of[node]]
        for allocation in plan.allocations
        for node, _ in _places(allocation.gpus) - gpus_in(allocation.expansions)
    )
    usable = {
        (node.id, gpu)
        for node in snapshot.cluster.nodes
        if node.state is NodeState.UP
        for gpu in set(range(node.num_gpus)) - set(node.gpus_in_use)
    }
    usable |= {gpu for allocation in plan.allocations for gpu in _places(allocation.gpus)}
    total = math.fsum(sizes[kind_of[node]] for node, _ in usable)
    return min(1.0, basic / total) if total > 0 else 1.0


def _waiting_violations(
    snapshot: Snapshot, plan: Plan, refused: Sequence[Refused], inelastic: Set[str]
) -> Iterator[Issue]:
    """A basic demand that fits beside the others is not left waiting for the sake of scale-outs.

    A plan fits when for every size of its tensor groups the blocks of that size hold all groups that are not smaller.
    This is exact when each size divides the next; nothing is said about other plans. `inelastic`: jobs that cannot
    give their expansions back.
    """
    held = {
        gpu
        for allocation in plan.allocations
        for gpu in _places(allocation.gpus)
        - (frozenset() if allocation.job_id in inelastic else gpus_in(allocation.expansions))
    }
    room: dict[str, list[int]] = {kind.name: [] for kind in snapshot.cluster.gpu_types}
    for node in snapshot.cluster.nodes:
        if node.state is NodeState.UP:
            usable = set(range(node.num_gpus)) - set(node.gpus_in_use)
            room[node.gpu_type].append(sum((node.id, gpu) not in held for gpu in usable))
    for entry in refused:
        for start in entry.plans:
            needed = Counter[int]()
            for stage in start.plan.stages:
                needed[stage.tp] += stage.num_gpus
            sizes = sorted(needed)
            is_chain = all(large % small == 0 for small, large in pairwise(sizes))
            if is_chain and all(
                sum(count for other, count in needed.items() if other >= size)
                <= sum(free // size * size for free in room[start.gpu_type])
                for size in sizes
            ):
                yield Issue(
                    code="left_waiting",
                    pointer="/unplaced",
                    detail=f"job {entry.job.id!r} waits, although its basic demand of {start.plan.num_gpus} GPUs of "
                    f"type {start.gpu_type!r} fits where nothing or a scale-out is",
                )
