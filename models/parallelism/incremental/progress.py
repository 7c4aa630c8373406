"""What Algorithm 1 found piece by piece, for the next time that a job is asked.

A job is asked again whenever GPUs that it may get come or go. What it finds on the pieces before the first that differs
is what it found before, whatever comes behind them; so the search goes on from there. Kept by what the tables of the
job are made from, the plan, the options, and the places of nodes under their names: callers who ask about many places
use neutral names (`models.allocation.suika.situation`).
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field

from models.parallel_plan import ParallelPlan
from models.parallelism.incremental.candidates import Skeleton
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.incremental.search import Growth
from models.parallelism.incremental.tables import CostTables
from models.parallelism.results import Step
from models.performance.iteration.fabric import Fabric
from stowplan.recent import Recent

# Numbers of 8 bytes that the searches of all jobs hold at most, 64 MiB, and one of them.
_MOST_NUMBERS = 2**23
_MOST_OF_ONE = 2**22
# What a GPU counts of a plan, and what everything else of a step does beside the arrays.
_PER_GPU = 40
_PER_STEP = 200
# Searches of the smallest jobs.
_MOST_SEARCHES = 2**14


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reached:
    """Where a search is after a piece.

    steps: all so far. built, time_s: the plan of the last of them and its iteration time in seconds. after: where the
    search was one piece later, by the piece and its place.
    """

    growth: Growth
    steps: tuple[Step, ...]
    built: ParallelPlan
    time_s: float
    after: dict[Hashable, "Reached"] = field(default_factory=dict)


class Searches:
    """Searches by their starts. That which was not asked for the longest goes first; one that is too large itself keeps
    what it has."""

    def __init__(self, most_numbers: int = _MOST_NUMBERS, most_of_one: int = _MOST_OF_ONE) -> None:
        self._starts: Recent[Reached] = Recent(most=most_numbers, most_of_one=most_of_one, most_entries=_MOST_SEARCHES)

    @property
    def num_numbers(self) -> int:
        """Numbers of 8 bytes that are held."""
        return self._starts.weight

    def start(self, key: Hashable) -> Reached | None:
        """The start of a search, if it is known."""
        return self._starts.get(key)

    def keep_start(self, key: Hashable, start: Reached) -> None:
        """Keep the start of a search."""
        self._starts.put(key, start, _numbers(start))

    def keep(self, key: Hashable, start: Reached, before: Reached, added: Hashable, after: Reached) -> bool:
        """Keep where a search was one piece later; whether it is kept. What comes behind something that is not, is not
        to be kept either."""
        is_kept = self._starts.grow(key, start, _numbers(after, before))
        if is_kept:
            before.after[added] = after
        return is_kept

    def clear(self) -> None:
        """Keep nothing."""
        self._starts.clear()


def _numbers(reached: Reached, before: Reached | None = None) -> int:
    """What something holds that what was before it does not."""
    known = set() if before is None else set(map(id, _skeletons(before.growth)))
    new = {id(skeleton): skeleton.gpus.size for skeleton in _skeletons(reached.growth) if id(skeleton) not in known}
    of_plan = 0 if before is not None and reached.built is before.built else _PER_GPU * reached.built.num_gpus
    return sum(new.values()) + of_plan + len(reached.steps) + len(reached.growth.best.limits_s) + _PER_STEP


def _skeletons(growth: Growth) -> Iterator[Skeleton]:
    for plans in (*growth.generations, growth.best.plans):
        for plan in plans:
            yield plan.skeleton


searches = Searches()


def start_key(
    tables: CostTables, plan: ParallelPlan, options: IncrementalOptions, fabric: Fabric, num_nodes: int
) -> Hashable:
    """What a search starts from. Nodes that are not the plan's count when they are reached; but what
    a stage sends is reckoned otherwise where there is one node alone."""
    places = tuple((node, fabric.host(node)) for node in dict.fromkeys(node for node, _ in plan.gpus))
    shares = fabric.fractions, fabric.minipod_depth, fabric.intra_share, fabric.inter_share
    return tables.facts, plan, options, places, shares, num_nodes == 1
