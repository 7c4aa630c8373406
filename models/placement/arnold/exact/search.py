"""The optimum of Eqs. 4-10 with a certificate, without a MIP that knows groups one by one.

minimise a Y + b T over the minipods used Y and the largest spread of a group T (`formulation`).

- A minipod used may be replaced by a larger one, so that for every Y the Y largest are used.
- Y(T), the fewest minipods that hold all groups with spread T, does not grow with T. So the optimum is the least
  a Y(T) + b T, and no T can be better than a Y' + b T, where Y' minipods have enough nodes.
- A packing with spread T is a partition into components with (*) of `packing`. Therefore
    Y(1)    fewest minipods with sum floor(f_j / g) >= G;
    Y(T)    = Y' as soon as Y' <= (T - 1) G + 1, which nearly always holds for T = 2;
    else    Y(T) is at least Y' and at least the fewest with sum floor(f_j / ceil(g / T)) >= G (each group has a piece
            of ceil(g / T) nodes), there is none when the T G largest have less than G g nodes, and `partition` often
            reaches that bound. Where it does not and T could still be best, `two_each` decides for T = 2 and
            `component_model` for more.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.placement.arnold.budget import Budget
from models.placement.arnold.constructive import in_sequence, preference, whole_groups_first
from models.placement.arnold.exact.packing import pack
from models.placement.arnold.exact.partition import partition
from models.placement.arnold.exact.two_each import FewestMinipods
from models.placement.arnold.instance import ArnoldInstance
from models.placement.arnold.labels import max_spread, num_used
from models.placement.arnold.search_answer import Report, SearchAnswer
from solver.result import TerminationReason
from stowplan.arrays import IntMatrix, IntVector

# Larger models take longer to declare than anybody wants to wait for.
_MAX_ARCS = 40_000
_TOLERANCE = 1e-9
_TWO = 2
# A bound on a count of minipods may miss an integer by rounding.
_ROUNDING = 1e-6


@dataclass(slots=True, kw_only=True, eq=False)
class _Level:
    """What is known about one spread T: Y(T) >= `lower` (inf: no packing), `upper` reached by `components`.

    `given_up`: the model could not decide it.
    """

    spread: int
    lower: float
    argument: str
    upper: int | None = None
    components: Sequence[IntVector] = ()
    given_up: bool = False

    @property
    def closed(self) -> bool:
        return self.lower == (math.inf if self.upper is None else self.upper)

    def describe(self) -> str:
        if self.lower == math.inf:
            return f"T = {self.spread}: impossible ({self.argument})"
        reached = "reached" if self.closed else "not reached" if self.upper is None else f"{self.upper} reached"
        return f"T = {self.spread}: at least {self.lower:g} minipods ({self.argument}), {reached}"


def solve_exactly(instance: ArnoldInstance, budget: Budget, report: Report) -> SearchAnswer:
    """Find the optimum; `report` gets every better solution with the bound known then."""
    if not instance.has_room:
        text = f"{int(instance.free_nodes.sum())} of {instance.num_nodes} nodes are free"
        return SearchAnswer(solution=None, objective=None, bound=None, certificate=text, proven=True)
    search = _Search(instance)
    search.construct()
    labels = search.labels()
    report(labels, search.bound())
    while (level := search.most_promising()) is not None and budget.ended_by is None:
        search.settle(level, budget)
        if search.best_value() < instance.objective(labels) - _TOLERANCE:
            labels = search.labels()
            report(labels, search.bound())
    objective = instance.objective(labels)
    bound = min(search.bound(), objective)
    proven = bound >= objective - _TOLERANCE
    return SearchAnswer(
        solution=labels,
        objective=objective,
        bound=objective if proven else bound,
        certificate=search.certificate(),
        proven=proven,
    )


class _Search:
    """Levels T = 1, 2, ... of one instance; positions are those of the minipods, largest first."""

    def __init__(self, instance: ArnoldInstance) -> None:
        self.instance = instance
        order = np.argsort(-instance.free_nodes, kind="stable")
        self.order: IntVector = order[instance.free_nodes[order] > 0]
        self.free: IntVector = instance.free_nodes[self.order]
        self.held = np.cumsum(self.free)
        self.fewest = int(np.searchsorted(self.held, instance.num_nodes)) + 1
        self.levels: list[_Level] = []

    def value(self, level: _Level, num_minipods: float) -> float:
        """Eq. 4; with weight 0 the minipods do not count, but a level without any packing is none."""
        if num_minipods == math.inf:
            return math.inf
        return self.instance.minipod_weight * num_minipods + self.instance.spread_weight * level.spread

    def _spreads(self) -> range:
        """Spreads that are possible, up to the one at which the fewest minipods that have enough nodes suffice."""
        first = int(np.searchsorted(self.held, self.instance.group_size)) + 1
        return range(first, 1 + max(first, 1 + math.ceil((self.fewest - 1) / self.instance.num_groups)))

    def construct(self) -> None:
        """Bound and fill every level that can be best."""
        for spread in self._spreads():
            level = self._bounded(spread)
            if self.levels and self.value(level, self.fewest) > self.best_value() + _TOLERANCE:
                return
            self.levels.append(level)
            if level.lower < math.inf:
                self._reached(level, int(level.lower))

    def _bounded(self, spread: int) -> _Level:
        size, groups, held = self.instance.group_size, self.instance.num_groups, self.held
        piece = -(-size // spread)
        by_pieces = int(np.searchsorted(np.cumsum(self.free // piece), groups)) + 1
        level = _Level(spread=spread, lower=self.fewest, argument=f"{self.fewest} have {groups * size} nodes")
        if held[min(self.free.size, spread * groups) - 1] < groups * size:
            level.lower, level.argument = math.inf, f"{spread * groups} minipods have too few nodes"
        elif by_pieces > self.free.size:
            level.lower, level.argument = math.inf, f"fewer than {groups} pieces of {piece} nodes fit"
        elif by_pieces > self.fewest:
            level.lower, level.argument = by_pieces, f"{groups} pieces of {piece} nodes need them"
        return level

    def _reached(self, level: _Level, num_minipods: int) -> bool:
        size, groups = self.instance.group_size, self.instance.num_groups
        found = partition(self.free[:num_minipods], size, groups, level.spread)
        if found is not None:
            level.upper, level.components = num_minipods, found
        return found is not None

    def settle(self, level: _Level, budget: Budget) -> None:
        """Decide the level by `two_each` or `component_model`, or come as near as `partition` can and give it up."""
        if level.spread == _TWO:
            self._settle_two(level, budget)
            return
        # Pyomo takes seconds to load, and few instances come here.
        from models.placement.arnold.exact.component_model import component_arcs, component_model, read_components

        level.given_up = True
        size, groups = self.instance.group_size, self.instance.num_groups
        free = self.free[: self._most_minipods(level)]
        arcs = component_arcs(free, size, level.spread, _MAX_ARCS)
        solved = None if arcs is None else budget.solve(component_model(free, groups, level.spread, arcs))
        if arcs is None or solved is None:
            self._bisect(level, int(level.lower), free.size)
            return
        _, result = solved
        if result.incumbent is not None:
            flow = np.rint(result.incumbent[: len(arcs)]).astype(np.int64)
            level.components = read_components(free, arcs, flow)
            level.upper = sum(component.size for component in level.components)
        lower = level.lower if result.bound is None else math.ceil(result.bound - _ROUNDING)
        if result.termination is TerminationReason.INFEASIBLE:
            lower = math.inf if free.size == self.free.size else free.size + 1
        if lower > level.lower:
            level.lower, level.argument = lower, "component model"

    def _settle_two(self, level: _Level, budget: Budget) -> None:
        free = self.free[: self._most_minipods(level)]
        fewest = FewestMinipods(free, self.instance.group_size, self.instance.num_groups, int(level.lower), budget)
        fewest.find()
        level.given_up = True
        if fewest.upper is not None:
            level.upper, level.components = fewest.upper, fewest.components
        if fewest.argument is not None:
            level.lower, level.argument = fewest.lower, fewest.argument
        if level.lower > self.free.size:
            level.lower = math.inf

    def _bisect(self, level: _Level, low: int, high: int) -> None:
        """Fewest minipods that `partition` manages with; `low` are known not to do."""
        if low < high and self._reached(level, high):
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if self._reached(level, middle) else (middle, high)

    def _most_minipods(self, level: _Level) -> int:
        """Minipods with which the level would still be better than what is known."""
        most = self.free.size if level.upper is None else level.upper - 1
        while most > 1 and self.value(level, most) >= self.best_value() - _TOLERANCE:
            most -= 1
        return most

    def most_promising(self) -> _Level | None:
        """Open level of the least lower bound that is better than what is known."""
        best = self.best_value() - _TOLERANCE
        openings = [level for level in self.levels if not level.given_up and self.value(level, level.lower) < best]
        return min(openings, key=lambda level: self.value(level, level.lower), default=None)

    def best_level(self) -> _Level:
        """Best level known; among equals the one with least Y + T."""
        filled = [(level, level.upper) for level in self.levels if level.upper is not None]
        return min(filled, key=lambda known: (round(self.value(*known), 9), known[1] + known[0].spread))[0]

    def best_value(self) -> float:
        """Eq. 4 of what is known, inf when nothing is."""
        values = [self.value(level, level.upper) for level in self.levels if level.upper is not None]
        return min(values, default=math.inf)

    def bound(self) -> float:
        """Proven lower bound: levels that were not looked at are worse than what is known."""
        return min(self.best_value(), *(self.value(level, level.lower) for level in self.levels))

    def labels(self) -> IntMatrix:
        """Minipods of the groups (G, g) at the best level; among equals what `preference` likes best."""
        instance, level = self.instance, self.best_level()
        packed = pack(self.free, instance.group_size, instance.num_groups, level.spread, level.components)
        labels: IntMatrix = self.order[packed]
        used = self.order[: num_used(labels)]
        others = (in_sequence(instance, used), whole_groups_first(instance, used))
        fitting = (other for other in others if max_spread(other) <= level.spread)
        return min([labels, *fitting], key=lambda candidate: preference(instance, candidate))

    def certificate(self) -> str:
        """Say what proves the bound."""
        first, last = self.levels[0].spread, self.levels[-1].spread
        parts = [level.describe() for level in self.levels]
        if first > 1:
            parts.insert(0, f"T < {first}: impossible (one group does not fit)")
        return "; ".join([*parts, f"T > {last}: not better, as {self.fewest} minipods are needed at any T"])
