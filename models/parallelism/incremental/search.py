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

from models.parallelism.incremental.candidates import Skeleton, expansions, merged
from models.parallelism.incremental.folding import as_candidates, foldings, relayouts
from models.parallelism.incremental.growth import growths
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.options import IncrementalOptions, Scaling
from models.parallelism.incremental.selection import Balanced, Best, improve
from models.parallelism.incremental.tables import CostTables
from stowplan.arrays import IntArray

# New plans of one prefix that others may come from.
_ALTERNATIVES = 3


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

    def run(self, base: Balanced, prefixes: Sequence[IntArray]) -> list[Balanced]:
        """Best plan for every prefix.

        Parameters
        ----------
        prefixes
            GPUs per node (V,) that a plan may use, those of the base included; each has those of the one before.
        """
        best = self._best()
        best.add(base)
        generations = [[base], self._take(best, self._relayouts(base.skeleton.held, uneven=False))]
        plans: list[Balanced] = []
        for available in prefixes:
            new = self._expand(best, self._predecessors(generations), available)
            if new:
                if new[0] is best.plans[0]:
                    folded = self._take(best, self._folded(new))
                    new = sorted([*new, *folded], key=lambda plan: plan.time_s)
                generations.append(new[:_ALTERNATIVES])
            plans.append(best.plans[0])
        return plans

    def refine(self, starts: Sequence[Skeleton], available: IntArray) -> Balanced | None:
        """Best plan that is found from some skeletons; None when none of them has a legal plan."""
        best = self._best()
        new = self._take(best, starts)
        while new:
            new = self._expand(best, self._skeletons(new), available, self._folded(new))
        return best.plans[0] if best.plans else None

    def relayout(self, available: IntArray) -> Balanced | None:
        """Best plan that is found from all of the GPUs laid out anew."""
        return self.refine(self._relayouts(available, uneven=True), available)

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

    def _folded(self, plans: Sequence[Balanced]) -> list[Skeleton]:
        """Foldings of the first of some plans."""
        if not self._all_degrees:
            return []
        skeletons = self._skeletons(plans[:_ALTERNATIVES])
        return [folding for skeleton in skeletons for folding in foldings(skeleton, self._tables.degrees)]

    def _expand(
        self, best: Best, skeletons: Sequence[Skeleton], available: IntArray, others: Sequence[Skeleton] = ()
    ) -> list[Balanced]:
        """Take expansions of some skeletons, and others as they are; those that are among the best."""
        degrees, most_stages = self._tables.degrees, self._most_stages
        anew = self._all_degrees
        whole = [skeleton for skeleton in others if skeleton.num_stages <= most_stages]
        for skeleton in skeletons:
            whole += growths(skeleton, available, degrees, most_stages if anew else skeleton.num_stages)
        candidates = expansions(skeletons, available, degrees, most_stages, anew=anew)
        if whole:
            candidates = merged(candidates, as_candidates(whole, degrees), len(skeletons))
        return improve(best, self._tables, self._landscape, candidates, [*skeletons, *whole])

    def _take(self, best: Best, skeletons: Sequence[Skeleton]) -> list[Balanced]:
        """Take skeletons as they are; those that are among the best."""
        possible = [skeleton for skeleton in skeletons if skeleton.num_stages <= self._most_stages]
        if not possible:
            return []
        candidates = as_candidates(possible, self._tables.degrees)
        return improve(best, self._tables, self._landscape, candidates, possible)
