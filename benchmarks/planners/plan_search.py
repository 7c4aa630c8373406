"""A wide search for the best 3D plan on given GPUs: what heuristics are held against where enumeration is out of reach.

Iterated local search on skeletons, all numbers of micro-batches, layers and local batches balanced. Starts: plans that
are given, and the best layout of all GPUs in stages of one tensor degree. Moves: a stage is grouped by another degree,
with or without the idle GPUs; two stages are joined; a stage is cut in halves, node by node or on every node; 1, 2, 4,
8 or all GPUs of a node go from a stage to another one or become one; neighbours change places. A descent takes the
best of up to 400 moves until none is better; then two to six random moves are made from the best plan (or, less often,
from a start), and it begins anew.
"""

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from models.parallelism.incremental.candidates import Skeleton
from models.parallelism.incremental.folding import Part, as_candidates, parts_of, relayouts, skeleton_of
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.selection import Balanced, Best, improve
from models.parallelism.incremental.tables import CostTables
from stowplan.arrays import IntArray

_MOVES = 400
_FROM_BEST = 0.6


class PlanSearch:
    """The search for one job on one landscape with `available` (V,) GPUs per node."""

    def __init__(self, tables: CostTables, landscape: Landscape, available: IntArray, seed: int) -> None:
        self._tables, self._landscape, self._available = tables, landscape, available
        self._degrees = tables.degrees
        self._most_stages = tables.model.profile.num_layers
        self._rng = random.Random(seed)  # noqa: S311 - reproducible, not secret

    def run(self, starts: Sequence[Skeleton], cpu_s: float) -> Balanced | None:
        """Best plan found in `cpu_s` seconds of CPU time; None when no start is legal."""
        laid_out = self.best_of(list(relayouts(self._available, self._degrees, self._most_stages, uneven=True)))
        begin = time.process_time()
        places = [*starts, *([laid_out.skeleton] if laid_out is not None else [])]
        found = [plan for plan in map(self._descend, places) if plan is not None]
        best = min(found, key=lambda plan: plan.time_s, default=None)
        while best is not None and time.process_time() - begin < cpu_s:
            place = best.skeleton if self._rng.random() < _FROM_BEST else self._rng.choice(places)
            for _ in range(self._rng.randint(2, 6)):
                place = self._rng.choice(list(self._moves(place)) or [place])
            descended = self._descend(place)
            if descended is not None and descended.time_s < best.time_s:
                best = descended
        return best

    def best_of(self, skeletons: Sequence[Skeleton], below_s: float = np.inf) -> Balanced | None:
        """The fastest of some skeletons that are faster than `below_s`."""
        best = Best(len(self._tables.micro_batch), 0.0)
        for start in range(0, len(skeletons), _MOVES):
            some = skeletons[start : start + _MOVES]
            improve(best, self._tables, self._landscape, as_candidates(some, self._degrees), some)
        return best.plans[0] if best.plans and best.plans[0].time_s < below_s else None

    def _descend(self, place: Skeleton) -> Balanced | None:
        here: Balanced | None = None
        while True:
            moves = list(self._moves(here.skeleton if here is not None else place))
            some = self._rng.sample(moves, _MOVES) if len(moves) > _MOVES else moves
            better = self.best_of([*([place] if here is None else []), *some], np.inf if here is None else here.time_s)
            if better is None:
                return here
            here = better

    def _moves(self, place: Skeleton) -> Iterator[Skeleton]:
        for parts in self._changes(parts_of(place), self._available - place.held):
            whole = [_whole_groups(part, self._degrees) for part in parts]
            some = [part for part in whole if part.gpus.any()]
            if 0 < len(some) <= self._most_stages:
                yield skeleton_of(some)

    def _changes(self, parts: list[Part], idle: IntArray) -> Iterator[list[Part]]:
        degrees = range(len(self._degrees))
        for s, part in enumerate(parts):
            before, after = parts[:s], parts[s + 1 :]
            for degree in degrees:
                yield [*before, replace(part, degree=degree), *after]
                yield [*before, replace(part, degree=degree, gpus=part.gpus + idle), *after]
                for half in (part.gpus // 2, _first_half(part.gpus)):
                    yield [
                        *before,
                        replace(part, gpus=half),
                        Part(gpus=part.gpus - half, degree=degree, origin=None),
                        *after,
                    ]
            for t, other in enumerate(parts):
                if s != t:
                    joined = replace(other, gpus=other.gpus + part.gpus)
                    for degree in (part.degree, other.degree):
                        rest = [*parts[:t], replace(joined, degree=degree), *parts[t + 1 :]]
                        yield rest[:s] + rest[s + 1 :]
            if after:
                yield [*before, after[0], part, *after[1:]]
            yield from self._moved_gpus(parts, s, idle)
        for degree in degrees:
            for position in range(len(parts) + 1):
                yield [*parts[:position], Part(gpus=idle, degree=degree, origin=None), *parts[position:]]

    def _moved_gpus(self, parts: list[Part], s: int, idle: IntArray) -> Iterator[list[Part]]:
        """GPUs of one node go from stage `s` to another one, or become a stage somewhere, idle ones with them."""
        for node in np.flatnonzero(parts[s].gpus).tolist():
            for count in sorted({1, 2, 4, 8, int(parts[s].gpus[node])}):
                if count <= parts[s].gpus[node]:
                    some = np.zeros_like(idle)
                    some[node] = count
                    left = [*parts[:s], replace(parts[s], gpus=parts[s].gpus - some), *parts[s + 1 :]]
                    for t, other in enumerate(parts):
                        if t != s:
                            yield [*left[:t], replace(other, gpus=other.gpus + some + idle), *left[t + 1 :]]
                    for degree in range(len(self._degrees)):
                        position = self._rng.randint(0, len(parts))
                        yield [*left[:position], Part(gpus=some + idle, degree=degree, origin=None), *left[position:]]


def _whole_groups(part: Part, degrees: IntArray) -> Part:
    tp = int(degrees[part.degree])
    return replace(part, gpus=part.gpus // tp * tp)


def _first_half(gpus: IntArray) -> IntArray:
    """Half of the GPUs, node by node."""
    through = np.cumsum(gpus)
    half: IntArray = np.clip(through[-1] // 2 - (through - gpus), 0, gpus)
    return half
