r"""Which share of its time a job is to have on which GPU type: Gavel's linear programs, declared in CVXPY.

Sets
  c          classes of jobs that are alike in all that follows; n_c jobs. By symmetry some optimum gives them equal
             shares, so that a class has one row of X; on n jobs of a few kinds the programs stay small
  t          GPU types on which the class can run and fits
Data
  g_c        GPUs of a job, its scale factor; w_c its weight; T_ct its throughput on g_c GPUs of the type
  W_t        GPUs of type t that are free for the plan; no job has those of pinned ones
  E_c        throughput of an equal share: sum_t T_ct W_t / sum_t W_t (sections 4.1 and 4.2; X^equal)
  r_c        work left, in samples
  a_ct       level that all time on the type would give: for max-min fairness g_c T_ct / (w_c E_c), for the makespan
             D T_ct / r_c, with D the longest of the jobs' shortest times, so that levels are about 1
Variables
  X_ct >= 0  share of its time that every job of class c spends on type t
  theta      least level

First:   max  theta
Second:  max  sum_ct n_c a_ct X_ct           over the X whose levels reach the first optimum theta*

  time[c]        sum_t X_ct            <= 1        more than one type
  capacity[t], blocks[t,2^k], whole_nodes[t]       sum_c n_c b_ct X_ct <= W_t with b_ct the GPUs of the block that
                                                   holds g_c, and what else makes rounds placeable on nodes
                                                   (`models.placement.placeability`), as time averages of rounds
  level[c]       theta - sum_t a_ct X_ct <= 0      second: -sum_t a_ct X_ct <= -theta*

Minimising the makespan max_c r_c / sum_t T_ct X_ct is maximising its inverse, which is the least level over D: a linear
program, where the released policy searches for the makespan by bisection.

Where the paper leaves room
- The least level says nothing of GPUs that the worst-off jobs cannot use. Instead of water filling (section 4.3, a
  sequence of integer programs), one more program gives the rest to whoever gains most by it.
- A job of which no throughput is known counts as equally fast everywhere: the heterogeneity-agnostic policy. Its work
  is `remaining_s`, a round at least.
- The programs are solved before the round is formulated, by one backend whatever the options name: shares are data of
  the round, so that solvers are compared on the same one. What they take of the time limit of the request the round
  does not get.
- Jobs are not packed onto one GPU (space sharing, section 3.1).
"""

import time
from dataclasses import dataclass, replace

import numpy as np

from models.allocation.gavel.instance import GavelInstance, Pairs
from models.allocation.gavel.parameters import GavelObjective
from models.allocation.gavel.program import Program, common_rows, group
from models.performance.goodput.spec import ThroughputTable
from models.workload import Job
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.solve import solve
from stowplan.arrays import FloatMatrix, FloatVector, IntVector
from stowplan.errors import Issue, Severity

# Of theta*, that the second program may stay below it by rounding.
_ROUNDING = 1e-9
_RELATIVE_GAP = 1e-6
# Where nothing is left of the time limit: enough for programs of a few classes.
_LEAST_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    """of_time: float64 (J, T). level: theta*, None where no job can run, or the solver found nothing; unit_s: for the
    makespan D, which over theta* is the makespan. warnings: what was not proved. spent_s: wall-clock time that it
    took."""

    of_time: FloatMatrix
    level: float | None = None
    unit_s: float | None = None
    warnings: tuple[Issue, ...] = ()
    spent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Classes:
    """Classes of jobs that are alike. first: a job (C,) of each; of_job: class (K,) of the K jobs `members`.

    level: a_ct float64 (P,) of the pairs.
    """

    instance: GavelInstance
    pairs: Pairs
    level: FloatVector
    first: IntVector
    members: IntVector
    of_job: IntVector

    def name(self, c: int) -> str:
        """A class is called as the first of its jobs."""
        return self.instance.jobs[int(self.first[c])].id

    def levels(self, x: FloatVector) -> FloatVector:
        """Level (C,) of every class at the shares `x` (P,)."""
        return np.asarray(np.bincount(self.pairs.owner, self.level * x, minlength=self.first.size), dtype=np.float64)

    def column_names(self) -> tuple[str, ...]:
        """`X[job,type]` for every pair."""
        types = self.instance.configurations.gpu_types
        pairs = zip(self.pairs.owner.tolist(), self.pairs.gpu_type.tolist(), strict=True)
        return tuple(f"X[{self.name(c)},{types[t]}]" for c, t in pairs)


def shares(instance: GavelInstance, limit_s: float) -> Shares:
    """Solve both programs in so much wall-clock time. Without an answer to the first nobody has a share, and rounds go
    by age alone."""
    started_s = time.perf_counter()
    found = _shares(instance, started_s + limit_s)
    return replace(found, spent_s=time.perf_counter() - started_s)


def left_of(options: SolveOptions, spent_s: float) -> SolveOptions:
    """The options for what comes after so much of the time limit is spent."""
    return replace(options, time_limit_s=max(_LEAST_S, options.time_limit_s - spent_s))


