"""The program solved by its schedules: few of the very many are needed.

0. A point that is known: who has reserved GPUs has them, who runs stays, and others start where there is room left, the
   least work by weight first; or without these others. The best of these that is feasible is an answer whenever the
   time ends.
1. The relaxation, by taking in the schedules that pay at the prices of GPUs (`solver.decomposition.sifting`): a bound
   for all, and reduced costs; and near it a point at which every job has one configuration now, that which it has where
   no better one is found (`solver.decomposition.whole`), for whose placement classes HiGHS looks for units: nearly
   always a plan within 1 %.
2. Where there is no such point, the program over the schedules that were taken in, of the choices for the present with
   the least reduced costs: few, then more.
3. Where no plan is within the gap: the program over all schedules of all choices for the present that may be in a
   better one. A job whose schedules with a configuration now all have a reduced cost of more than the plan is above the
   bound does not have it in a better one (of a single schedule that cannot be said, since its share may be small). So
   the lesser of that sum and of the bound of this program is a bound for all.

What jobs pay that have waited for too long is more than all times together, so that a small gap of the objective says
nothing of these where such a job must wait on: the gap that is asked for is of the times at the relaxation.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
from scipy import sparse

from models.allocation.horizon.assembly import assemble, capacity_names, now_rows, relaxation, value
from models.allocation.horizon.extraction import settled
from models.allocation.horizon.instance import HorizonInstance
from models.allocation.horizon.schedules import NOTHING
from models.wording import counted
from solver.backends.base import CROSSING_TOLERANCE
from solver.backends.highs import HighsBackend
from solver.decomposition.sifting import Sifted, sift
from solver.decomposition.structure import ChoiceProblem
from solver.decomposition.whole import Whole
from solver.feasibility import FEASIBILITY_TOLERANCE, violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.solve import solve
from stowplan import __version__
from stowplan.arrays import FloatVector, IntVector, Mask
from stowplan.errors import BackendError

# Of the gap that is asked for, what the relaxation may leave open.
_RELAXED = 0.1
_LEAST_TIME_S = 1e-3
# What HiGHS and a plan to begin with may leave open: most of the objective is what no choice can change, so that a gap
# in it is wide, and a needless restart is a thousandth.
_CAREFUL = 1e-4
# Choices for the present beside one of each job that the first and the second program have.
_FEW, _MORE = 20, 250
# The least part of the objective that may count as times.
_LEAST_OF_TIMES = 1e-6
# Who is asked for its version alone: that starts one.
_HIGHS = HighsBackend()
# A share that misses 1 by less is 1.
_DECIDED = 1e-6
# Of the dearest row, a price that is rounding.
_ROUNDED = 1e-9


class Search:
    """One solve of the program of the instance.

    prices: of GPUs at the relaxation, by the names of rows; rent: (S,), what a schedule takes at these prices: so much
    less the others get done; None as long as there are no prices.
    """

    def __init__(self, instance: HorizonInstance, options: SolveOptions, monitor: SolveMonitor) -> None:
        self._instance = instance
        self._options = options
        self._monitor = monitor
        self._began_s, self._cpu_s = time.perf_counter(), time.process_time()
        self._best: SolveResult | None = None
        self._told = np.inf
        self._of_times = 1.0
        self._refused = ""
        self.prices: Mapping[str, float] = {}
        self.rent: FloatVector | None = None

    def run(self) -> SolveResult:
        """The best plan within the gap, or as far as the time goes."""
        it = self._instance
        self._offer_start()
        heads = np.flatnonzero(np.diff(it.schedules.job, prepend=-1))
        least_times = float(np.minimum.reduceat(it.objective.times, heads).sum())
        asked = self._options.relative_gap * least_times
        relaxed = self._relaxed
        prices = self._first_prices(relaxed.limit.size)
        part = np.concatenate([self._choices, np.full(it.num_tail, -1)])
        stays = np.append(it.schedules.now == it.work.current[it.schedules.job], np.ones(it.num_tail, dtype=np.bool_))
        whole = Whole(part=part, num_rows=self._now_rows[1].size, tolerance=asked, known=stays)
        tolerance = _RELAXED * min(_CAREFUL * least_times, asked)
        sifted = sift(relaxed, tolerance, prices, self._must_stop, whole)
        bound = sifted.reduced.bound
        self._of_times = self._part_of_times(sifted)
        # The time may end just after this was found.
        if sifted.rounded is not None and not it.num_packing:
            self._offer_rounded(sifted.rounded)
        if self._must_stop():
            return self._concluded(sifted, self._unsolved(), bound)
        self._note_prices(relaxed, sifted.prices)
        is_near = sifted.rounded is not None and (not it.num_packing or self._is_packed(sifted, sifted.rounded, bound))
        if self._best is not None and self._is_closed(bound, np.inf if is_near else _CAREFUL):
            return self._concluded(sifted, self._best, bound)
        if self._must_stop():
            return self._concluded(sifted, self._unsolved(), bound)
        is_decided, last = True, self._unsolved()
        # Beside a point near the relaxation little is left of all.
        for num_extra in () if is_near else (_FEW, _MORE):
            last = self._solve(self._near(sifted, num_extra), bound)
            is_decided = last.termination is not TerminationReason.FEASIBLE and last.limit is None
            if not is_decided or self._is_closed(bound):
                break
        if is_decided and not self._is_closed(bound):
            least = self._least_of_choices(sifted.reduced.columns[: len(it.schedules)])
            kept = least <= self._lacks(bound)
            last = self._solve(kept, bound)
            floor = np.inf if kept.all() else bound + float(least[~kept].min())
            if last.termination is TerminationReason.INFEASIBLE:
                bound = max(bound, floor) if np.isfinite(floor) else bound
            elif last.bound is not None:
                bound = max(bound, min(floor, last.bound))
        return self._concluded(sifted, last, bound)

    def _offer_start(self) -> None:
        """Tell of the best of the points that are known."""
        best = next(filter(self._is_legal, sorted(self._starts(), key=partial(value, self._instance))), None)
        if best is not None:
            self._offer(best)

    def _offer_rounded(self, rounded: FloatVector) -> None:
        """Tell of a point of the relaxation that splits no choice, where it is better."""
        it, found = self._instance, self._instance.schedules
        begins, share = np.flatnonzero(found.pair >= 0), rounded[: len(found)]
        pairs = np.bincount(found.pair[begins], weights=share[begins], minlength=it.pair_jobs.size)
        point = settled(it, np.concatenate([share, pairs]))
        if value(it, point) < self._told and self._is_legal(point):
            self._offer(point)

    def _is_packed(self, sifted: Sifted, rounded: FloatVector, bound: float) -> bool:
        """Whether HiGHS finds units for what such a point chooses; the plan is told."""
        share = rounded[: len(self._instance.schedules)]
        chosen = np.bincount(self._choices, weights=share) > _DECIDED
        kept = (sifted.taken[: share.size] & chosen[self._choices]) | (share > 0)
        return self._solve(kept, bound).incumbent is not None

    def _is_legal(self, point: FloatVector) -> bool:
        """Whether a point that splits no choice keeps the rows of the program."""
        it, num_schedules = self._instance, len(self._instance.schedules)
        if not it.num_packing:
            # The relaxation has all rows but of jobs without schedules, and no program needs to be assembled.
            relaxed = self._relaxed
            taken = np.append(point[:num_schedules], point[it.num_columns - it.num_tail :])
            beyond = relaxed.coupling.T @ taken - relaxed.limit
            shares = np.bincount(it.schedules.job, weights=point[:num_schedules], minlength=len(it.jobs))
            is_kept = beyond <= FEASIBILITY_TOLERANCE * np.maximum(1.0, np.abs(relaxed.limit))
            return bool(is_kept.all() and (np.abs(shares[it.sia.planned] - 1.0) <= FEASIBILITY_TOLERANCE).all())
        part, columns = it.within(point[:num_schedules] > 0)
        return np.count_nonzero(point[columns]) == np.count_nonzero(point) and not violations(
            assemble(part), point[columns]
        )

    def _offer(self, point: FloatVector) -> None:
        """Take and tell a point that is better than what is known."""
        objective = value(self._instance, point)
        self._best, self._told = self._unsolved(point, objective), objective
        self._monitor.on_progress(Progress(elapsed_s=self._elapsed_s(), objective=objective, incumbent=point))

    def _starts(self) -> Iterator[FloatVector]:
        """Reserved GPUs, those of running jobs and what is left for others, to the end; then without the others, or
        until the calendar may want them; then without the running jobs."""
        it = self._instance
        stays = it.work.current[it.pair_jobs] == it.pair_configurations
        first = np.diff(it.pair_jobs, prepend=-1) > 0
        # Of placement classes the laxest, which comes first and asks nothing of units.
        has = np.isin(it.pair_jobs, it.pair_jobs[stays])
        reserved = np.isin(it.pair_jobs, it.sia.reserved) & np.where(has, stays, first)
        runs = reserved | stays
        for pairs, stops in ((self._beside(runs), False), (runs, False), (runs, True), (reserved, True)):
            yield self._as_they_are(pairs, stops=stops)

    def _beside(self, pairs: Mask) -> Mask:
        """(P,) the pairs, and one of each other job as long as there is room: that with the least GPU seconds, of the
        jobs of most weight by these first (Smith's rule). Of placement classes those that ask nothing of units."""
        it = self._instance
        rows, limits, _ = self._now_rows
        known, takes = it.sia.configurations, sparse.csr_array(rows.T)
        work = it.work.seconds[it.pair_jobs, it.pair_configurations] * known.num_gpus[it.pair_configurations]
        free = ~np.isin(it.pair_jobs, it.pair_jobs[pairs])
        if it.rooms is not None:
            free &= (it.rooms.classes.rank == 0)[it.pair_configurations] & ~it.rooms.classes.stays[
                it.pair_configurations
            ]
        density = work / it.weight[it.pair_jobs].clip(np.finfo(np.float64).tiny)
        order = np.flatnonzero(free)[np.argsort(density[free], kind="stable")]
        order = order[np.sort(np.unique(it.pair_jobs[order], return_index=True)[1])]
        found, left = pairs.copy(), limits - rows @ pairs
        for p in order.tolist():
            # Of very many rows, with quotas of queues, a pair takes few.
            own = slice(takes.indptr[p], takes.indptr[p + 1])
            if (takes.data[own] <= left[takes.indices[own]]).all():
                found[p] = True
                left[takes.indices[own]] -= takes.data[own]
        return found

    def _as_they_are(self, pairs: Mask, *, stops: bool) -> FloatVector:
        """The point at which the jobs of `pairs` (P,) alone get anything, to the end or for the first interval."""
        it, found = self._instance, self._instance.schedules
        begins = (found.pair >= 0) & (found.later == NOTHING)
        begins[begins] = pairs[found.pair[begins]]
        stop = begins & (found.at > 0)
        chosen = stop | (begins & ~np.isin(found.pair, found.pair[stop])) if stops else begins & (found.at == 0)
        waits = (found.now == NOTHING) & (found.later == NOTHING) & ~np.isin(found.job, it.pair_jobs[pairs])
        share = (chosen | waits).astype(np.float64)
        return np.concatenate([share, pairs, np.zeros(it.num_packing), it.tail_columns(share)])

    def _unsolved(self, point: FloatVector | None = None, objective: float | None = None) -> SolveResult:
        """A point that no solver has found, or none."""
        return SolveResult(
            termination=TerminationReason.NO_SOLUTION_FOUND if point is None else TerminationReason.FEASIBLE,
            limit=Limit.INTERRUPTED if self._monitor.canceled.is_set() else Limit.TIME,
            sense=self._instance.sense,
            incumbent=point,
            objective=objective,
            bound=None,
            statistics=SolveStatistics(num_columns=0),
            solver="highs",
            solver_version=_HIGHS.version,
        )

    def _part_of_times(self, sifted: Sifted) -> float:
        """What part of the relaxation's objective are times, and not what jobs pay that have waited for too long."""
        found = self._instance.schedules
        waits = np.flatnonzero((found.pair < 0) & (sifted.point[: len(found)] > 0))
        late = float(self._instance.late[found.job[waits]] @ sifted.point[waits])
        if sifted.objective is None or sifted.objective <= 0:
            return 1.0
        return max(_LEAST_OF_TIMES, 1.0 - late / sifted.objective)

    def _near(self, sifted: Sifted, num_extra: int) -> Mask:
        """(S,) schedules that were taken in, or can be had in any case, of those choices for the present that cost the
        least at the prices, so many beside one of each job, and of those that the relaxation has chosen."""
        choice, num = self._choices, len(self._instance.schedules)
        heads = np.flatnonzero(np.diff(choice, prepend=-1))
        least = self._least_of_choices(sifted.reduced.columns[:num])[heads]
        position = min(least.size - 1, self._instance.sia.planned.size + num_extra)
        used = np.bincount(choice, weights=sifted.point[:num]) > _DECIDED
        kept = used | (least <= np.partition(least, position)[position])
        # What there is always room for lets plans be feasible that the relaxation did not think of.
        return np.asarray((sifted.taken[:num] | self._always) & kept[choice])

    @cached_property
    def _now_rows(self) -> tuple["sparse.csr_array", FloatVector, tuple[str, ...]]:
        return now_rows(self._instance)

    @cached_property
    def _priced_names(self) -> tuple[str, ...]:
        """Rows of GPUs, those of the present first."""
        return (*self._now_rows[2], *capacity_names(self._instance))

    @cached_property
    def _relaxed(self) -> ChoiceProblem:
        return relaxation(self._instance)

    @cached_property
    def _always(self) -> Mask:
        """(S,) schedules of which there is room for any in later intervals."""
        found = self._instance.schedules
        return np.asarray((found.later == NOTHING) & ((found.now == NOTHING) | (found.at > 0)))

    @cached_property
    def _choices(self) -> IntVector:
        """(S,) a number for what a job has now, ascending."""
        found = self._instance.schedules
        differs = (np.diff(found.job, prepend=-1) != 0) | (np.diff(found.now, prepend=NOTHING) != 0)
        return np.cumsum(differs) - 1

    def _least_of_choices(self, reduced: FloatVector) -> FloatVector:
        """(S,) the least reduced cost of all schedules with the same choice for the present."""
        heads = np.flatnonzero(np.diff(self._choices, prepend=-1))
        return np.minimum.reduceat(reduced, heads)[self._choices]

    def _lacks(self, bound: float) -> float:
        """How much dearer than the bound the best plan is; infinity without one."""
        best = self._best
        if best is None or best.objective is None:
            return np.inf
        return best.objective - bound + CROSSING_TOLERANCE * max(1.0, abs(bound))

    def _solve(self, kept: Mask, bound: float) -> SolveResult:
        """The program over the schedules `kept` (S,); its incumbents are told as points of the whole."""
        part, columns = self._instance.within(kept)

        def whole(point: FloatVector) -> FloatVector:
            lifted = np.zeros(self._instance.num_columns)
            lifted[columns] = point
            return lifted

        def tell(progress: Progress) -> None:
            """Of incumbents those alone that are better than what has been told: whoever ends this has the last one."""
            point, objective = None, progress.objective
            if progress.incumbent is not None and objective is not None and objective < self._told:
                self._told, point = objective, whole(progress.incumbent)
            known = self._told if np.isfinite(self._told) else None
            self._monitor.on_progress(
                replace(progress, elapsed_s=self._elapsed_s(), objective=known, bound=bound, incumbent=point)
            )

        left_s = max(_LEAST_TIME_S, self._options.time_limit_s - self._elapsed_s())
        options = replace(
            self._options,
            solver="highs",
            time_limit_s=left_s,
            relative_gap=min(_CAREFUL, self._options.relative_gap) * self._of_times,
            warm_start=self._known_within(columns),
            prices=None,
            sub_programs=False,
        )
        try:
            result = solve(assemble(part), options, replace(self._monitor, on_progress=tell))
        except BackendError as error:
            # Numbers too far apart for the solver take nothing from the bound and the points that are known.
            self._refused = f"; {error}"
            return replace(self._unsolved(), limit=Limit.OTHER)
        if result.incumbent is not None and result.objective is not None:
            before = None if self._best is None else self._best.objective
            is_better = before is None or result.objective < before
            result = replace(result, incumbent=whole(result.incumbent))
            if is_better:
                self._best = result
        return result

    def _known_within(self, columns: IntVector) -> FloatVector | None:
        """The best point in these columns, None where it has others."""
        if self._best is None or self._best.incumbent is None:
            return None
        point = self._best.incumbent[columns]
        return point if np.count_nonzero(point) == np.count_nonzero(self._best.incumbent) else None

    def _is_closed(self, bound: float, gap: float = np.inf) -> bool:
        """Whether the best plan is within the gap that is asked for, or `gap` if that is narrower."""
        best = self._best
        if best is None or best.objective is None:
            return False
        gap = min(gap, self._options.relative_gap)
        return best.objective - bound <= gap * self._of_times * abs(best.objective)

    def _concluded(self, sifted: Sifted, last: SolveResult, bound: float) -> SolveResult:
        """What is known of the whole."""
        statistics = replace(
            last.statistics,
            load_s=0.0,
            solve_s=self._elapsed_s(),
            solve_cpu_s=time.process_time() - self._cpu_s,
            num_columns=self._instance.num_columns,
            num_rows=None,
            num_nonzeros=None,
        )
        message = (
            f"{sifted.taken.sum()} of {sifted.taken.size} schedules taken in, in "
            f"{counted(sifted.num_rounds, 'round')}; the last program had {last.statistics.num_columns} columns"
            f"{self._refused}"
        )
        best = self._best
        if best is None or best.objective is None:
            return replace(last, bound=None if last.bound is None else bound, statistics=statistics, message=message)
        rounding = CROSSING_TOLERANCE * max(1.0, abs(best.objective))
        proven = self._is_closed(min(bound, best.objective) + rounding)
        limit = None if proven else last.limit
        return replace(
            best,
            termination=TerminationReason.OPTIMAL if proven else TerminationReason.FEASIBLE,
            limit=limit,
            bound=min(bound, best.objective),
            statistics=statistics,
            solver="decomposition",
            solver_version=f"{__version__}, {last.solver} {last.solver_version}",
            message=message,
        )

    def _first_prices(self, num_rows: int) -> FloatVector | None:
        """(num_rows,) those of an earlier plan, by the names of the rows; None: those of a sample."""
        it, known = self._instance, self._instance.parameters.prices
        names = self._priced_names if known else ()
        if known.keys().isdisjoint(names):
            # Rows of the tail, and what is in them, are too many for a sample to say their prices.
            return np.zeros(num_rows) if it.num_tail else None
        # Prices beyond all costs say that no point keeps the rows (`sifting`), which those of another program do not.
        given = np.array([known.get(name, 0.0) for name in names]).clip(max=np.abs(it.cost).max(initial=0.0))
        return np.pad(given, (0, num_rows - len(names)))

    def _note_prices(self, relaxed: ChoiceProblem, prices: FloatVector) -> None:
        """Prices of GPUs, by the names of the rows, and what schedules take at these."""
        it = self._instance
        names = self._priced_names
        of_gpus = prices[: len(names)]
        of_rows = np.concatenate([of_gpus, np.zeros(prices.size - of_gpus.size)])
        # What jobs pay that may wait no more is no time of theirs, and in the prices of what they wait for.
        self.rent = None if self._of_times < 1.0 else (relaxed.coupling @ of_rows)[: len(it.schedules)]
        scarce = of_gpus > _ROUNDED * of_gpus.max(initial=0.0)
        self.prices = {names[k]: float(of_gpus[k]) for k in np.flatnonzero(scarce).tolist()}

    def _must_stop(self) -> bool:
        return self._monitor.canceled.is_set() or self._elapsed_s() > self._options.time_limit_s

    def _elapsed_s(self) -> float:
        return time.perf_counter() - self._began_s
