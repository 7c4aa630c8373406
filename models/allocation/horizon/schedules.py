"""Schedules: what a job may have from now until it ends. Pure NumPy.

A schedule is a configuration now (or none), and at the begin of a later interval another one (or none), in which the
job goes on to its end. See `models.allocation.horizon.formulation` for the mathematics.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from models.allocation.horizon.intervals import Intervals
from models.allocation.horizon.quotas import Quotas
from stowplan.arrays import FloatMatrix, FloatVector, IntMatrix, IntVector, Mask

NOTHING = -1
# Pairs, and schedules, that are looked at together.
_PAIRS, _SCHEDULES = 1024, 32_768


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Work:
    """What is left of J jobs on C configurations.

    seconds: float64 (J, C), what is left where it runs without a change, infinity where it cannot. start_s, change_s:
    float64 (J,), what the first GPUs of a schedule cost, unless the job stays as it is, and what others later do.
    current: int64 (J,), where a job may stay, -1 for nowhere.
    """

    seconds: FloatMatrix
    start_s: FloatVector
    change_s: FloatVector
    current: IntVector

    def seconds_on(self, jobs: IntVector, configurations: IntVector) -> FloatVector:
        """(n,) what is left of jobs in configurations, infinity in none of them, which is -1."""
        found = np.full(jobs.size, np.inf)
        some = configurations != NOTHING
        found[some] = self.seconds[jobs[some], configurations[some]]
        return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedules:
    """S schedules, sorted by job.

    job, pair, now, later, at: int64 (S,); pair: position among the pairs that may be chosen now, -1 for none; now,
    later: configurations, -1 for none; at: interval at whose begin `later` begins, 0 where nothing changes.
    ends_s: (S,) when the job ends.
    held: CSR (S, (C + U) (K - 1)), for what part of each later interval a configuration is had, and GPUs of each of U
    quotas; column c (K - 1) + k - 1.
    takes: CSR ((C + U) (K - 1), (T + R + U) (K - 1)), what that is of GPUs of each type, of rooms and of quotas; row
    t (K - 1) + k - 1 of `use`.
    """

    job: IntVector
    pair: IntVector
    now: IntVector
    later: IntVector
    at: IntVector
    ends_s: FloatVector
    held: "sparse.csr_array"
    takes: "sparse.csr_array"

    def __len__(self) -> int:
        return int(self.job.size)

    @property
    def use(self) -> "sparse.csc_array":
        """CSC ((T + R + U) (K - 1), S), GPUs of each type, and what is taken of rooms and quotas, on average over each
        later interval: of very many schedules far more than `held`."""
        return sparse.csc_array((self.held @ self.takes).T)

    def of(self, kept: Mask) -> "Schedules":
        """The schedules `kept` (S,) alone, with the pairs that they begin with numbered anew, in the same order."""
        pairs = np.unique(self.pair[kept])
        number = np.searchsorted(pairs[pairs >= 0], self.pair[kept])
        columns = {name: getattr(self, name)[kept] for name in ("job", "now", "later", "at", "ends_s")}
        pair = np.where(self.pair[kept] >= 0, number, -1)
        return replace(self, **columns, pair=pair, held=sparse.csr_array(self.held[kept]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shapes:
    """GPU type (of T) and GPUs of C configurations, int64 (C,).

    rank: int64 (C,), placement classes, see `classes`; of as many GPUs the laxer ones come first; -1 where jobs stay on
    their nodes. None: there is one class.
    rooms: int64 (Q, C), what each takes of Q rows of units, see `rooms`.
    """

    type_index: IntVector
    num_gpus: IntVector
    num_types: int
    rank: IntVector | None = None
    rooms: IntMatrix | None = None

    def classes(self) -> Iterator[tuple[IntVector, Mask]]:
        """Configurations of a type that are of a class or of laxer ones, and which are of the class itself: of each
        class of each type, without configurations in which jobs stay on their nodes."""
        rank = np.zeros_like(self.type_index) if self.rank is None else self.rank
        for t in range(self.num_types):
            of_type = (self.type_index == t) & (rank >= 0)
            for one in np.unique(rank[of_type]).tolist():
                found = np.flatnonzero(of_type & (rank <= one))
                yield found, rank[found] == one


def worth_having(shapes: Shapes, seconds: FloatMatrix, kept: IntVector) -> Mask:
    """Configurations (J, C) that no other one beats: with at most as many GPUs of the type, in the same class or a
    laxer one, a job ends no sooner; `kept` (J,) stay in any case, -1 for none."""
    able = np.isfinite(seconds)
    found = np.zeros_like(able)
    for of_type, is_of_class in shapes.classes():
        # Configurations of a type ascend in GPUs.
        best = np.minimum.accumulate(seconds[:, of_type], axis=1)
        better = able[:, of_type]
        better[:, 1:] &= seconds[:, of_type[1:]] < best[:, :-1]
        found[:, of_type[is_of_class]] = better[:, is_of_class]
    some = np.flatnonzero(kept >= 0)
    found[some, kept[some]] = able[some, kept[some]]
    return found


def efficient(shapes: Shapes, seconds: FloatMatrix) -> Mask:
    """Configurations (J, C) at the corners of the concave hull of speed over GPUs of a type, 0 among them, of those of
    each class and of laxer ones: shares of time in these reach all that shares in others do."""
    speed = np.divide(1.0, seconds, out=np.zeros_like(seconds), where=np.isfinite(seconds))
    found = np.zeros(seconds.shape, dtype=np.bool_)
    for of_type, _ in shapes.classes():
        gpus, left = shapes.num_gpus[of_type].astype(np.float64), speed[:, of_type]
        at_gpus, at_speed = np.zeros(len(seconds)), np.zeros(len(seconds))
        for _ in range(of_type.size):
            # The steepest way from the last corner to a larger configuration, to the furthest of equals.
            rise = left - at_speed[:, None]
            run = gpus[None, :] - at_gpus[:, None]
            slope = np.where((run > 0) & (rise > 0), rise / np.where(run > 0, run, 1.0), 0.0)
            steepest = slope.max(axis=1, initial=0.0)
            if not (steepest > 0).any():
                break
            equal = slope >= steepest[:, None] * (1.0 - 1e-12)
            corner = of_type.size - 1 - equal[:, ::-1].argmax(axis=1)
            rows = np.flatnonzero(steepest > 0)
            found[rows, of_type[corner[rows]]] = True
            at_gpus[rows], at_speed[rows] = gpus[corner[rows]], left[rows, corner[rows]]
    return found


def schedules_of(
    intervals: Intervals,
    shapes: Shapes,
    work: Work,
    pair_jobs: IntVector,
    pair_configurations: IntVector,
    later: Mask,
    may_wait: IntVector,
    quotas: Quotas | None = None,
) -> Schedules:
    """All schedules.

    Parameters
    ----------
    pair_jobs, pair_configurations
        (P,) pairs that may be chosen now, sorted by job.
    later
        (J, C) what a job may have later.
    may_wait
        (n,) jobs that need nothing now.
    quotas
        What jobs of queues may have together, where that is limited.
    """
    kinds = [
        _kept(work, pair_jobs, pair_configurations),
        _waiting(intervals, work, later, may_wait),
        _without(intervals, work, later, may_wait),
    ]
    if intervals.num > 1:
        kinds.append(_stopped(intervals, work, pair_jobs, pair_configurations, later))
        kinds += [
            _changed(intervals, shapes, work, pair_jobs, pair_configurations, later, pairs)
            for pairs in _blocks(pair_jobs.size, _PAIRS)
        ]
    job, pair, now, then, at = (np.concatenate([kind[n] for kind in kinds]) for n in range(5))
    ends_s = np.concatenate([kind[5] for kind in kinds])
    # One number to sort by: four keys take five times as long.
    num_configurations = work.seconds.shape[1] + 1
    key = ((job * num_configurations + now + 1) * num_configurations + then + 1) * (intervals.num + 1) + at
    order = np.argsort(key)
    job, pair, now, then, at = job[order], pair[order], now[order], then[order], at[order]
    ends_s = ends_s[order]
    held, takes = _held(intervals, shapes.type_index.size, now, then, at, ends_s), _takes(intervals, shapes)
    if quotas is not None:
        charged = quotas.later(job, held, shapes.num_gpus, intervals.num - 1)
        held = sparse.csr_array(sparse.hstack([held, charged], format="csr"))
        takes = sparse.csr_array(sparse.block_diag([takes, sparse.eye_array(charged.shape[1])], format="csr"))
    return Schedules(
        job=job,
        pair=pair,
        now=now,
        later=then,
        at=at,
        ends_s=ends_s,
        held=held,
        takes=takes,
    )


_Kind = tuple[IntVector, IntVector, IntVector, IntVector, IntVector, FloatVector]
"""Job, pair, now, later, at and end of every schedule of a kind."""


def _first_s(work: Work, jobs: IntVector, configurations: IntVector) -> FloatVector:
    """What the first GPUs cost each pair."""
    return np.where(work.current[jobs] == configurations, 0.0, work.start_s[jobs])


def _kept(work: Work, jobs: IntVector, configurations: IntVector) -> _Kind:
    """In one configuration from now to the end."""
    ends_s = _first_s(work, jobs, configurations) + work.seconds[jobs, configurations]
    nothing: IntVector = np.full(jobs.size, NOTHING)
    return jobs, np.arange(jobs.size), configurations, nothing, np.zeros(jobs.size, dtype=np.int64), ends_s


def _waiting(intervals: Intervals, work: Work, later: Mask, may_wait: IntVector) -> _Kind:
    """Nothing now, a configuration from a later interval on."""
    rows, configurations = np.nonzero(later[may_wait])
    num_later = intervals.num - 1
    jobs = np.repeat(may_wait[rows], num_later)
    configurations = np.repeat(configurations, num_later)
    at = np.tile(np.arange(1, intervals.num), rows.size)
    ends_s = intervals.bounds_s[at] + work.start_s[jobs] + work.seconds[jobs, configurations]
    nothing: IntVector = np.full(jobs.size, NOTHING)
    return jobs, nothing, nothing, configurations, at, ends_s


def _without(intervals: Intervals, work: Work, later: Mask, may_wait: IntVector) -> _Kind:
    """Nothing before the horizon, then as fast as it goes."""
    ends_s = intervals.end_s + work.start_s[may_wait] + fastest_s(work, later)[may_wait]
    nothing: IntVector = np.full(may_wait.size, NOTHING)
    return may_wait, nothing, nothing, nothing, np.zeros(may_wait.size, dtype=np.int64), ends_s


def _changed(
    intervals: Intervals,
    shapes: Shapes,
    work: Work,
    jobs: IntVector,
    configurations: IntVector,
    later: Mask,
    pairs: slice,
) -> _Kind:
    """A configuration now, that of one of the `pairs`, another one from a later interval on."""
    pair, then = np.nonzero(later[jobs[pairs]])
    pair += pairs.start
    num_later = intervals.num - 1
    pair, then = np.repeat(pair, num_later), np.repeat(then, num_later)
    at = np.tile(np.arange(1, intervals.num), pair.size // max(1, num_later))
    job, now = jobs[pair], configurations[pair]
    whole_s = work.seconds[job, now]
    begin_s = _first_s(work, job, now)
    change_at_s = intervals.bounds_s[at]
    left = 1.0 - np.maximum(change_at_s - begin_s, 0.0) / whole_s
    ends_s = change_at_s + _again_s(work, job, begin_s, change_at_s) + left * work.seconds[job, then]
    # Who pays for a change to as many GPUs of the type or more wants to end sooner.
    pays = (ends_s < begin_s + whole_s) | (shapes.type_index[then] != shapes.type_index[now])
    pays |= shapes.num_gpus[then] < shapes.num_gpus[now]
    kept = (left > 0) & (then != now) & pays
    return job[kept], pair[kept], now[kept], then[kept], at[kept], ends_s[kept]


def _stopped(intervals: Intervals, work: Work, jobs: IntVector, configurations: IntVector, later: Mask) -> _Kind:
    """A configuration in the first interval, then nothing before the horizon: there is always room for that later."""
    whole_s, begin_s = work.seconds[jobs, configurations], _first_s(work, jobs, configurations)
    stops_s = intervals.bounds_s[1]
    left = 1.0 - np.maximum(stops_s - begin_s, 0.0) / whole_s
    again_s = _again_s(work, jobs, begin_s, np.full(jobs.size, stops_s))
    ends_s = intervals.end_s + again_s + left * fastest_s(work, later)[jobs]
    kept = left > 0
    pair = np.flatnonzero(kept)
    nothing: IntVector = np.full(pair.size, NOTHING)
    return jobs[kept], pair, configurations[kept], nothing, np.ones(pair.size, dtype=np.int64), ends_s[kept]


def _again_s(work: Work, jobs: IntVector, begin_s: FloatVector, change_s: FloatVector) -> FloatVector:
    """What a change costs jobs that would begin to work at `begin_s`: who has not when it comes saves no start."""
    cost_s = work.change_s[jobs]
    return np.where(change_s <= begin_s, np.maximum(cost_s, work.start_s[jobs]), cost_s)


def fastest_s(work: Work, later: Mask) -> FloatVector:
    """(J,) seconds that are left where a job ends first, 0 where nothing is known to run."""
    least_s = np.where(later, work.seconds, np.inf).min(axis=1, initial=np.inf)
    return np.where(np.isfinite(least_s), least_s, 0.0)


def _held(
    intervals: Intervals, num_configurations: int, now: IntVector, later: IntVector, at: IntVector, ends_s: FloatVector
) -> "sparse.csr_array":
    """See `Schedules`; without quotas."""
    num_later, begins_s = intervals.num - 1, intervals.bounds_s[1:-1]
    parts: list[FloatVector] = []
    columns: list[IntVector] = []
    heads = np.zeros(now.size + 1, dtype=np.int32)
    for rows in _blocks(now.size, _SCHEDULES):
        # A change is at the begin of an interval, so that nobody has two configurations in one.
        before = at[rows, None] > np.arange(1, intervals.num)
        part = np.clip((ends_s[rows, None] - begins_s) / intervals.lengths_s[1:], 0.0, 1.0)
        part[before] = 1.0
        last = np.where(at[rows] > 0, later[rows], now[rows])
        configuration = np.where(before, now[rows, None], last[:, None])
        some = (part > 0) & (configuration != NOTHING)
        parts.append(part[some])
        columns.append((configuration * num_later + np.arange(num_later))[some].astype(np.int32))
        heads[rows.start + 1 : rows.stop + 1] = np.count_nonzero(some, axis=1)
    held = np.concatenate([np.zeros(0), *parts]), np.concatenate([np.zeros(0, dtype=np.int32), *columns])
    return sparse.csr_array((*held, np.cumsum(heads, dtype=np.int32)), shape=(now.size, num_configurations * num_later))


def _blocks(num: int, size: int) -> Iterator[slice]:
    """Parts of so many: new memory for all at once takes longer than what is done with it."""
    for first in range(0, num, size):
        yield slice(first, min(num, first + size))


def _takes(intervals: Intervals, shapes: Shapes) -> "sparse.csr_array":
    """See `Schedules`; without quotas."""
    of_type = (np.arange(shapes.num_types)[:, None] == shapes.type_index) * shapes.num_gpus
    rows = of_type if shapes.rooms is None else np.concatenate([of_type, shapes.rooms])
    each = sparse.eye_array(intervals.num - 1)
    return sparse.csr_array(sparse.kron(sparse.csr_array(rows.T.astype(np.float64)), each, format="csr"))
