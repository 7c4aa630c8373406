"""Does a plan keep the rules of `horizon`, and is its objective what it claims? Knows no solver.

Given are the plan, the schedules behind it (`outlook`) and the goodputs. When jobs end under their schedules, what
these take of later intervals, what a change costs and what the calendar leaves is computed again, schedule by schedule
and node by node; no code is shared with `schedules`, `openings`, `arrivals`, `changes`, `objective` and `instance`.
Whether the GPUs are legal is `models.placement.check`'s part.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from models.allocation.block_check import allows, held_shape, kept_shape, node_sizes
from models.allocation.horizon.arrivals_check import Arrivals
from models.allocation.horizon.changes_check import NOWHERE, Changes, together_s, work_left
from models.allocation.horizon.horizon_end_check import expected_end_s
from models.allocation.horizon.objective_check import Worth, fair_share
from models.allocation.horizon.openings_check import LaterGpus
from models.allocation.horizon.outlook import Outlook, Planned, Shape
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.horizon.quotas_check import QuotaAudit
from models.allocation.horizon.rooms_check import UnitAudit
from models.allocation.plan_check import (
    coverage_violations,
    pinned_jobs,
    running_jobs,
    score_violations,
)
from models.configurations import ConfigurationSet
from models.performance.goodput.matrix import GoodputMatrix
from models.plan import Plan
from models.workload import Job, Snapshot
from stowplan.arrays import FloatVector
from stowplan.errors import Issue

# Relative; shares and GPUs are sums that a solver has rounded.
_TOLERANCE = 1e-5


def horizon_violations(
    snapshot: Snapshot,
    parameters: HorizonParameters,
    configurations: ConfigurationSet,
    matrix: GoodputMatrix,
    plan: Plan,
    outlook: Outlook,
    objective: float,
    *,
    calendar: Snapshot | None = None,
) -> list[Issue]:
    """Every rule that the plan and its schedules break, and every number of its score that is wrong; `calendar`: the
    snapshot whose calendar counts, where that is another one of the same nodes."""
    audit = _Audit(snapshot, parameters, configurations, matrix, outlook, calendar or snapshot)
    placed = {item.job_id: item for item in plan.allocations}
    given = {item.job_id: (item.gpu_type, len(item.gpus), item.num_gpus) for item in plan.allocations}
    issues = [*coverage_violations(snapshot, plan)]
    expected: dict[tuple[str, str | None], float] = {}
    mean_s: dict[str, float] = {}
    for job in snapshot.jobs:
        planned, left = outlook.planned.get(job.id, ()), None
        if job.id in audit.pinned:
            ends_s = [(1.0, audit.pinned_end_s(job))]
        else:
            issues += audit.faults(job, planned, given.get(job.id))
            if outlook.tiers is not None and job.id in placed:
                stays = audit.stays_whole(job, planned)
                issues += audit.units.faults(job, planned, placed[job.id], stays)
            ends_s = [(item.share, audit.end_s(job, item)) for item in planned]
            if parameters.backlog_efficiency is not None:
                left = math.fsum(item.share * audit.left_behind(job, item) for item in planned)
            expected |= {(term, job.id): value for term, value in audit.lost(job, planned)}
            if audit.waits_too_long(job) and job.id not in given:
                expected["long_wait", job.id] = audit.more_than_all
        mean_s[job.id] = math.fsum(share * end_s for share, end_s in ends_s)
        expected |= {(term, job.id): value for term, value in audit.worth.terms(job, ends_s, left)}
    expected |= dict(audit.worth.tail(mean_s))
    issues += [*audit.wrong_bounds(), *audit.overfull(outlook), *audit.quotas.overdrawn(plan)]
    keys = [(term.term, term.job_id) for term in plan.score]
    return [*issues, *score_violations(plan.score, keys, expected, objective, wanted="job")]


class _Audit:
    """Evaluates one job at a time."""

    def __init__(
        self,
        snapshot: Snapshot,
        parameters: HorizonParameters,
        configurations: ConfigurationSet,
        matrix: GoodputMatrix,
        outlook: Outlook,
        calendar: Snapshot,
    ) -> None:
        self._parameters = parameters
        self._bounds_s = list(outlook.bounds_s)
        self._nodes = {node.id: node for node in snapshot.cluster.nodes}
        types = [configurations.gpu_types[t] for t in configurations.type_index.tolist()]
        self._index: dict[Shape, int] = {
            shape: c
            for c, shape in enumerate(
                zip(
                    types,
                    configurations.num_nodes.tolist(),
                    configurations.num_gpus.tolist(),
                    configurations.bandwidth_fraction.tolist(),
                    strict=True,
                )
            )
        }
        self._shares: dict[tuple[str, int, int], list[float]] = {}
        for shape in self._index:
            self._shares.setdefault(shape[:3], []).append(shape[3])
        self._node_size = node_sizes(self._shares)
        self.pinned = pinned_jobs(snapshot)
        runs = running_jobs(snapshot)
        self._there = LaterGpus(snapshot, calendar, parameters.epsilon, self.pinned)
        self._usable = self._there.most
        self.quotas = QuotaAudit(snapshot, calendar, parameters.quotas, self.pinned)
        self._classed = outlook.tiers is not None
        self._cluster = snapshot.cluster
        self._kept: dict[str, Shape | None] = {}
        self._present = frozenset(shape for shape in self._index if self._is_there(shape))
        speeds = {
            job.id: self._speeds(job, goodput) for job, goodput in zip(snapshot.jobs, matrix.goodput, strict=True)
        }
        left = work_left(snapshot.jobs, speeds, runs, self._has)
        self._seconds: Mapping[str, Mapping[Shape, float]] = {
            name: {shape: left[name] / speed for shape, speed in known.items()} for name, known in speeds.items()
        }
        self._changes = Changes(parameters.restart_price, runs, self._seconds, self._kept_shape, self._index)
        self._jobs = snapshot.jobs
        planned = [job for job in snapshot.jobs if job.id not in self.pinned]
        known = ((self._able(job), job.attained_gpu_s) for job in planned)
        part = sum(self._usable.values()) / max(1, sum(node.num_gpus for node in snapshot.cluster.nodes))
        self._arrivals = Arrivals(parameters.arrivals_per_h * part, known, self._usable)
        self._end_s = expected_end_s(
            parameters, ((self._changes.first_start_s(job), self._able(job)) for job in planned), self._there.num_now
        )
        share = fair_share(snapshot)
        whole_s = together_s({job.id: self._able(job) for job in snapshot.jobs}, self._usable)
        self.worth = Worth(
            snapshot,
            parameters,
            {job.id: self._fair_s(job, share) for job in snapshot.jobs},
            {job.id: whole_s[job.id] for job in planned},
            self._bounds_s[-1] if self._bounds_s else 0.0,
        )

    def pinned_end_s(self, job: Job) -> float:
        """When a job ends that stays where it is; 0 where that is not known."""
        return self._seconds[job.id].get(self._held(job) or NOWHERE, 0.0)

    def stays_whole(self, job: Job, planned: Sequence[Planned]) -> bool:
        """Whether a job of whole nodes is planned to stay on these."""
        sizes = self._node_size
        return any(
            self._stays(job, item) and item.now is not None and item.now[2] >= sizes[item.now[0]] for item in planned
        )

    def _held(self, job: Job) -> Shape | None:
        return self._with_share(job, held_shape(job, self._nodes))

    def _with_share(self, job: Job, shape: tuple[str, int, int] | None) -> Shape | None:
        """The configuration of a shape in which a job runs: of several that of its nodes."""
        shares = self._shares.get(shape, ()) if shape is not None else ()
        if shape is None or not shares:
            return None
        return (*shape, shares[0] if len(shares) == 1 else self.units.share_now(job))

    def _has(self, job: Job) -> Shape | None:
        return self._held(job) if job.id in self.pinned else self._kept_shape(job)

    def _stays(self, job: Job, planned: Planned) -> bool:
        """Whether a job that has something now goes on as it is."""
        return planned.now == self._kept_shape(job) and not planned.moves

    def _kept_shape(self, job: Job) -> Shape | None:
        """The configuration in which a job may stay."""
        if job.id not in self._kept:
            self._kept[job.id] = self._with_share(job, kept_shape(job, self._nodes, self._node_size))
        return self._kept[job.id]

    @cached_property
    def units(self) -> UnitAudit:
        """Of the nodes; asked for where configurations have classes."""
        return UnitAudit(self._cluster, self._there.whole, self._index)

    def end_s(self, job: Job, planned: Planned) -> float:
        """When a job ends under a schedule."""
        seconds = self._seconds[job.id]
        begins_s, left = 0.0, 1.0
        cost_s = self._changes.start_s(job, self._end_s)
        if planned.now is not None:
            begins_s = 0.0 if self._stays(job, planned) else cost_s
            whole_s = seconds.get(planned.now, math.nan)
            if planned.change_s is None:
                return begins_s + whole_s
            left -= max(0.0, planned.change_s - begins_s) / whole_s
            change_s = self._changes.change_s(job, self._end_s)
            # Who has not begun when the change comes saves no start.
            cost_s = (
                max(change_s, self._changes.start_s(job, self._end_s)) if planned.change_s <= begins_s else change_s
            )
        if planned.later is not None and planned.change_s is not None:
            return planned.change_s + cost_s + left * seconds.get(planned.later, math.nan)
        return self._bounds_s[-1] + cost_s + left * self._fastest_s(job)

    def left_behind(self, job: Job, planned: Planned) -> float:
        """Part of what is left of a job now that a schedule leaves when the last interval ends."""
        seconds, left = self._seconds[job.id], 1.0
        if planned.now is not None and planned.change_s is not None:
            begins_s = 0.0 if self._stays(job, planned) else self._changes.start_s(job, self._end_s)
            left -= max(0.0, planned.change_s - begins_s) / seconds.get(planned.now, math.nan)
        last = planned.now if planned.change_s is None else planned.later
        if last is None:
            return left
        return min(left, max(0.0, self.end_s(job, planned) - self._bounds_s[-1]) / seconds.get(last, math.nan))

    def faults(self, job: Job, planned: Sequence[Planned], given: tuple[str, int, int] | None) -> Iterator[Issue]:
        """Shares that do not add up, and schedules that are not those of the plan or that no job can have."""
        total = math.fsum(item.share for item in planned)
        if not math.isclose(total, 1.0, abs_tol=_TOLERANCE):
            yield _fault("shares", job, f"has shares of schedules that add up to {total}; they must be 1")
        for item in planned:
            if (None if item.now is None else item.now[:3]) != given:
                yield _fault("schedule_of_another_plan", job, f"is planned to have {item.now} now, and has {given}")
            for shape in (item.now, item.later):
                if shape is not None and shape not in self._seconds[job.id]:
                    yield _fault("not_runnable", job, f"cannot run on {shape[2]} GPUs of type {shape[0]!r}")
            begins = item.change_s is None or item.change_s in self._bounds_s[1:-1]
            if not begins or (item.change_s is None and item.later is not None):
                yield _fault("change_between", job, f"changes after {item.change_s} s, where no interval begins")
            elif item.now is not None and item.change_s is not None:
                alone_s = self.end_s(job, replace(item, later=None, change_s=None))
                if alone_s < item.change_s * (1.0 - _TOLERANCE):
                    detail = f"changes after {item.change_s:g} s, and ends at {alone_s:g} s without"
                    yield _fault("change_after_the_end", job, detail)

    def wrong_bounds(self) -> Iterator[Issue]:
        """Intervals that do not begin now, are not as long as asked, or do not follow one another."""
        bounds_s, it = self._bounds_s, self._parameters
        wrong = None
        if len(bounds_s) != it.num_intervals + 1:
            wrong = f"lie between {len(bounds_s)} times; there must be {it.num_intervals + 1}"
        elif bounds_s[0] != 0.0 or not all(first_s < last_s for first_s, last_s in pairwise(bounds_s)):
            wrong = f"lie between {bounds_s}; these times must ascend from 0"
        elif it.num_intervals > 1 and not math.isclose(bounds_s[1], it.interval_s, rel_tol=_TOLERANCE):
            wrong = f"begin with one until {bounds_s[1]:g} s; it must end at {it.interval_s:g} s"
        elif not math.isclose(bounds_s[-1], self._end_s, rel_tol=_TOLERANCE):
            wrong = f"end at {bounds_s[-1]:g} s; they must at {self._end_s:g} s"
        elif not _grow_alike(bounds_s):
            wrong = f"lie between {bounds_s}; each must be as many times longer than the one before"
        if wrong is not None:
            yield Issue(code="wrong_intervals", pointer="/score", detail=f"the intervals {wrong}")

    def overfull(self, outlook: Outlook) -> Iterator[Issue]:
        """Intervals of which schedules take more than there is."""
        jobs = {job.id: job for job in self._jobs}
        every = [
            (name, item, self.end_s(jobs[name], item)) for name, planned in outlook.planned.items() for item in planned
        ]
        for first_s, last_s in pairwise(self._bounds_s[1:]):
            taken: dict[str, float] = dict.fromkeys(self._usable, 0.0)
            items: dict[Shape, float] = {}
            of_jobs = dict.fromkeys(outlook.planned, 0.0)
            open_gpus = self._there.mean(first_s, last_s)
            for name, item, ends_s in every:
                changes_s = ends_s if item.change_s is None else item.change_s
                for shape, begin_s, end_s in ((item.now, 0.0, changes_s), (item.later, changes_s, ends_s)):
                    if shape is not None:
                        within_s = min(end_s, last_s) - max(begin_s, first_s)
                        part = item.share * max(0.0, within_s) / (last_s - first_s)
                        taken[shape[0]] += part * shape[2]
                        items[shape] = items.get(shape, 0.0) + part
                        of_jobs[name] += part * shape[2]
            yield from self._over_rooms(items, first_s, last_s)
            yield from self.quotas.overdrawn_later(of_jobs, f"from {first_s:g} to {last_s:g} s", _TOLERANCE)
            for gpu_type, gpus in taken.items():
                there = open_gpus[gpu_type]
                there -= self._arrivals.mean(gpu_type, first_s, last_s, there)
                if gpus > there + _TOLERANCE * max(1.0, there):
                    yield Issue(
                        code="over_capacity_later",
                        pointer="/allocations",
                        detail=f"schedules take {gpus:g} GPUs of type {gpu_type!r} from {first_s:g} to {last_s:g} s; "
                        f"there are {there:g}",
                    )

    def _over_rooms(self, items: Mapping[Shape, float], first_s: float, last_s: float) -> Iterator[Issue]:
        """Units of which configurations take more than there is on average over an interval."""
        for gpu_type, share, k, limit in self._limits:
            taken = math.fsum(
                num * (shape[1] // k)
                for shape, num in items.items()
                if shape[0] == gpu_type and shape[1] > 1 and shape[3] >= share
            )
            if taken > limit + _TOLERANCE * max(1.0, limit):
                yield Issue(
                    code="over_rooms_later",
                    pointer="/allocations",
                    detail=f"schedules take {taken:g} times {k} nodes of type {gpu_type!r} with {share:g} of the "
                    f"bandwidth between them from {first_s:g} to {last_s:g} s; there is room for {limit}",
                )

    @cached_property
    def _limits(self) -> Sequence[tuple[str, float, int, int]]:
        return [*self.units.limits()] if self._classed else []

    def waits_too_long(self, job: Job) -> bool:
        """Whether the job may wait no more."""
        longest_s = self._parameters.longest_wait_s
        return longest_s is not None and job.age_s >= longest_s

    def lost(self, job: Job, planned: Sequence[Planned]) -> Iterator[tuple[str, float]]:
        """What the job does not do of what it could in the first interval: all its schedules begin alike."""
        done = 0.0
        if planned and planned[0].now is not None:
            now = planned[0].now
            begins_s = 0.0 if self._stays(job, planned[0]) else self._changes.start_s(job, self._end_s)
            works_s = max(0.0, self._parameters.interval_s - begins_s)
            done = min(1.0, works_s / self._seconds[job.id].get(now, math.nan))
        return self.worth.lost(job, self._fastest_s(job), done)

    @cached_property
    def more_than_all(self) -> float:
        """What leaving out a job costs that may wait no more."""
        latest_s = {}
        for job in self._jobs:
            change_s = self._changes.change_s(job, self._end_s)
            slowest_s = max(self._seconds[job.id].values(), default=0.0)
            latest_s[job.id] = self._bounds_s[-1] + self._changes.start_s(job, self._end_s) + change_s + slowest_s
            if job.id in self.pinned:
                latest_s[job.id] = self.pinned_end_s(job)
        return 1.0 + self.worth.most(latest_s)

    def _fair_s(self, job: Job, share: float) -> float:
        """What is left on a share of the cluster; on more GPUs it is slower in proportion. 0 where nobody knows."""
        if job.id in self.pinned:
            return self.pinned_end_s(job)
        on_share = (time_s * max(1.0, shape[2] / share) for shape, time_s in self._able(job).items())
        return min(on_share, default=0.0)

    def _speeds(self, job: Job, goodput: FloatVector) -> Mapping[Shape, float]:
        """Goodput of every shape that the job may have."""
        held = self._held(job) if job.id in self.pinned else None
        return {
            shape: float(goodput[c])
            for shape, c in self._index.items()
            if goodput[c] > 0 and (allows(job, shape[0], shape[2]) or shape == held)
        }

    def _fastest_s(self, job: Job) -> float:
        """Where it ends first of what there is; 0 where it cannot run."""
        return min(self._able(job).values(), default=0.0)

    def _able(self, job: Job) -> Mapping[Shape, float]:
        """Seconds that are left, by shape, on as many GPUs as there are, also within a unit of a class, and as its
        queue may have."""
        return {
            shape: time_s
            for shape, time_s in self._seconds[job.id].items()
            if shape in self._present and self.quotas.allows(job, shape[2])
        }

    def _is_there(self, shape: Shape) -> bool:
        if shape[2] > self._usable[shape[0]]:
            return False
        lax = min(self._shares[shape[:3]])
        return shape[3] == lax or self.units.largest(shape[0], shape[3]) >= shape[1]


def _grow_alike(bounds_s: Sequence[float]) -> bool:
    """Whether each interval is longer than the one before by the same factor."""
    lengths_s = [last_s - first_s for first_s, last_s in pairwise(bounds_s)]
    factors = [last_s / first_s for first_s, last_s in pairwise(lengths_s)]
    return all(math.isclose(factor, factors[0], rel_tol=_TOLERANCE) for factor in factors)


def _fault(code: str, job: Job, detail: str) -> Issue:
    return Issue(code=code, pointer="/score", detail=f"job {job.id!r} {detail}")
