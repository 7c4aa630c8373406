"""Prices on nodes that several jobs want at one time: a bound on all of them together (Lagrangian relaxation).

With prices pi_tc >= 0 on the nodes of class c at instants t, who wants them pays instead of being kept out:

  L(pi) = sum_p min_o v_po(pi) - sum_tc n_c pi_tc

is a lower bound for every pi, where v_po(pi) is what option o of job p costs alone when each of its nodes costs pi_tc
more for every t at which it lasts, and each node that a job moved for it gets for every t from its start on. For
options that are given, the best prices are sought by subgradients: nodes that are wanted too often become dearer, in
steps by Polyak's rule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.placement.ahead.instance import AheadInstance, Option
from models.placement.ahead.moves import loosened, wanted_targets
from models.placement.ahead.single import SingleAnswer, place_at_best
from stowplan.arrays import FloatMatrix, FloatVector

_NUM_STEPS = 60
# Steps without a better bound after which they become half as long.
_PATIENCE = 4
_SHORTEST = 0.02


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prices:
    """`values` (T, C) of a node of each class at each of the `instants` (T,)."""

    instants: FloatVector
    values: FloatMatrix

    def rebate(self, instance: AheadInstance) -> float:
        """What the prices of all nodes add up to."""
        return float(self.values.sum(axis=0) @ instance.class_size)

    def added(self, instance: AheadInstance) -> AheadInstance:
        """The instance with the prices as costs of nodes."""
        return replace(
            instance,
            jobs=tuple(
                replace(
                    job,
                    options=tuple(self._priced(option) for option in job.options),
                )
                for job in instance.jobs
            ),
        )

    def _priced(self, option: Option) -> Option:
        own, moves = self._over(option.start_s, option.end_s), option.moves
        if moves is not None:
            targets = moves.target_cost + self._over(option.start_s, np.inf)
            moves = replace(moves, cleared_cost=moves.cleared_cost + own, target_cost=targets)
        return replace(option, node_cost=option.node_cost + own, moves=moves)

    def _over(self, start_s: float, end_s: float) -> FloatVector:
        return np.asarray(self.values[(start_s <= self.instants) & (self.instants < end_s)].sum(axis=0))


def best_prices(
    instance: AheadInstance,
    options: Sequence[int],
    cost: float,
    is_over: Callable[[], bool],
    on_prices: Callable[[AheadInstance], float],
) -> Prices:
    """Seek the prices with the best bound for jobs that run by `options`, of which a plan costs `cost`.

    `on_prices` gets the instance with the prices from time to time, and returns what the best plan costs by then.
    """
    fixed = replace(
        instance,
        jobs=tuple(replace(job, options=(job.options[o],)) for job, o in zip(instance.jobs, options, strict=True)),
    )
    instants = _instants(fixed, instance.change_points[-1])
    prices = Prices(instants=instants, values=np.zeros((instants.size, instance.class_size.size)))
    best, best_bound, length, idle = prices, -np.inf, 1.0, 0
    for step in range(_NUM_STEPS):
        if is_over() or length < _SHORTEST:
            break
        priced = prices.added(fixed)
        answers = [place_at_best(priced, job, 0, priced.class_size) for job in loosened(priced).jobs]
        bound = sum(answer.bound for answer in answers) - prices.rebate(instance)
        if bound > best_bound:
            best, best_bound, idle = prices, bound, 0
        else:
            idle += 1
        if idle >= _PATIENCE:
            length, idle, prices = length / 2, 0, best
            continue
        if step % 10 == 5:
            cost = on_prices(best.added(instance))
        excess = _wanted(priced, instants, answers) - instance.class_size
        # A price of nothing falls no further.
        excess = np.where((excess < 0) & (prices.values == 0.0), 0.0, excess)
        norm = float((excess**2).sum())
        if norm == 0.0 or not np.isfinite(bound):
            break
        values = np.maximum(0.0, prices.values + length * max(cost - bound, 1e-3 * abs(cost)) / norm * excess)
        prices = replace(prices, values=values)
    return best


def _instants(fixed: AheadInstance, last_start_s: float) -> FloatVector:
    """The last moments at which the options of jobs meet: who starts a little later does not escape their prices."""
    ends = [min(job.options[0].end_s, np.nextafter(last_start_s, np.inf)) for job in fixed.jobs]
    return np.unique(np.nextafter(ends, -np.inf))


def _wanted(instance: AheadInstance, instants: FloatVector, answers: Sequence[SingleAnswer]) -> FloatMatrix:
    """Nodes of each class that the jobs, and those moved for them, want at each instant, (T, C)."""
    wanted = np.zeros((instants.size, instance.class_size.size))
    for job, answer in zip(instance.jobs, answers, strict=True):
        if answer.placing is not None:
            option = job.options[0]
            wanted[(option.start_s <= instants) & (instants < option.end_s)] += answer.placing.nodes
            wanted[option.start_s <= instants] += wanted_targets(instance, option, answer.placing.nodes)
    return wanted
