"""What Algorithm 1 found piece by piece, for the next time that a job is asked.

A job is asked again whenever GPUs that it may get come or go. What it finds on the pieces before the first that differs
is what it found before, whatever comes behind them; so the search goes on from there. Kept beside the tables of the job
(`CostTables.of`), by the plan, the options, and the places of nodes under their names: callers who ask about many
places use neutral names (`models.allocation.suika.situation`).
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from models.parallel_plan import ParallelPlan
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.incremental.search import Growth
from models.parallelism.incremental.tables import CostTables
from models.parallelism.results import Step
from models.performance.iteration.fabric import Fabric
from stowplan.living import OfLiving

# Numbers of 8 bytes that the searches of one job's tables hold at most, and what a GPU counts of a plan.
_MOST_NUMBERS = 2**18
_PER_GPU = 40


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


class Progress:
    """Searches from their starts on, of limited size: what is full is emptied."""

    def __init__(self) -> None:
        self._starts: dict[Hashable, Reached] = {}
        self._numbers = 0

    def start(self, key: Hashable) -> Reached | None:
        """The start of a search, if it is known."""
        return self._starts.get(key)

    def keep_start(self, key: Hashable, start: Reached) -> None:
        """Keep the start of a search."""
        self._make_room_for(start)
        self._starts[key] = start

    def keep(self, before: Reached, added: Hashable, after: Reached) -> None:
        """Keep where a search was one piece later."""
        self._make_room_for(after)
        before.after[added] = after

    def _make_room_for(self, reached: Reached) -> None:
        last = reached.growth.generations[-1]
        self._numbers += sum(plan.skeleton.gpus.size for plan in last) + _PER_GPU * reached.built.num_gpus
        if self._numbers > _MOST_NUMBERS:
            self._starts.clear()
            self._numbers = 0


_progress: OfLiving[CostTables, Progress] = OfLiving()


def progress_of(tables: CostTables) -> Progress:
    """What is known of searches with these tables, as long as these are."""
    known = _progress.get(tables)
    if known is None:
        known = Progress()
        _progress.put(tables, known)
    return known


def start_key(plan: ParallelPlan, options: IncrementalOptions, fabric: Fabric, num_nodes: int) -> Hashable:
    """What a search starts from, beside the tables. Nodes that are not the plan's count when they are reached; but what
    a stage sends is reckoned otherwise where there is one node alone."""
    places = tuple((node, fabric.host(node)) for node in dict.fromkeys(node for node, _ in plan.gpus))
    shares = fabric.fractions, fabric.minipod_depth, fabric.intra_share, fabric.inter_share
    return plan, options, places, shares, num_nodes == 1
