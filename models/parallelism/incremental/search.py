"""Algorithm 1 of Suika (section 3.2.2) on skeletons: the best plan for every prefix of the affinity order.

    P_i = best of P_{i-1} and of all expansions of P_0, ..., P_{i-1} by the GPUs up to unit i that they do not use

with layers and local batches balanced in every expansion. What differs from the print:

- P_{i-1}, with the new GPUs idle, is a candidate, so that throughput never falls. R is everything that a predecessor
  leaves idle, and the window W counts the prefixes that brought something new: idle GPUs are never lost.
- The plan that runs is always in the window: doubling a stage takes as many GPUs as it has.
- For every number of micro-batches N_b the best plan is kept beside P_i while it is within a tolerance: deep pipelines
  of small micro-batches and wide ones of large micro-batches grow side by side, and the lead changes with the number of
  GPUs. The first of these are the symmetric plans on the GPUs of P_0.
- Where P_i is new, it and the other new plans are also folded otherwise.

Where only data degrees may change, a stage is expanded by replicas of its own, and nothing is folded or laid out anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.parallelism.incremental.candidates import Skeleton, expansions, merged
from models.parallelism.incremental.compiled import CompiledSearch
from models.parallelism.incremental.folding import as_candidates, foldings, relayouts
from models.parallelism.incremental.growth import growths
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.options import IncrementalOptions, Scaling
from models.parallelism.incremental.selection import Balanced, Best, improve
from models.parallelism.incremental.tables import CostTables
from stowplan.arrays import IntArray

# New plans of one prefix that others may come from.
_ALTERNATIVES = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Growth:
    """How far Algorithm 1 has come; none of it changes any more.

    best: the best plans so far. generations: new plans of the prefixes that brought some, those of the base plan first,
    then those of the window. taken: the plan of the last prefix, at first that which runs.
    """

    best: Best
    generations: tuple[tuple[Balanced, ...], ...]
    taken: Balanced

    def on(self, num_nodes: int) -> "Growth":
        """The same where more or fewer nodes are in question, none of which has been used yet."""
        if self.taken.skeleton.gpus.shape[1] == num_nodes:
            return self
        skeletons: dict[int, Skeleton] = {}
        plans: dict[int, Balanced] = {}

        def of(plan: Balanced) -> Balanced:
            # What is one object stays one.
            if id(plan) not in plans:
                known = plan.skeleton
                if id(known) not in skeletons:
                    skeletons[id(known)] = _on(known, num_nodes)
                plans[id(plan)] = replace(plan, skeleton=skeletons[id(known)])
            return plans[id(plan)]

        return Growth(
            best=self.best.copy(of),
            generations=tuple(tuple(map(of, generation)) for generation in self.generations),
            taken=of(self.taken),
        )


def _on(skeleton: Skeleton, num_nodes: int) -> Skeleton:
    gpus = np.zeros((skeleton.num_stages, num_nodes), dtype=np.int64)
    both = min(num_nodes, skeleton.gpus.shape[1])
    gpus[:, :both] = skeleton.gpus[:, :both]
    return replace(skeleton, gpus=gpus)


class Search:
    """Algorithm 1 for one job on one landscape."""

    def __init__(self, tables: CostTables, landscape: Landscape, options: IncrementalOptions) -> None:
        self._tables = tables
        self._landscape = landscape
        self._window = options.window
        self._tolerance = options.tolerance
        self._all_degrees = options.scaling is Scaling.THREE_D
        profile = tables.model.profile
        self._most_stages = profile.num_layers if profile.has_pipelines else 1
        self._compiled = CompiledSearch.of(tables, landscape)

    def start(self, base: Balanced) -> Growth:
        """Before any GPU is added: the plan that runs, and what its own GPUs give laid out anew."""
        best = self._best()
        best.add(base)
        relaid = self._take(best, self._relayouts(base.skeleton.held, uneven=False))
        return Growth(best=best, generations=((base,), tuple(relaid)), taken=base)

    def step(self, growth: Growth, available: IntArray) -> Growth:
        """After one more prefix.

        Parameters
        ----------
        available
            GPUs per node (V,) that a plan may use, those of the base included, and those of the prefix before.
        """
        best, generations = growth.best.copy(), growth.generations
        new = self._expand(best, self._predecessors(generations), available)
        if new:
            if new[0] is best.plans[0]:
                folded = self._fold(best, self._first(new))
                new = sorted([*new, *folded], key=lambda plan: plan.time_s)
            generations = (*generations, tuple(new[:_ALTERNATIVES]))
            if self._window is not None and len(generations) > 1 + self._window:
                generations = (generations[0], *generations[-self._window :])
        return Growth(best=best, generations=generations, taken=best.plans[0])

    def refine(self, starts: Sequence[Skeleton], available: IntArray) -> Balanced | None:
        """Best plan that is found from some skeletons; None when none of them has a legal plan."""
        best = self._best()
        new = self._take(best, starts)
        while new:
            new = self._expand(best, self._skeletons(new), available, self._first(new))
        return best.plans[0] if best.plans else None

    def relayout(self, available: IntArray) -> Balanced | None:
        """Best plan that is found from all of the GPUs laid out anew."""
        return self.refine(self._relayouts(available, uneven=True), available)

    def exact_s(self, plan: Balanced) -> float | None:
        """Iteration time with what replicas send to one another; None where the performance model is to be asked."""
        return None if self._compiled is None else self._compiled.time_s(plan)

    def _best(self) -> Best:
        return Best(len(self._tables.micro_batch), self._tolerance)

    def _predecessors(self, generations: Sequence[Sequence[Balanced]]) -> list[Skeleton]:
        """Different skeletons of the base plan and of the last W generations."""
        last = generations if self._window is None else generations[-self._window :]
        return self._skeletons([*generations[0], *(plan for generation in last for plan in generation)])

    def _skeletons(self, plans: Sequence[Balanced]) -> list[Skeleton]:
        """Different skeletons of some plans."""
        return list({id(plan.skeleton): plan.skeleton for plan in plans}.values())

    def _relayouts(self, available: IntArray, *, uneven: bool) -> list[Skeleton]:
        """Plans that are laid out anew."""
        if not self._all_degrees:
            return []
        return list(relayouts(available, self._tables.degrees, self._most_stages, uneven=uneven))

    def _first(self, plans: Sequence[Balanced]) -> list[Skeleton]:
        """Those of some plans that are folded."""
        return self._skeletons(plans[:_ALTERNATIVES]) if self._all_degrees else []

    def _expand(
        self, best: Best, skeletons: Sequence[Skeleton], available: IntArray, folded: Sequence[Skeleton] = ()
    ) -> list[Balanced]:
        """Take expansions of some skeletons, and foldings of some; those that are among the best."""
        degrees, most_stages = self._tables.degrees, self._most_stages
        anew = self._all_degrees
        if self._compiled is not None:
            return self._compiled.improve(best, skeletons, folded, [], available, most_stages, anew=anew)
        whole = self._foldings(folded)
        for skeleton in skeletons:
            whole += growths(skeleton, available, degrees, most_stages if anew else skeleton.num_stages)
        candidates = expansions(skeletons, available, degrees, most_stages, anew=anew)
        if whole:
            candidates = merged(candidates, as_candidates(whole, degrees), len(skeletons))
        return improve(best, self._tables, self._landscape, candidates, [*skeletons, *whole])

    def _fold(self, best: Best, skeletons: Sequence[Skeleton]) -> list[Balanced]:
        """Take foldings of some skeletons; those that are among the best."""
        if not skeletons:
            return []
        if self._compiled is not None:
            nothing = np.zeros_like(skeletons[0].held)
            return self._compiled.improve(best, [], skeletons, [], nothing, self._most_stages, anew=True)
        return self._take(best, self._foldings(skeletons))

    def _foldings(self, skeletons: Sequence[Skeleton]) -> list[Skeleton]:
        """Other ways to fold some skeletons."""
        found = (folding for skeleton in skeletons for folding in foldings(skeleton, self._tables.degrees))
        return [folding for folding in found if folding.num_stages <= self._most_stages]

    def _take(self, best: Best, skeletons: Sequence[Skeleton]) -> list[Balanced]:
        """Take skeletons as they are; those that are among the best."""
        possible = [skeleton for skeleton in skeletons if skeleton.num_stages <= self._most_stages]
        if not possible:
            return []
        if self._compiled is not None:
            nothing = np.zeros_like(possible[0].held)
            return self._compiled.improve(best, [], [], possible, nothing, self._most_stages, anew=True)
        candidates = as_candidates(possible, self._tables.degrees)
        return improve(best, self._tables, self._landscape, candidates, possible)
