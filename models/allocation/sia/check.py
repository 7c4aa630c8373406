"""Does a plan keep the rules of the Sia allocation, and is its objective what it claims? Knows no solver.

The objective is computed again from the plan, the goodput matrix and the snapshot, job by job, by the formulas of
section 3.4, and shares no code with `utility`. Whether the GPUs are legal is `models.placement.check`'s part.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.allocation.block_check import kept_shape, node_sizes
from models.allocation.plan_check import coverage_violations, is_right_score, score_violations
from models.allocation.sia.completion_check import CompletionAudit
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.configurations import ConfigurationSet
from models.performance.goodput.matrix import GoodputMatrix
from models.placement.check import given_to, machines_of
from models.plan import JobAllocation, Plan
from models.roll import is_preemptible, roll_of, row_of
from models.wording import counted
from models.workload import Adaptivity, Job, Snapshot
from stowplan.arrays import FloatMatrix, FloatVector, IntVector, Mask
from stowplan.errors import Issue
from stowplan.living import OfUnchanged, found_once
from topology.cluster import Cluster, NodeState

_RESTART_FLOOR = 0.01
_NO_LIMIT = 2**62
# Of so many goodputs the slowest are found for all jobs at once.
_FEW = 2_000

_job_of, _value_of = attrgetter("job_id"), attrgetter("value")

_Shape = tuple[str, int, int]
"""GPU type, nodes and GPUs."""


def allocation_violations(
    snapshot: Snapshot,
    parameters: SiaParameters,
    configurations: ConfigurationSet,
    matrix: GoodputMatrix,
    plan: Plan,
    objective: float,
) -> list[Issue]:
    """Every rule of the allocation that the plan breaks, and every number of its score that is wrong."""
    audit = _Audit(snapshot, parameters, configurations, matrix)
    if audit.finds_nothing(plan, objective):
        return []
    allocations = {allocation.job_id: (k, allocation) for k, allocation in enumerate(plan.allocations)}
    issues = [*coverage_violations(snapshot, plan), *_capacity_violations(snapshot.cluster, plan)]
    expected: dict[str | None, float] = {}
    given = {i: allocations[job.id] for i, job in enumerate(snapshot.jobs) if job.id in allocations}
    there = audit.there([(i, allocation) for i, (_, allocation) in given.items()])
    for i, job in enumerate(snapshot.jobs):
        if i not in given:
            expected[job.id] = audit.left_out(job)
        else:
            k, allocation = given[i]
            if there[i].goodput <= 0 or parameters.double_at_most:
                issues += audit.allocation_faults(f"/allocations/{k}", i, allocation, there[i])
            expected[job.id] = audit.utility(i, allocation, there[i])
    keys = [term.job_id for term in plan.score]
    return [*issues, *score_violations(plan.score, keys, expected, objective, wanted="job")]


@found_once
def _shapes_of(configurations: ConfigurationSet) -> tuple[NDArray[Any], Mapping[_Shape, int], Mapping[str, int]]:
    """The type (C,) of each configuration, configurations by shape, and the GPUs of a whole node of each type."""
    kinds = [configurations.gpu_types[t] for t in configurations.type_index.tolist()]
    counts = configurations.num_nodes.tolist(), configurations.num_gpus.tolist()
    index = {shape: c for c, shape in enumerate(zip(kinds, *counts, strict=True))}
    return np.array(kinds), index, node_sizes(index)


_slowest: OfUnchanged[ConfigurationSet, FloatVector] = OfUnchanged()


class _There(NamedTuple):
    """A job in the configuration `c` of its allocation, -1 for none: its goodput there, 0 for none, and whether the row
    is normalised over it."""

    c: int
    goodput: float
    is_own: bool


class _Audit:
    """Evaluates one job at a time, by its row; or all of them, to say that there is nothing to say. What depends on a
    job and its allocation alone is then that of the round before, where both are the very same."""

    def __init__(
        self,
        snapshot: Snapshot,
        parameters: SiaParameters,
        configurations: ConfigurationSet,
        matrix: GoodputMatrix,
    ) -> None:
        self._snapshot, self._configurations = snapshot, configurations
        self._jobs, self._roll = snapshot.jobs, roll_of(snapshot)
        self._goodput = matrix.goodput
        self._parameters = parameters
        self._costs = parameters.objective is SiaObjective.GIVEN_COSTS
        self._cluster = snapshot.cluster
        machines = machines_of(snapshot.cluster)
        self._nodes, self._down = machines.nodes, machines.down
        self._num_gpus = configurations.num_gpus
        self._types, self._index, self._node_size = _shapes_of(configurations)
        self._priced = parameters.restart_price, tuple(self._node_size.items())
        # Configurations (J, C) over which rows are normalised, where there is a goodput.
        self._bounds = self._roll.each("own", np.bool_, self._bounded, same=(configurations,))
        # Goodput (J,) of one of the slowest GPUs of each row; inf of a job that cannot run anywhere.
        self._slowest = self._slowest_of_each()
        self._completion: CompletionAudit | None = None
        if parameters.objective is SiaObjective.COMPLETION_TIME:
            rows = [self._speeds(i) for i in range(len(snapshot.jobs))]
            kept = [self._index.get(shape, -1) if (shape := self._kept(job)) else -1 for job in snapshot.jobs]
            runs = [self._runs(job) for job in snapshot.jobs]
            self._completion = CompletionAudit(snapshot.jobs, rows, kept, runs, parameters)
        is_minimised = parameters.objective is SiaObjective.GOODPUT and parameters.fairness_power < 0
        self.sign = 1 if self._costs or is_minimised else -1

    def finds_nothing(self, plan: Plan, objective: float) -> bool:
        """Whether everything is certainly right: there is more to ask where sizes are bounded by those before, or
        goodputs are not known."""
        parameters, roll, cluster, jobs = self._parameters, self._roll, self._cluster, self._jobs
        given = given_to(self._snapshot, plan.allocations)
        if given is None or self._completion is not None or parameters.double_at_most or not self._index:
            return False
        is_given = given.astype(np.bool_)
        rows, left_out = is_given.nonzero()[0], (~is_given).nonzero()[0].tolist()
        unplaced = {job.job_id for job in plan.unplaced}
        if len(unplaced) < len(plan.unplaced) or unplaced != {jobs[i].id for i in left_out}:
            return False

        def audited(rows: list[int]) -> FloatMatrix:
            """Type, GPUs and configuration of allocations, -1 for each where there is none; weights of jobs, and
            factors of Eq. 3."""
            types = {kind.name: t for t, kind in enumerate(cluster.gpu_types)}
            found = [
                (
                    types.get(item.gpu_type, -1),
                    item.num_gpus,
                    self._index.get(_shape(item), -1),
                    jobs[i].weight,
                    1.0 if self._costs else self._restart_factor(jobs[i], item),
                )
                if item
                else (-1, -1, -1, jobs[i].weight, 1.0)
                for i, item in zip(rows, given[rows].tolist(), strict=True)
            ]
            return np.array(found, dtype=np.float64).reshape(-1, 5)

        of_each = roll.each(
            "audited",
            np.float64,
            audited,
            same=(cluster, self._configurations),
            equal=(self._costs, self._priced),
            beside=(given,),
        )[rows].T
        kind, num_gpus, c = of_each[:3].astype(np.int64)
        weight, factor = of_each[3:]
        goodput = self._goodput[rows, c]
        if not ((c >= 0) & (goodput > 0)).all():
            return False
        capacity = _capacities(cluster)
        if (np.bincount(kind, num_gpus, capacity.size) > capacity).any():
            return False
        expected = np.zeros(len(jobs))
        expected[left_out] = [self.left_out(jobs[i]) for i in left_out]
        value = goodput
        if not self._costs:
            own = self._bounds[rows, c] | (c == self._pinned_columns[rows])
            relative = np.where(own, goodput / self._slowest[rows], 0.0) * factor
            value = relative**parameters.fairness_power
        expected[rows] = weight * value
        # Read one by one, which takes no longer than to tell them from those of the round before.
        if list(map(_job_of, plan.score)) != list(row_of(self._snapshot)):
            return False
        said = np.fromiter(map(_value_of, plan.score), np.float64, len(jobs))
        return is_right_score(said, expected, objective)

    def there(self, allocated: Sequence[tuple[int, JobAllocation]]) -> dict[int, _There]:
        """Jobs in the configurations of their allocations. All at once: single elements of arrays take longer."""
        rows = [i for i, _ in allocated]
        found = [self._index.get(_shape(allocation), -1) for _, allocation in allocated]
        if not self._index:
            return dict.fromkeys(rows, _There(-1, 0.0, False))
        columns = np.maximum(np.array(found, dtype=np.int64), 0)
        goodput, is_bounded = self._goodput[rows, columns].tolist(), self._bounds[rows, columns].tolist()
        return {
            i: _There(c, reached if c >= 0 else 0.0, (own and reached > 0) or c == self._pinned_to(i))
            for i, c, reached, own in zip(rows, found, goodput, is_bounded, strict=True)
        }

    def utility(self, i: int, allocation: JobAllocation, there: _There) -> float:
        """What the allocation adds to the objective; 0 where the shape or its goodput is unknown (pinned jobs)."""
        job, slowest = self._jobs[i], float(self._slowest[i])
        if there.goodput <= 0:
            return 0.0
        if self._costs:
            return job.weight * there.goodput
        if self._completion is not None:
            return self._completion.utility(job, there.c)
        if math.isinf(slowest):
            return math.nan
        value = (there.goodput / slowest if there.is_own else 0.0) * self._restart_factor(job, allocation)
        return job.weight * math.pow(value, self._parameters.fairness_power)

    def left_out(self, job: Job) -> float:
        """What a job adds that gets nothing: one that runs pays for its restart where suspensions have a price."""
        if self._completion is not None:
            return -self._completion.left_out(job)
        value = self.sign * self._parameters.queue_penalty * job.weight
        if self._costs or not self._parameters.price_suspension or not self._runs(job):
            return value
        return value / math.pow(self._change_factor(job), abs(self._parameters.fairness_power))

    def allocation_faults(self, pointer: str, i: int, allocation: JobAllocation, there: _There) -> Iterator[Issue]:
        """An allocation must be a configuration that the job can run on, no larger than the doubling rule allows."""
        job = self._jobs[i]
        if self._is_pinned(job):
            return
        if there.goodput <= 0:
            yield Issue(
                code="not_runnable",
                pointer=pointer,
                detail=f"job {job.id!r} cannot run on {counted(allocation.num_gpus, 'GPU')} of type "
                f"{allocation.gpu_type!r} over {counted(len(allocation.gpus), 'node')}",
            )
            return
        if not self._parameters.double_at_most or job.reservation is not None:
            return
        smallest = self._num_gpus[self._own(i) & (self._types == allocation.gpu_type)].min(initial=_NO_LIMIT)
        running = sum(len(part.gpus) for part in job.current or ()) if self._runs(job) else 0
        if allocation.num_gpus > max(int(smallest), 2 * running):
            yield Issue(
                code="more_than_doubled",
                pointer=pointer,
                detail=f"job {job.id!r} grows from {running} to {allocation.num_gpus} GPUs; at most twice",
            )

    def _own(self, i: int) -> Mask:
        """Configurations (C,) over which the row of a job is normalised."""
        return np.asarray(self._bounds[i] & (self._goodput[i] > 0))

    def _bounded(self, rows: list[int]) -> Mask:
        """Configurations (n, C) within the bounds of the jobs `rows`."""
        jobs = [self._jobs[i] for i in rows]
        least = np.array([job.min_gpus for job in jobs], dtype=np.int64)
        uppers = (job.min_gpus if job.adaptivity is Adaptivity.RIGID else job.max_gpus for job in jobs)
        most = np.array([_NO_LIMIT if upper is None else upper for upper in uppers], dtype=np.int64)
        own = (self._num_gpus >= least[:, None]) & (self._num_gpus <= most[:, None])
        for i, job in enumerate(jobs):
            if job.gpu_types is not None:
                own[i] &= np.isin(self._types, job.gpu_types)
        return np.asarray(own)

    @cached_property
    def _pinned_columns(self) -> IntVector:
        """`_pinned_to` (J,)."""
        columns = np.full(len(self._jobs), -1, dtype=np.int64)
        for i in (~is_preemptible(self._snapshot)).nonzero()[0].tolist():
            columns[i] = self._pinned_to(i)
        return columns

    def _pinned_to(self, i: int) -> int:
        """The configuration that a pinned job keeps, whatever its bounds; -1 for none."""
        job = self._jobs[i]
        if job.preemptible:
            return -1
        kept = self._index.get(self._held(job), -1) if self._is_pinned(job) else -1
        return kept if kept >= 0 and self._goodput[i, kept] > 0 else -1

    def _slowest_of_each(self) -> FloatVector:
        """`_slowest` (J,): of few goodputs, as long as these are the very same within the same bounds."""
        kept = self._pinned_columns
        if self._goodput.size > _FEW:
            beside = (self._goodput, kept)
            same = (self._configurations,)
            return self._roll.each("slowest", np.float64, self._slowest_per_gpu, same=same, beside=beside)
        bounds = self._bounds.tobytes(), kept.tobytes()
        known = _slowest.get(self._configurations, (self._goodput,), bounds)
        if known is None:
            known = self._slowest_per_gpu(slice(None))
            _slowest.put(self._configurations, (self._goodput,), bounds, known)
        return known

    def _slowest_per_gpu(self, rows: list[int] | slice) -> FloatVector:
        """`_slowest` (n,) of the jobs `rows`."""
        reached, kept = self._goodput[rows], self._pinned_columns[rows]
        own = self._bounds[rows] & (reached > 0)
        pinned = (kept >= 0).nonzero()[0]
        own[pinned, kept[pinned]] = True
        goodput = np.where(own, reached, np.inf).min(axis=1, initial=np.inf)
        num_gpus = np.where(own, self._num_gpus, _NO_LIMIT).min(axis=1, initial=_NO_LIMIT)
        return np.asarray(goodput / num_gpus)

    def _speeds(self, i: int) -> tuple[FloatVector, float] | None:
        """Goodputs (C,) over that of one of its slowest GPUs, and that goodput; None where it cannot run anywhere."""
        slowest = float(self._slowest[i])
        if math.isinf(slowest):
            return None
        own, kept = self._own(i), self._pinned_to(i)
        if kept >= 0:
            own[kept] = True
        return np.where(own, self._goodput[i] / slowest, 0.0), slowest

    def _restart_factor(self, job: Job, allocation: JobAllocation) -> float:
        """Eq. 3, unless the job waits or stays in a shape that it may keep."""
        if not self._runs(job) or self._may_stay(job, allocation):
            return 1.0
        return self._change_factor(job)

    def _change_factor(self, job: Job) -> float:
        age_s, cost_s = job.age_s, self._parameters.restart_price * job.restart_cost_s
        if age_s + cost_s == 0:
            return 1.0
        return max(_RESTART_FLOOR, (age_s - job.num_restarts * cost_s) / (age_s + cost_s))

    def _may_stay(self, job: Job, allocation: JobAllocation) -> bool:
        return self._is_pinned(job) or _shape(allocation) == self._kept(job)

    def _kept(self, job: Job) -> _Shape | None:
        """The shape in which a job that runs may stay."""
        if not self._runs(job):
            return None
        return self._held(job) if self._is_pinned(job) else kept_shape(job, self._nodes, self._node_size)

    def _held(self, job: Job) -> _Shape:
        """What a job runs on."""
        parts = job.current or ()
        return self._nodes[parts[0].node].gpu_type, len(parts), sum(len(part.gpus) for part in parts)

    def _runs(self, job: Job) -> bool:
        if not job.current:
            return False
        return not self._down or self._down.isdisjoint(part.node for part in job.current)

    def _is_pinned(self, job: Job) -> bool:
        return not job.preemptible and self._runs(job)


def _shape(allocation: JobAllocation) -> _Shape:
    return allocation.gpu_type, len(allocation.gpus), allocation.num_gpus


@found_once
def _capacity(cluster: Cluster) -> Mapping[str, int]:
    """GPUs of each type on nodes that are not down, beside outside work: what is given away at most."""
    counts = {kind.name: 0 for kind in cluster.gpu_types}
    for node in cluster.nodes:
        if node.state is not NodeState.DOWN:
            counts[node.gpu_type] += node.num_gpus - len(node.gpus_in_use)
    return counts


@found_once
def _capacities(cluster: Cluster) -> FloatVector:
    """`_capacity` (T,), in the order of the types."""
    return np.array(list(_capacity(cluster).values()), dtype=np.float64)


def _capacity_violations(cluster: Cluster, plan: Plan) -> Iterator[Issue]:
    """More GPUs of a type than there are."""
    given: Counter[str] = Counter()
    for allocation in plan.allocations:
        given[allocation.gpu_type] += allocation.num_gpus
    for name, most in _capacity(cluster).items():
        if given[name] > most:
            yield Issue(
                code="over_capacity",
                pointer="/allocations",
                detail=f"{given[name]} GPUs of type {name!r} are given away; there are {most}",
            )
