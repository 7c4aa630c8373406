"""The optimum of Eq. 2, or a bound and how far away it is (see `true_spread`).

For every row spread a the least column spread b(a) is wanted.
- a = 1 (rows in one minipod each): every column touches every minipod, so b(1) is the fewest minipods with
  sum floor(f_j / C) >= R. Likewise b = 1 needs a as large as the fewest with sum floor(f_j / R) >= C.
- Otherwise a is at least the least spread of R groups of C nodes, and b that of C groups of R nodes, as far as the
  arguments of `exact` go; the relaxation by shapes bounds b(a) further, and block structures are tried from that bound
  upwards.
- What stays open and could be best goes to the row-set model.

No a is looked at that costs too much even with b = 2: when b = 1 has been dealt with, b is at least 2.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from models.placement.arnold.arrangement import arrange_groups
from models.placement.arnold.assignment import whole_nodes
from models.placement.arnold.budget import Budget
from models.placement.arnold.exact.search import solve_exactly
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.arnold.search_answer import Report, SearchAnswer
from models.placement.arnold.true_spread.block_structure import banded
from models.placement.arnold.true_spread.instance import TrueSpreadInstance, spreads
from models.placement.arnold.true_spread.models import (
    num_row_set_columns,
    read_row_sets,
    row_set_model,
    shape_model,
)
from solver.result import SolveResult, TerminationReason
from stowplan.arrays import IntMatrix, IntVector, Mask

_TOLERANCE = 1e-9
# A bound on a count of minipods may miss an integer by rounding.
_ROUNDING = 1e-5
# Larger models take longer to declare than they are worth.
_MAX_COLUMNS = 15_000
# The relaxations are there to save time.
_SHAPE_SHARE = 0.3


@dataclass(slots=True, kw_only=True, eq=False)
class _Level:
    """Least column spread b for rows that touch at most `row_spread`: at least `lower` (inf: none), `upper` known."""

    row_spread: int
    lower: float
    argument: str
    upper: float = math.inf
    given_up: bool = False

    def describe(self) -> str:
        if self.lower == math.inf:
            return f"rows on {self.row_spread}: impossible ({self.argument})"
        known = "reached" if self.upper == self.lower else f"{self.upper:g} known"
        return f"rows on {self.row_spread}: columns on at least {self.lower:g} ({self.argument}), {known}"


def solve_true_spread(instance: TrueSpreadInstance, budget: Budget, report: Report) -> SearchAnswer:
    """Find the optimum, or the best within the budget; `report` gets every better solution with the bound."""
    if not instance.has_room:
        text = f"{int(instance.free_nodes.sum())} of {instance.num_cells} nodes are free"
        return SearchAnswer(solution=None, objective=None, bound=None, certificate=text, proven=True)
    search = _Search(instance, budget, report)
    search.closed_forms()
    search.lay_out()
    while (level := search.most_promising()) is not None and budget.ended_by is None:
        search.settle(level)
    objective = search.best
    bound = search.bound()
    proven = bound >= objective - _TOLERANCE
    return SearchAnswer(
        solution=search.labels,
        objective=objective,
        bound=objective if proven else bound,
        certificate=search.certificate(),
        proven=proven,
    )


class _Search:
    """Levels of one instance; `largest` are its minipods, largest first."""

    def __init__(self, instance: TrueSpreadInstance, budget: Budget, report: Report) -> None:
        self.instance, self.budget, self.report = instance, budget, report
        order = np.argsort(-instance.free_nodes, kind="stable")
        self.largest: IntVector = order[instance.free_nodes[order] > 0]
        self.free: IntVector = instance.free_nodes[self.largest]
        self.levels: list[_Level] = []
        self.best = math.inf
        self.key = (math.inf, 0, 0)
        self.labels: IntMatrix | None = None
        self.least = (1, 1)
        # From this row spread on nothing is known.
        self.unseen: float = 1
        self.rest = ""

    def consider(self, labels: IntMatrix) -> tuple[int, int]:
        """Keep `labels` (R, C) when they are the best so far; their spreads."""
        a, b = spreads(labels)
        key = (round(self.instance.value(a, b), 9), a + b, int(np.unique(labels).size))
        if key < self.key:
            self.key, self.labels = key, labels
            self.best = self.instance.value(a, b)
            self.report(labels, min(self.bound(), self.best))
        return a, b

    def closed_forms(self) -> None:
        """Rows or columns in one minipod each, the answers of Eq. 4, and the least spreads there are."""
        rows, columns = self.instance.num_rows, self.instance.num_columns
        arguments = replace(self.budget, may_solve=False)
        least = []
        for unit in (SchedulingUnit.PP, SchedulingUnit.DP):
            for weighted in (False, True):
                answer = solve_exactly(self.instance.groups(unit, weighted=weighted), arguments, lambda *_: None)
                if answer.solution is not None:
                    labels = arrange_groups(answer.solution)
                    self.consider(labels if unit is SchedulingUnit.PP else labels.T)
                if not weighted:
                    least.append(_least_spread(answer))
        self.least = (least[0], least[1])
        whole_rows = _fewest(self.free // columns, rows)
        level = _Level(row_spread=1, lower=whole_rows, upper=whole_rows, argument=f"{rows} whole rows of {columns}")
        if whole_rows < math.inf:
            self.consider(self._lines(columns, rows))
        self.levels.append(level)
        self.unseen = 2
        whole_columns = _fewest(self.free // rows, columns)
        if whole_columns < math.inf:
            self.consider(self._lines(rows, columns).T)
            text = f"{columns} whole columns of {rows}"
            self.levels.append(_Level(row_spread=int(whole_columns), lower=1, upper=1, argument=text))

    def _lines(self, size: int, num: int) -> IntMatrix:
        """Whole lines of `size` cells on the fewest minipods: labels (num, size)."""
        line = np.repeat(self.largest, self.free // size)[:num]
        return np.repeat(line[:, None], size, axis=1)

    def lay_out(self) -> None:
        """Bound and fill every row spread above 1 that could be best."""
        instance = self.instance
        most = min(instance.num_columns, self.free.size)
        for row_spread in range(2, most + 1):
            if instance.value(row_spread, 2) >= self.best - _TOLERANCE:
                self.rest = f"rows on {row_spread} or more are not better even with columns on 2"
                break
            level = _Level(row_spread=row_spread, lower=max(2, self.least[1]), argument="columns as groups")
            if row_spread < self.least[0]:
                level.lower, level.argument = math.inf, "rows as groups"
            self.levels.append(level)
            self.unseen = row_spread + 1
            if level.lower < math.inf:
                self._bound(level, integral=False)
                self._fill(level)
        else:
            self.rest = "no row can touch more"
        self.unseen = math.inf

    def _bound(self, level: _Level, *, integral: bool) -> None:
        """Raise the lower bound by the relaxation by shapes."""
        if self.budget.ended_by is not None:
            return
        model = shape_model(self.instance, level.row_spread, int(level.lower), integral=integral)
        solved = self.budget.solve(model, share=_SHAPE_SHARE)
        if solved is not None:
            _raise(level, solved[1], beyond=math.inf, argument="shapes")

    def _fill(self, level: _Level) -> None:
        """Least column spread for which a block structure is found, by bisection, if it would be best."""
        low, high = int(level.lower), min(self.instance.num_rows, self.free.size)
        while high >= low and self._would_lose(level, high):
            high -= 1
        if low > high or self._reached(level, low) or not self._reached(level, high):
            return
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._reached(level, middle) else (middle, high)

    def _would_lose(self, level: _Level, column_spread: int) -> bool:
        return self.instance.value(level.row_spread, column_spread) >= self.best - _TOLERANCE

    def _reached(self, level: _Level, column_spread: int) -> bool:
        """Whether bands of columns, or of rows, keep to the column spread."""
        if self.budget.ended_by is not None:
            return False
        labels = self._block_structure(level.row_spread, column_spread)
        if labels is None:
            return False
        level.upper = min(level.upper, self.consider(self.largest[labels])[1])
        return True

    def _block_structure(self, row_spread: int, column_spread: int) -> IntMatrix | None:
        """Bands of columns or of rows, cheap tries first; pieces are cut only where bands are few."""
        shape, seed = (self.instance.num_rows, self.instance.num_columns), self.budget.options.seed
        few_columns = row_spread <= column_spread
        for cut, by_columns in ((False, True), (True, few_columns), (False, False)):
            if by_columns:
                labels = banded(self.free, row_spread, column_spread, shape, seed, cut=cut)
            else:
                across = banded(self.free, column_spread, row_spread, shape[::-1], seed, cut=cut)
                labels = None if across is None else across.T
            if labels is not None:
                return labels
        return None

    def settle(self, level: _Level) -> None:
        """Decide the level by the integral relaxation and the row-set model, or give it up."""
        instance, a = self.instance, level.row_spread
        level.given_up = True
        self._bound(level, integral=True)
        most = int(min(level.upper - 1, instance.num_rows, self.free.size))
        while most >= level.lower and self._would_lose(level, most):
            most -= 1
        if most < level.lower or num_row_set_columns(instance, a) > _MAX_COLUMNS:
            return
        model = row_set_model(instance, a, (int(level.lower), most))
        solved = self.budget.solve(model)
        if solved is None:
            return
        compiled, result = solved
        _raise(level, result, beyond=most + 1, argument="row sets")
        if result.incumbent is not None:
            compiled.load(result.incumbent)
            rows, columns = read_row_sets(instance, model)
            level.upper = self.consider(cells_on(instance, rows, columns))[1]

    def most_promising(self) -> _Level | None:
        """Open level of the least lower bound that is better than what is known."""
        limit = self.best - _TOLERANCE
        openings = [level for level in self.levels if not level.given_up and self._floor(level) < limit]
        return min(openings, key=self._floor, default=None)

    def _floor(self, level: _Level) -> float:
        return math.inf if level.lower == math.inf else self.instance.value(level.row_spread, int(level.lower))

    def bound(self) -> float:
        """Proven lower bound."""
        if self.unseen == 1:
            return 0.0
        unseen = math.inf if self.unseen == math.inf else self.instance.value(int(self.unseen), 2)
        return min(self.best, unseen, *(self._floor(level) for level in self.levels))

    def certificate(self) -> str:
        """Say what proves the bound."""
        return "; ".join([*(level.describe() for level in self.levels), self.rest])


def _raise(level: _Level, result: SolveResult, *, beyond: float, argument: str) -> None:
    """Raise the lower bound of the level by a solved model; to `beyond` when it has no solution."""
    bound = level.lower if result.bound is None else math.ceil(result.bound - _ROUNDING)
    if result.termination is TerminationReason.INFEASIBLE:
        bound = beyond
    if bound > level.lower:
        level.lower, level.argument = bound, argument


def cells_on(instance: TrueSpreadInstance, rows: Mask, columns: Mask) -> IntMatrix:
    """Minipods (R, C) for cells whose rows may use `rows` (R, M) and columns `columns` (C, M)."""
    allowed = (rows[:, None] & columns[None]).reshape(instance.num_cells, -1)
    counts = whole_nodes(instance.cells(), allowed, np.asarray(allowed.any(axis=0)))
    labels: IntMatrix = counts.argmax(axis=1).reshape(instance.num_rows, instance.num_columns)
    return labels


def _fewest(rooms: IntVector, needed: int) -> float:
    """Fewest entries, largest first, with `needed` in sum; inf when all are not enough."""
    reached = np.cumsum(rooms)
    return int(np.searchsorted(reached, needed)) + 1 if reached[-1] >= needed else math.inf


def _least_spread(answer: SearchAnswer) -> int:
    """Least spread that is proven when only the spread counts."""
    return 1 if answer.bound is None else math.ceil(answer.bound - _ROUNDING)
