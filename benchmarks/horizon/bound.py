"""A lower bound on the sum of completion times of jobs under any policy that plans in rounds, clairvoyant ones too.

The rules are those of `sia-replays`: at every round each job gets one of the configurations, or none; a job that got
other GPUs, the first ones too, does nothing for its restart cost and keeps them until then; then it works. Less is
asked than by the rules in this alone: GPUs must be enough in every round for what jobs use on average, each over a
mixture of schedules; nodes are not looked at; no job begins with few GPUs.

For prices p of a GPU of each type in each round, at least 0, the sum is at least (Lagrange)

    sum_j min over schedules of j of (completion time + p of the GPUs used) - p of all GPUs

and jobs of an application differ by when they come alone, so that each is one dynamic program: from the last round to
the first, by work left and by what is held. Work left is rounded down to a grid, so that this is a bound whatever the
prices and the grid. Prices come from the same program on a coarse grid on which work is rounded at random, right on
average: its value is concave in the prices, and the GPUs used on average less those that there are is its gradient.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.horizon.ascent import Priced, good_prices_of
from stowplan.arrays import FloatArray, IntArray, Mask

_TINY = 1e-9
# The first prices, and how far these move in the first step.
_RATE = 0.05
_COARSE = 64
_NEVER_S = 1e12
# Steps of the fine grid by the square root of the seconds of work: long jobs lose as much for more of them.
_FINENESS = 400.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kind:
    """An application: seconds (E, C) of its epochs on each configuration, infinite where it cannot run; restart cost in
    seconds."""

    epoch_s: FloatArray
    restart_s: float

    @property
    def left_s(self) -> FloatArray:
        """Work (E+1,) at the end of the last epoch, of the last but one and so on to the beginning of the first, in
        seconds where the epoch is the shortest."""
        return np.append(0.0, np.cumsum(self.epoch_s.min(axis=1)[::-1]))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """Jobs on a cluster. type_of, gpus_of (C,): of configurations; num_gpus (T,): of each type; kind_of, submit_s (J,):
    of jobs."""

    kinds: Sequence[Kind]
    type_of: IntArray
    gpus_of: IntArray
    num_gpus: IntArray
    kind_of: IntArray
    submit_s: FloatArray
    round_s: float

    @property
    def rounds(self) -> IntArray:
        """In which jobs can start first (J,)."""
        return np.ceil(self.submit_s / self.round_s - _TINY).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Use:
    """What the cheapest schedules take. gpus (R, T): of each type in each round; by kind, summed over jobs: seconds
    without GPUs and starts (K,), and seconds on configurations (K, C)."""

    gpus: FloatArray
    waited_s: FloatArray
    starts: FloatArray
    held_s: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """What some seconds on a configuration make of work left on the grid (K, Q+1, C). spent_s: of them until the end;
    below: place on the grid, in an array of that shape, that is reached, or the next below it; share: of the one above,
    none where work is rounded down. Where nothing is left nothing comes."""

    spent_s: FloatArray
    below: IntArray
    share: FloatArray | None

    def cost_s(self, later_s: FloatArray) -> FloatArray:
        """Until the end, with what comes behind the step (K, Q+1, C)."""
        found = later_s.ravel().take(self.below)
        if self.share is not None:
            found += self.share * (later_s.ravel().take(self.below + later_s.shape[2]) - found)
        found += self.spent_s
        return found

    def moved(self, jobs: FloatArray) -> FloatArray:
        """Where jobs (K, Q+1, C) are behind the step that have not ended."""
        if self.share is None:
            raise AssertionError("rounding down loses work")
        above, below = (jobs * self.share).ravel(), self.below.ravel()
        found = np.bincount(below, jobs.ravel() - above, jobs.size)
        found += np.bincount(below + jobs.shape[2], above, jobs.size)
        found = found.reshape(jobs.shape)
        found[:, 0] = 0.0
        return np.asarray(found)


class Program:
    """Cheapest schedules of the jobs of some kinds, work in `size` steps for each; rounded at random if `is_mixed`,
    else down."""

    def __init__(self, problem: Problem, kinds: Sequence[int], size: int, *, is_mixed: bool) -> None:
        self._problem, self._size = problem, size
        self._kinds = [problem.kinds[k] for k in kinds]
        self._grid_s = np.stack([np.linspace(0.0, kind.left_s[-1], size + 1) for kind in self._kinds])
        restart_s = np.array([kind.restart_s for kind in self._kinds])
        round_s = problem.round_s
        self._num_rounds = np.maximum(1, np.ceil(restart_s / round_s - _TINY).astype(np.int64))
        self._most_rounds = int(self._num_rounds.max())
        self._stay = self._step(np.full(len(kinds), round_s), np.zeros(len(kinds)), is_mixed)
        self._start = self._step(self._num_rounds * round_s - restart_s, restart_s, is_mixed)
        # Which kinds come, by round.
        self._coming: dict[int, list[int]] = {}
        self._before_s = 0.0
        for kind, first, submit_s in zip(problem.kind_of, problem.rounds, problem.submit_s, strict=True):
            if kind in kinds:
                self._coming.setdefault(int(first), []).append(kinds.index(kind))
                self._before_s += first * round_s - submit_s

    def _step(self, work_s: FloatArray, restart_s: FloatArray, is_mixed: bool) -> _Step:
        """So many seconds of work (K,) behind a restart."""
        shape = (*self._grid_s.shape, len(self._problem.type_of))
        left_s, spent_s = np.empty(shape), np.empty(shape)
        for k, kind in enumerate(self._kinds):
            for c in range(shape[2]):
                if np.isinf(kind.epoch_s[:, c]).any():
                    left_s[k, :, c], spent_s[k, :, c] = self._grid_s[k], _NEVER_S
                    continue
                own_s = np.append(0.0, np.cumsum(kind.epoch_s[::-1, c]))
                needed_s = np.interp(self._grid_s[k], kind.left_s, own_s)
                spent_s[k, :, c] = np.minimum(needed_s, work_s[k])
                left_s[k, :, c] = np.interp(np.maximum(0.0, needed_s - work_s[k]), own_s, kind.left_s)
        at = np.maximum(0.0, left_s / self._grid_s[:, 1, None, None] - _TINY)
        below = np.minimum(at.astype(np.int64), self._size - 1)
        of_kind, _, of_configuration = np.ogrid[: shape[0], : shape[1], : shape[2]]
        return _Step(
            spent_s=spent_s + restart_s[:, None, None],
            below=(of_kind * shape[1] + below) * shape[2] + of_configuration,
            share=np.minimum(1.0, at - below) if is_mixed else None,
        )

    def cost_s(self, prices: FloatArray) -> float:
        """Completion times and prices (R, T) of all jobs, summed."""
        return self._solve(prices, None)

    def use(self, prices: FloatArray) -> tuple[float, Use]:
        """The same, with what is used; of a program that mixes."""
        choices: deque[tuple[IntArray, Mask, Mask]] = deque()
        return self._solve(prices, choices), self._use(choices)

    def _solve(self, prices: FloatArray, choices: deque[tuple[IntArray, Mask, Mask]] | None) -> float:
        """Choices by round: the configuration of a start, whether to wait, whether to stay."""
        problem, num_rounds = self._problem, len(prices)
        round_s = problem.round_s
        price_s = round_s * prices[:, problem.type_of] * problem.gpus_of
        # Behind the last round GPUs cost nothing, and a job takes as long as where each epoch is the shortest.
        summed_s = np.append(np.zeros_like(price_s[:1]), np.cumsum(price_s, axis=0), axis=0)
        idle_s = self._grid_s
        holding_s = np.repeat(idle_s[:, :, None], len(problem.type_of), axis=2)
        later_s = deque([holding_s] * self._most_rounds, maxlen=self._most_rounds)
        costs_s = [idle_s[k, -1] for at, kinds in self._coming.items() if at >= num_rounds for k in kinds]
        for now in range(num_rounds - 1, -1, -1):
            stay_s = self._stay.cost_s(later_s[0])
            stay_s += price_s[now]
            start_s = self._start.cost_s(np.stack([later_s[n - 1][k] for k, n in enumerate(self._num_rounds)]))
            start_s += (summed_s[np.minimum(now + self._num_rounds, num_rounds)] - summed_s[now])[:, None, :]
            best_s = start_s.min(axis=2)
            wait_s = idle_s + round_s
            wait_s[:, 0] = 0.0
            idle_s = np.minimum(wait_s, best_s)
            if choices is not None:
                choices.appendleft((start_s.argmin(axis=2), wait_s <= best_s, stay_s <= idle_s[:, :, None]))
            later_s.appendleft(np.minimum(stay_s, idle_s[:, :, None], out=stay_s))
            costs_s += [idle_s[k, -1] for k in self._coming.get(now, ())]
        return float(np.sum(costs_s) + self._before_s)

    def _use(self, choices: Sequence[tuple[IntArray, Mask, Mask]]) -> Use:
        """What is used on average when all choose so."""
        problem, shape = self._problem, (*self._grid_s.shape, len(self._problem.type_of))
        used = np.zeros((len(choices) + self._most_rounds, shape[2]))
        idle, waited_s, starts = np.zeros(shape[:2]), np.zeros(shape[0]), np.zeros(shape[0])
        held_s = np.zeros((shape[0], shape[2]))
        coming = deque(np.zeros(shape) for _ in range(self._most_rounds + 1))
        for now, (best, waits, stays) in enumerate(choices):
            here = coming.popleft()
            coming.append(np.zeros(shape))
            for k in self._coming.get(now, ()):
                idle[k, -1] += 1.0
            staying = np.where(stays, here, 0.0)
            idle += (here - staying).sum(axis=2)
            starting = np.where(waits, 0.0, idle)
            idle -= starting
            waited_s += idle.sum(axis=1) * problem.round_s
            starts += starting.sum(axis=1)
            started = np.zeros(shape)
            np.put_along_axis(started, best[:, :, None], starting[:, :, None], axis=2)
            held_s += (staying * self._stay.spent_s + started * self._start.spent_s).sum(axis=1)
            used[now] += staying.sum(axis=(0, 1))
            coming[0] += self._stay.moved(staying)
            moved = self._start.moved(started)
            for k, n in enumerate(self._num_rounds):
                used[now : now + n] += started[k].sum(axis=0)
                coming[n - 1][k] += moved[k]
        of_type = np.eye(len(problem.num_gpus))[problem.type_of] * problem.gpus_of[:, None]
        return Use(gpus=used[: len(choices)] @ of_type, waited_s=waited_s, starts=starts, held_s=held_s)


def good_prices(problem: Problem, num_steps: int) -> FloatArray:
    """Prices (R, T) near those of the highest bound."""
    program = _coarse(problem)
    # Behind the last round here all could be over, or it is a bound yet.
    longest_s = max(kind.left_s[-1] for kind in problem.kinds)
    num_rounds = int(problem.rounds.max() + 2.0 * longest_s / problem.round_s) + 1

    def priced(prices: FloatArray) -> Priced:
        cost_s, use = program.use(prices)
        return Priced(value=cost_s - paid_s(problem, prices), use=use.gpus)

    first = np.full((num_rounds, len(problem.num_gpus)), _RATE)
    return good_prices_of(priced, first, problem.num_gpus, num_steps, _RATE)


def use_at(problem: Problem, prices: FloatArray) -> Use:
    """What is used at prices (R, T)."""
    return _coarse(problem).use(prices)[1]


def _coarse(problem: Problem) -> Program:
    return Program(problem, range(len(problem.kinds)), _COARSE, is_mixed=True)


def paid_s(problem: Problem, prices: FloatArray) -> float:
    """Of all GPUs at all times."""
    return problem.round_s * float((prices @ problem.num_gpus).sum())


def lower_bound_s(problem: Problem, prices: FloatArray, fineness: float = _FINENESS) -> float:
    """On the sum of completion times, at any prices."""
    costs_s = (
        Program(problem, [k], int(fineness * np.sqrt(kind.left_s[-1])) + 1, is_mixed=False).cost_s(prices)
        for k, kind in enumerate(problem.kinds)
    )
    return float(sum(costs_s)) - paid_s(problem, prices)
