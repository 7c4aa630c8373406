"""What a user may tune in the grid planner."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from models.parallel_plan import ParallelPlan
from models.pipeline_schedule import PipelineSchedule
from stowplan.errors import InputError

MAX_OPERATORS = 20


class PlanRule(StrEnum):
    """Which plan stands for a grid. `arena`: the proxy plan of the Pareto frontier (Arena section 3.3). `crius`: the
    best of the 2^stages plans whose stages are data parallel or tensor parallel only (Crius section 5.1)."""

    ARENA = "arena"
    CRIUS = "crius"


@dataclass(frozen=True, slots=True, kw_only=True)
class GridOptions:
    """Options of the grid planner.

    num_operators: O, at most 20, since C(O - 1, s - 1) partitions are compared. pipeline_degrees: None for 1 to O, and
    powers of two beyond up to the number of layers. context_degrees, expert_degrees: of symmetric plans; None for those
    that are worth it (`even`); all other plans have 1. schedules: of pipelines, None for all that the software runs;
    only symmetric plans have zero-bubble ones. num_micro_batches: None for the least divisor of the global
    batch that is at least 4 x the stages (the paper's number), and, where no plan fits with it, others, more first.
    max_frontier: threshold of the frontier's reduction. refine: look among the plans of the frontiers for the best one
    by the performance model, with every number of micro-batches, and beyond the grids for even layouts of whole layers
    (of all degrees and numbers of micro-batches only); the best proxy plan counts when it is better. measured:
    iteration time in s of a plan that was measured, None for a plan that was not (for a mapping: its `get`). details:
    give all grids with their plans, and the best proxy plans; otherwise only the best plans, and the grids of counts
    without one, which is much quicker. over: asked again and again once a plan is found; when it says so, what is left
    is not looked at.

    Raises
    ------
    InputError
        When a value is out of its range.
    """

    rule: PlanRule = PlanRule.ARENA
    num_operators: int = 16
    pipeline_degrees: tuple[int, ...] | None = None
    context_degrees: tuple[int, ...] | None = None
    expert_degrees: tuple[int, ...] | None = None
    num_micro_batches: tuple[int, ...] | None = None
    max_frontier: int = 16
    refine: bool = True
    measured: Callable[[ParallelPlan], float | None] | None = None
    details: bool = True
    over: Callable[[], bool] | None = None
    schedules: tuple[PipelineSchedule, ...] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.num_operators <= MAX_OPERATORS:
            raise InputError(f"num_operators is {self.num_operators}; must be between 1 and {MAX_OPERATORS}")
        if self.max_frontier < 1:
            raise InputError(f"max_frontier is {self.max_frontier}; must be at least 1")
        if self.measured is not None and not self.details:
            raise InputError("measured plans need details: every proxy plan is looked up")
        if self.schedules is not None and not self.schedules:
            raise InputError("schedules is empty; give at least one")
        for name in ("pipeline_degrees", "context_degrees", "expert_degrees", "num_micro_batches"):
            values = getattr(self, name)
            if values is not None and (not values or min(values) < 1):
                raise InputError(f"{name} is {values}; give at least one number, none below 1")

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self.over is not None and self.over()

    @property
    def shares_nothing(self) -> bool:
        """Whether plans may be those whose replicas share neither sequences nor experts."""
        return all(degrees is None or 1 in degrees for degrees in (self.context_degrees, self.expert_degrees))

    @property
    def beyond_symmetric(self) -> bool:
        """Whether plans may be others than the symmetric ones that `even` finds."""
        return self.shares_nothing and self.admits(PipelineSchedule.ONE_F_ONE_B)

    def admits(self, schedule: PipelineSchedule) -> bool:
        """Whether plans may have this schedule."""
        return self.schedules is None or schedule in self.schedules

    @property
    def all_plans(self) -> bool:
        """Whether plans outside of the grids may be the best ones."""
        is_free = self.pipeline_degrees is None and self.num_micro_batches is None
        return self.refine and is_free and self.rule is PlanRule.ARENA
