"""What is measured: a named input, made anew from a seed in the process that measures it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from models.clock import PhaseClock
from models.parallel_plan import ParallelPlan
from models.performance.iteration.model import PerformanceModel
from models.plan import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerTask:
    """A planner of 3D plans and what it is asked.

    build: the performance model. plan: the planner, timed as the phase `solve`, and `base` what it starts from; None
    where it finds no plan. bound: samples/s that no plan on the same GPUs exceeds.
    """

    build: Callable[[], PerformanceModel]
    plan: Callable[[PerformanceModel, PhaseClock], ParallelPlan | None]
    bound: Callable[[PerformanceModel], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One input of the suite.

    name: `problem/group/details`. problem: the policy that plans the case, or the planner of 3D plans. series: cases
    that belong on one line when latency is drawn over `scale` (nodes of the cluster for Arnold, else GPUs); empty for a
    case that stands for itself. size: the numbers behind it. source: where the input comes from. make: the request for
    a seed, without solver and limits. seeded: whether the seed changes anything.
    """

    name: str
    problem: str
    series: str
    scale: int
    size: Mapping[str, float]
    source: str
    make: Callable[[int], PlanRequest | PlannerTask]
    seeded: bool = True

    def request(self, seed: int) -> PlanRequest:
        """The request of a policy's case.

        Raises
        ------
        TypeError
            When a planner of 3D plans is asked here.
        """
        made = self.make(seed)
        if not isinstance(made, PlanRequest):
            raise TypeError(f"{self.name} is no case of a policy")
        return made
