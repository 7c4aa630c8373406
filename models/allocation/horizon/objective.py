"""What is minimised: what each schedule costs, term by term, and the tail of completion times. Pure NumPy.

See `models.allocation.horizon.formulation` for the mathematics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.allocation.horizon.backlog import Backlog
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.horizon.schedules import Schedules, Work
from models.workload import Job
from stowplan.arrays import FloatVector, IntVector

# Relative: sums of times differ in their last digits.
_ROUNDING = 1.0 + 1e-9
COMPLETION, LATENESS, THROUGHPUT, TAIL = "completion_time", "lateness", "lost_throughput", "tail"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tail:
    """The conditional value at risk of jobs' times (Rockafellar and Uryasev, 2000): the mean of the longest.

    factor: what it counts in the objective. level: part of all weight that is not in the tail. weight (J,). counted
    (J,): what a second of a job is taken for. before_s (J,): what is counted of each beside its end under a schedule,
    in seconds as they are taken. longest_s (J,): no counted time is longer.
    """

    factor: float
    level: float
    weight: FloatVector
    counted: FloatVector
    before_s: FloatVector
    longest_s: FloatVector

    @property
    def num_columns(self) -> int:
        """z and one excess for each job."""
        return 1 + self.weight.size

    @property
    def units_s(self) -> FloatVector:
        """(1 + J,) of its columns, which are 1 at most: powers of two, so that numbers in them are as exact."""
        most_s = np.append(self._shortest_s(self.longest_s), self.longest_s)
        return np.exp2(np.ceil(np.log2(np.maximum(1.0, most_s * _ROUNDING))))

    @property
    def cost(self) -> FloatVector:
        """(1 + J,) of its columns."""
        each: FloatVector = np.append(1.0, self.weight / (1.0 - self.level))
        return self.factor * self.units_s * each

    def columns(self, ends_s: FloatVector) -> FloatVector:
        """(1 + J,) the least columns where jobs end at `ends_s` (J,), 0 for those without a schedule: the shortest time
        of the tail, and how much longer each takes, in `units_s`."""
        time_s, units_s = self.before_s + self.counted * ends_s, self.units_s
        # Where the tail begins just at a job, sums in another order may have it begin at the next one.
        least_s = min(self._shortest_s(time_s), float(units_s[0]))
        return np.append(least_s, np.maximum(time_s - least_s, 0.0)) / units_s

    def _shortest_s(self, time_s: FloatVector) -> float:
        """The shortest time of the tail, of the times (J,); the longer these are, the longer it is."""
        order = np.argsort(time_s, kind="stable")
        reached = np.cumsum(self.weight[order]) >= self.level * float(self.weight.sum())
        return float(time_s[order[int(reached.argmax())]]) if self.weight.any() else 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Objective:
    """times: (S,) of each schedule its part of the mean time of all, as seconds are taken. terms: (S,) what it costs,
    by name; fixed: (J,) the same of pinned jobs, 0 for others. most: what all terms and the tail add up to at most."""

    times: FloatVector
    terms: Mapping[str, FloatVector]
    fixed: Mapping[str, FloatVector]
    tail: Tail | None
    most: float


def objective_of(
    parameters: HorizonParameters,
    jobs: Sequence[Job],
    weight: FloatVector,
    found: Schedules,
    work: Work,
    pinned: IntVector,
    *,
    fair_s: FloatVector,
    fastest_s: FloatVector,
    latest_s: FloatVector,
    backlog: Backlog | None,
) -> Objective:
    """The terms that the parameters ask for.

    Parameters
    ----------
    weight
        (J,) of a second of each job, all together 1.
    pinned
        Jobs without schedules.
    fair_s, fastest_s
        (J,) how long a job takes on its fair share from its start, 0 where nobody knows, and from now where it is
        fastest.
    latest_s
        (J,) no schedule ends later; of pinned jobs when they end.
    backlog
        What it costs that jobs have not ended at the horizon; None where they go on as planned.
    """
    counted = counted_seconds(weight, fair_s, parameters)
    times = (weight * counted)[found.job] * found.ends_s
    mean = (1.0 - parameters.tail) * weight * counted
    most = float(mean @ latest_s)
    if backlog is not None:
        lost_s = backlog.lost_s(weight * counted)
        begun = (weight * counted)[found.job] * np.minimum(found.ends_s, backlog.begins_s)
        times = begun + lost_s[found.job] * backlog.left
        most += (1.0 - parameters.tail) * float(lost_s.sum())
    pinned_s = np.zeros(len(jobs))
    pinned_s[pinned] = latest_s[pinned]
    terms = {COMPLETION: (1.0 - parameters.tail) * times}
    fixed = {COMPLETION: mean * pinned_s}
    if parameters.lateness > 0:
        due_s = np.array([np.inf if job.deadline_s is None else job.deadline_s for job in jobs], dtype=np.float64)
        price = parameters.lateness * weight
        terms[LATENESS] = price[found.job] * np.maximum(found.ends_s - due_s[found.job], 0.0)
        fixed[LATENESS] = price * np.maximum(pinned_s - due_s, 0.0)
        most += float(price @ np.maximum(latest_s - due_s, 0.0))
    if parameters.throughput > 0:
        price = parameters.throughput * weight
        terms[THROUGHPUT] = price[found.job] * _lost_s(found, work, fastest_s, parameters.interval_s)
        most += parameters.interval_s * float(price.sum())
    tail = None
    if parameters.tail > 0:
        age_s = np.array([job.age_s for job in jobs], dtype=np.float64)
        longest_s = counted * (age_s + latest_s)
        tail = Tail(
            factor=parameters.tail,
            level=parameters.tail_level,
            weight=weight,
            counted=counted,
            before_s=counted * (age_s + pinned_s),
            longest_s=longest_s,
        )
        most += parameters.tail * float(longest_s.max(initial=0.0))
    return Objective(times=times, terms=terms, fixed=fixed, tail=tail, most=most)


def counted_seconds(weight: FloatVector, fair_s: FloatVector, parameters: HorizonParameters) -> FloatVector:
    """(J,) what a second of each job is taken for, 1 on average by `weight` (J,); 0 where nobody knows how long it
    takes at all."""
    known = fair_s > 0
    # What has nearly ended would count without end.
    long_s = np.maximum(np.where(known, fair_s, 1.0), parameters.interval_s)
    raw = np.where(known | (parameters.fairness == 0), long_s**-parameters.fairness, 0.0)
    mean = float(weight @ raw)
    return np.asarray(raw / mean) if mean > 0 else np.ones_like(raw)


def _lost_s(found: Schedules, work: Work, fastest_s: FloatVector, interval_s: float) -> FloatVector:
    """(S,) what the job could do in the first interval where it is fastest, and does not, in seconds there."""
    job, now = found.job, found.now
    could_s = np.minimum(fastest_s[job], interval_s)
    runs = now >= 0
    begin_s = np.where(work.current[job] == now, 0.0, work.start_s[job])
    share = np.clip((interval_s - begin_s) / work.seconds_on(job, now), 0.0, 1.0)
    return np.asarray(np.maximum(could_s - np.where(runs, share, 0.0) * fastest_s[job], 0.0))
