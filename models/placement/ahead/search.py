"""Search for the plan ahead: bounds from each job alone, plans from one job after the other.

Below: the master program (`master`) over what every option costs alone. That is known exactly only for options that the
master chooses, and bounded without a search for the others, so it is solved, what it chose is placed alone, and again,
until it chooses nothing new.

Above: jobs are placed one after the other in several orders, each at the best option beside those before it; then each
anew beside all others, as long as that helps. Options are tried in the order of their bounds, up to the first whose
bound is no better than what is known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations

import numpy as np

from models.placement.ahead.instance import AheadInstance, Option, Placing, placing_cost
from models.placement.ahead.master import master_problem
from models.placement.ahead.single import SingleAnswer, free_at, least_cost, place_at_best
from models.placement.arnold.budget import Budget
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.solve import solve
from stowplan.arrays import FloatVector, IntVector

# Orders in which jobs are placed; all of up to four jobs.
_MOST_ORDERS = 24
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
        self._alone: dict[tuple[int, int], SingleAnswer] = {}
        self._values: list[FloatVector] = [
            np.array([least_cost(instance, job, option) for option in job.options]) for job in instance.jobs
        ]
        self.best: tuple[Placing, ...] | None = None
        self.cost = np.inf
        self.bound = -np.inf

    def run(self) -> AheadAnswer:
        """Search until the gap asked for is proven, or a limit comes."""
        self._place(range(len(self._instance.jobs)))
        chosen = self._choose()
        if chosen is not None:
            self._place_by(chosen)
        for order in islice(permutations(range(len(self._instance.jobs))), 1, _MOST_ORDERS):
            if self._is_done():
                break
            self._place(order)
        return AheadAnswer(placings=self.best, cost=self.cost, bound=min(self.bound, self.cost))

    def _is_done(self) -> bool:
        gap = self._budget.options.relative_gap * abs(self.cost)
        return self._budget.ended_by is not None or self.cost - self.bound <= max(gap, _TOLERANCE)

    def _choose(self) -> tuple[int, ...] | None:
        """Options that the master chooses when it knows what each of them costs alone; None when none are possible."""
        while self._budget.ended_by is None:
            options = SolveOptions(
                time_limit_s=max(0.05, self._budget.remaining_s * _SHARE),
                relative_gap=0.0,
                threads=1,
                seed=self._budget.options.seed,
            )
            if any(not np.isfinite(values).any() for values in self._values):
                self.bound = np.inf
                return None
            result = solve(
                master_problem(self._instance, self._values),
                options,
                SolveMonitor(canceled=self._budget.monitor.canceled),
            )
            if result.bound is not None:
                self.bound = max(self.bound, result.bound)
            if result.incumbent is None:
                self.bound = np.inf if result.termination is TerminationReason.INFEASIBLE else self.bound
                return None
            self._report()
            ends = np.cumsum([len(values) for values in self._values])[:-1]
            chosen = tuple(int(part.argmax()) for part in np.split(result.incumbent, ends))
            new = [(p, o) for p, o in enumerate(chosen) if (p, o) not in self._alone]
            if not new:
                return chosen
            for p, o in new:
                self._values[p][o] = self._placed_alone(p, o).bound
        return None

    def _placed_alone(self, p: int, o: int) -> SingleAnswer:
        if (p, o) not in self._alone:
            self._alone[p, o] = place_at_best(self._instance, self._instance.jobs[p], o, self._instance.class_size)
        return self._alone[p, o]

    def _place_by(self, chosen: tuple[int, ...]) -> None:
        """Place every job at the option chosen for it, in orders in which that is possible."""
        for order in islice(permutations(range(len(chosen))), _MOST_ORDERS):
            if self._is_done():
                return
            placings: dict[int, Placing] = {}
            for p in order:
                answer = place_at_best(
                    self._instance, self._instance.jobs[p], chosen[p], self._left(placings, p, chosen[p])
                )
                if answer.placing is None:
                    break
                placings[p] = answer.placing
            else:
                self._improve(placings)

    def _place(self, order: Sequence[int]) -> None:
        """Place jobs one after the other, each at its best beside those before it."""
        placings: dict[int, Placing] = {}
        for p in order:
            found = self._best_beside(placings, p)
            if found is None:
                return
            placings[p] = found
        self._improve(placings)

    def _improve(self, placings: dict[int, Placing]) -> None:
        """Place each job anew beside all others, as long as that helps; keep the best plan."""
        improved = True
        while improved and self._budget.ended_by is None:
            improved = False
            for p in range(len(self._instance.jobs)):
                others = {q: placing for q, placing in placings.items() if q != p}
                found = self._best_beside(others, p, placings[p])
                if found is not None and found is not placings[p]:
                    placings[p], improved = found, True
        cost = sum(placing_cost(job, placings[p]) for p, job in enumerate(self._instance.jobs))
        if cost < self.cost - _TOLERANCE:
            self.cost = cost
            self.best = tuple(placings[p] for p in range(len(placings)))
            self._report()

    def _best_beside(self, others: dict[int, Placing], p: int, known: Placing | None = None) -> Placing | None:
        """The best placing of job p beside others, at least as good as the one `known`."""
        job = self._instance.jobs[p]
        best, cost = known, np.inf if known is None else placing_cost(job, known) - _TOLERANCE
        for o in self._by_value(p):
            if self._values[p][o] >= cost or (best is not None and self._budget.ended_by is not None):
                break
            alone = self._alone.get((p, o))
            if alone is not None and alone.cost >= cost and alone.bound >= cost:
                continue
            left = self._left(others, p, o)
            untouched = bool((left == self._instance.class_size).all())
            answer = self._placed_alone(p, o) if untouched else place_at_best(self._instance, job, o, left)
            if untouched:
                self._values[p][o] = answer.bound
            if answer.placing is not None and answer.cost < cost:
                best, cost = answer.placing, answer.cost
        return best

    def _by_value(self, p: int) -> Iterator[int]:
        return iter(np.argsort(self._values[p], kind="stable").tolist())

    def _left(self, others: dict[int, Placing], p: int, o: int) -> IntVector:
        taken: list[tuple[Option, IntVector]] = [
            (self._instance.jobs[q].options[placing.option], placing.nodes) for q, placing in others.items()
        ]
        return free_at(self._instance, taken, self._instance.jobs[p].options[o])

    def _report(self) -> None:
        bound = self.bound if np.isfinite(self.bound) else None
        self._budget.tell(objective=self.cost if self.best is not None else None, bound=bound)
