"""Search for the plan ahead: bounds from each job alone, plans from one job after the other.

Who may be moved is moved by `moves`: what is said below of options is said of the loosened ones there.

Below: the master program (`master`) over what every option costs alone. That is known exactly only for options that the
master chooses, and bounded without a search for the others, so it is solved, what it chose is placed alone, and again,
until it chooses nothing new. Where jobs want the same nodes at one time, the same with prices on nodes (`prices`).

Above: jobs are placed one after the other in several orders, each at the best option beside those before it, also with
the prices as costs; then each anew beside all others, as long as that helps. Options are tried in the order of their
bounds, up to the first whose bound is no better than what is known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations

import numpy as np

from models.placement.ahead.instance import AheadInstance, Placing, placing_cost, stays
from models.placement.ahead.master import master_problem
from models.placement.ahead.moves import loosened, settled
from models.placement.ahead.prices import best_prices
from models.placement.ahead.single import SingleAnswer, free_at, least_cost, place_at_best
from models.placement.arnold.budget import Budget
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.solve import solve
from stowplan.arrays import FloatVector, IntVector

# Orders in which jobs are placed; all of up to four jobs.
_MOST_ORDERS = 24
# Times that prices are sought, for what the best plan has chosen by then.
_MOST_ROUNDS = 4
_TOLERANCE = 1e-9
# Of what is left, to each solve of the master.
_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AheadAnswer:
    """The best plan found, a placing for each job, or None; a lower bound on all plans, infinity: there is none."""

    placings: tuple[Placing, ...] | None
    cost: float
    bound: float


class AheadSearch:
    """One search on an instance."""

    def __init__(self, instance: AheadInstance, budget: Budget) -> None:
        self._instance = instance
        self._budget = budget
        self._alone = _Alone(instance)
        self.best: tuple[Placing, ...] | None = None
        self.cost = np.inf
        self.bound = -np.inf

    def run(self) -> AheadAnswer:
        """Search until the gap asked for is proven, or a limit comes."""
        numbers = range(len(self._instance.jobs))
        self._place(self._alone, numbers)
        self._bounded(self._alone, 0.0)
        for order in islice(permutations(numbers), 1, _MOST_ORDERS):
            if self.best is not None or self._is_done():
                break
            self._place(self._alone, order)
        for _ in range(_MOST_ROUNDS):
            if self.best is None or self._is_done():
                break
            if not self._priced(tuple(placing.option for placing in self.best)):
                break
        return AheadAnswer(placings=self.best, cost=self.cost, bound=min(self.bound, self.cost))

    def _is_done(self) -> bool:
        gap = self._budget.options.relative_gap * abs(self.cost)
        return self._budget.ended_by is not None or self.cost - self.bound <= max(gap, _TOLERANCE)

    def _priced(self, options: tuple[int, ...]) -> bool:
        """Seek prices for these options, and what all options cost with them; whether the gap has become smaller."""
        before = self.cost - self.bound

        def on_prices(priced: AheadInstance) -> float:
            self._place(_Alone(priced), range(len(priced.jobs)), options)
            return self.cost

        prices = best_prices(self._instance, options, self.cost, self._is_done, on_prices)
        priced = _Alone(prices.added(self._instance))
        self._bounded(priced, prices.rebate(self._instance))
        for order in islice(permutations(range(len(options))), _MOST_ORDERS):
            if self._is_done():
                break
            self._place(priced, order, options)
        return self.cost - self.bound < before - _TOLERANCE

    def _bounded(self, alone: "_Alone", rebate: float) -> None:
        """Bound all plans by what options cost alone, less a `rebate`; place jobs by what the master chooses."""
        while self._budget.ended_by is None:
            if alone.is_hopeless:
                self.bound = np.inf
                return
            options = SolveOptions(
                time_limit_s=max(0.05, self._budget.remaining_s * _SHARE),
                relative_gap=0.0,
                seed=self._budget.options.seed,
            )
            monitor = SolveMonitor(canceled=self._budget.monitor.canceled)
            result = solve(master_problem(alone.instance, alone.values), options, monitor)
            if result.bound is not None:
                self.bound = max(self.bound, result.bound - rebate)
            if result.incumbent is None:
                self.bound = np.inf if result.termination is TerminationReason.INFEASIBLE else self.bound
                return
            self._report()
            chosen = [int(part.argmax()) for part in np.split(result.incumbent, alone.ends)]
            new = [(p, o) for p, o in enumerate(chosen) if not alone.knows(p, o)]
            if not new or self._is_done():
                self._place(alone, range(len(chosen)), chosen)
                return
            for p, o in new:
                alone.placed(p, o)

    def _place(self, alone: "_Alone", order: Sequence[int], options: Sequence[int] | None = None) -> None:
        """Place jobs one after the other, each at its best beside those before it, or by `options`; then improve."""
        placings: dict[int, Placing] = {}
        for p in order:
            found = self._best_beside(alone, placings, p, options=None if options is None else [options[p]])
            if found is None:
                return
            placings[p] = found
        if options is None or self._cost_of(placings) < self.cost - _TOLERANCE:
            self._improve(placings)

    def _cost_of(self, placings: dict[int, Placing]) -> float:
        return sum(placing_cost(job, placings[p]) for p, job in enumerate(self._instance.jobs))

    def _improve(self, placings: dict[int, Placing]) -> None:
        """Place each job anew beside all others, as long as that helps; keep the best plan."""
        improved = True
        while improved and self._budget.ended_by is None:
            improved = False
            for p in range(len(self._instance.jobs)):
                others = {q: placing for q, placing in placings.items() if q != p}
                found = self._best_beside(self._alone, others, p, placings[p])
                if found is not None and found is not placings[p]:
                    placings[p], improved = found, True
        cost = self._cost_of(placings)
        if cost < self.cost - _TOLERANCE:
            if self._budget.first_incumbent_s is None:
                self._budget.first_incumbent_s = self._budget.elapsed_s
            self.cost = cost
            self.best = tuple(placings[p] for p in range(len(placings)))
            self._report()

    def _best_beside(
        self,
        alone: "_Alone",
        others: dict[int, Placing],
        p: int,
        known: Placing | None = None,
        options: Sequence[int] | None = None,
    ) -> Placing | None:
        """The best placing of job p beside others, of all its options or those given, at least as good as `known`."""
        job = alone.source.jobs[p]
        staying = frozenset(i for other in others.values() if other.relocation for i in other.relocation.movers)
        best, cost = known, np.inf if known is None else placing_cost(job, known) - _TOLERANCE
        for o in alone.by_value(p) if options is None else options:
            if alone.values[p][o] >= cost or (best is not None and self._budget.ended_by is not None):
                break
            left, for_ever = self._left(others, p, o)
            untouched = bool((left == self._instance.class_size).all())
            answer = alone.placed(p, o) if untouched else place_at_best(alone.instance, alone.instance.jobs[p], o, left)
            if answer.bound < cost:
                answer = settled(alone.source, job, o, answer, left, for_ever, staying)
            if answer.placing is not None and answer.cost < cost:
                best, cost = answer.placing, answer.cost
        return best

    def _left(self, others: dict[int, Placing], p: int, o: int) -> tuple[IntVector, IntVector]:
        """Nodes of each class that are left while the option lasts, and from its start on for ever, (C,) each."""
        taken = [
            stay
            for q, placing in others.items()
            for stay in stays(self._instance.jobs[q].options[placing.option], placing)
        ]
        option = self._instance.jobs[p].options[o]
        left = free_at(self._instance, taken, option.start_s, option.end_s)
        if option.moves is None:
            return left, left
        return left, free_at(self._instance, taken, option.start_s, np.inf)

    def _report(self) -> None:
        bound = self.bound if np.isfinite(self.bound) else None
        self._budget.tell(objective=self.cost if self.best is not None else None, bound=bound)


class _Alone:
    """What every option of `source` costs when nobody else is planned: bounds, and placings once they are asked for.

    instance: the loosened one, of which the placings are. values: one (O_p,) for each job, lower bounds.
    """

    def __init__(self, source: AheadInstance) -> None:
        self.source = source
        self.instance = instance = loosened(source)
        self.values: list[FloatVector] = [
            np.array([least_cost(instance, job, option) for option in job.options]) for job in instance.jobs
        ]
        # Where the columns of each job but the first begin.
        self.ends = np.cumsum([len(values) for values in self.values])[:-1]
        self._placed: dict[tuple[int, int], SingleAnswer] = {}

    @property
    def is_hopeless(self) -> bool:
        """Whether some job has no option at all."""
        return any(not np.isfinite(values).any() for values in self.values)

    def knows(self, p: int, o: int) -> bool:
        """Whether the job was placed by that option."""
        return (p, o) in self._placed

    def placed(self, p: int, o: int) -> SingleAnswer:
        """Place the job by that option; its value becomes exact, as far as the placing is."""
        if (p, o) not in self._placed:
            answer = place_at_best(self.instance, self.instance.jobs[p], o, self.instance.class_size)
            self._placed[p, o] = answer
            self.values[p][o] = max(self.values[p][o], answer.bound)
        return self._placed[p, o]

    def by_value(self, p: int) -> Iterator[int]:
        """Options of a job, in the order of their bounds."""
        return iter(np.argsort(self.values[p], kind="stable").tolist())