def _shares(instance: GavelInstance, until_s: float) -> Shares:
    of_time = np.zeros(instance.offered.shape)
    rates, unit_s = level_rates(instance)
    found = classes(instance, rates)
    if not found.first.size:
        return Shares(of_time=of_time)
    first = solve(fairest(found).assemble(), _options(until_s))
    if first.incumbent is None:
        return Shares(of_time=of_time, unit_s=unit_s, warnings=(_not_solved(first.message),))
    warnings = () if first.termination is TerminationReason.OPTIMAL else (_not_proved(first.message),)
    x = first.incumbent[:-1]
    level = float(found.levels(x).min())
    second = solve(fullest(found, level).assemble(), _options(until_s))
    x = x if second.incumbent is None else second.incumbent
    on_types = np.zeros((found.first.size, len(instance.configurations.gpu_types)))
    on_types[found.pairs.owner, found.pairs.gpu_type] = np.clip(x, 0.0, 1.0)
    of_time[found.members] = on_types[found.of_job]
    return Shares(of_time=of_time, level=level, unit_s=unit_s, warnings=warnings)


def level_rates(instance: GavelInstance) -> tuple[FloatMatrix, float | None]:
    """a (J, T), 0 where a job is not offered, and D for the makespan."""
    if instance.parameters.objective is GavelObjective.MAKESPAN:
        work = np.array([_samples_left(job, instance.parameters.round_s) for job in instance.jobs])
        rates = np.where(instance.offered, instance.speed / work[:, None], 0.0)
        fastest = rates.max(axis=1, initial=0.0)
        unit_s = float(1.0 / fastest[fastest > 0].min()) if fastest.any() else 1.0
        return unit_s * rates, unit_s
    nodes = instance.snapshot.cluster.nodes
    index = {name: t for t, name in enumerate(instance.configurations.gpu_types)}
    num_free = [mask.bit_count() for mask in instance.taken.free_masks]
    there = np.bincount([index[node.gpu_type] for node in nodes], num_free, minlength=len(index))
    equal = instance.speed @ there / max(1.0, float(there.sum()))
    scale = np.array([job.min_gpus / job.weight for job in instance.jobs])
    factor = np.divide(scale, equal, out=np.zeros_like(equal), where=equal > 0)
    return np.where(instance.offered, instance.speed * factor[:, None], 0.0), None


def classes(instance: GavelInstance, rates: FloatMatrix) -> Classes:
    """Put the jobs together that can run anywhere; `rates`: a (J, T)."""
    members = np.flatnonzero(instance.offered.any(axis=1))
    traits = np.concatenate([rates[members], instance.configuration[members]], axis=1)
    _, first, of_job, size = np.unique(traits, axis=0, return_index=True, return_inverse=True, return_counts=True)
    first = members[first]
    owner, gpu_type = np.nonzero(instance.offered[first])
    pairs = Pairs(
        owner=owner, gpu_type=gpu_type, configuration=instance.configuration[first[owner], gpu_type], size=size
    )
    return Classes(
        instance=instance,
        pairs=pairs,
        level=rates[first[owner], gpu_type],
        first=first,
        members=members,
        of_job=of_job.reshape(-1),
    )


def fairest(found: Classes) -> Program:
    """The first program; theta is the last column."""
    pairs, num_classes = found.pairs, found.first.size
    each = np.arange(num_classes)
    theta = np.full(num_classes, pairs.owner.size)
    rows = np.concatenate([pairs.owner, each])
    columns = np.concatenate([np.arange(pairs.owner.size), theta])
    values = np.concatenate([-found.level, np.ones(num_classes)])
    level = group("level", rows, columns, values, np.zeros(num_classes), pairs, _names(found), num_more=1)
    return Program(
        name="gavel-level",
        gain=np.append(np.zeros(pairs.owner.size), 1.0),
        upper=np.append(np.ones(pairs.owner.size), np.inf),
        is_integer=False,
        groups=(*common_rows(found.instance, pairs, found.name, num_more=1), level),
        column_names=lambda: (*found.column_names(), "theta"),
    )


def fullest(found: Classes, level: float) -> Program:
    """The second program, with theta* = `level`."""
    pairs, num_classes = found.pairs, found.first.size
    least = np.full(num_classes, -level * (1 - _ROUNDING))
    rows = group("level", pairs.owner, np.arange(pairs.owner.size), -found.level, least, pairs, _names(found))
    return Program(
        name="gavel-shares",
        gain=pairs.size[pairs.owner] * found.level,
        upper=np.ones(pairs.owner.size),
        is_integer=False,
        groups=(*common_rows(found.instance, pairs, found.name), rows),
        column_names=found.column_names,
    )


def _options(until_s: float) -> SolveOptions:
    return SolveOptions(time_limit_s=max(_LEAST_S, until_s - time.perf_counter()), relative_gap=_RELATIVE_GAP)


def _names(found: Classes) -> list[str]:
    return [found.name(c) for c in range(found.first.size)]


def _samples_left(job: Job, least_s: float) -> float:
    """Work of a job; seconds where no throughput is known."""
    if isinstance(job.performance, ThroughputTable):
        return (job.performance.batch_size or 0) * (job.remaining_iterations or 0.0)
    return max(least_s, job.remaining_s or 0.0)


def _not_proved(message: str) -> Issue:
    return Issue(
        code="shares_not_proved",
        pointer="",
        detail=f"the solver ended before it had proved that no other shares of time are better ({message})",
        severity=Severity.WARNING,
    )


def _not_solved(message: str) -> Issue:
    return Issue(
        code="shares_not_solved",
        pointer="",
        detail=f"the solver found no shares of time ({message}); this round goes by age and time received alone",
        severity=Severity.WARNING,
    )
