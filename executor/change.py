"""What kind of change leads from one run of a deployment to the next: what it costs differs by that."""

from collections.abc import Mapping
from enum import StrEnum

from models.parallel_plan import ParallelPlan


class RunChange(StrEnum):
    """start: of the first run. restart: of the same plan, after a fault or a stop. move: to other GPUs. rescale: to
    more GPUs or fewer. degrees: of the same number of GPUs, with another layout.
    """

    START = "start"
    RESTART = "restart"
    MOVE = "move"
    RESCALE = "rescale"
    DEGREES = "degrees"


def change_between(before: ParallelPlan | None, after: ParallelPlan) -> RunChange:
    """Kind of the change from one plan to another; None: there was no run before."""
    if before is None:
        return RunChange.START
    if before == after:
        return RunChange.RESTART
    if before.num_gpus != after.num_gpus:
        return RunChange.RESCALE
    return RunChange.MOVE if _layout(before) == _layout(after) else RunChange.DEGREES


def restart_price_s(costs_s: Mapping[RunChange, float]) -> float | None:
    """What policies reckon that a job loses when it gets other GPUs; None where nothing was measured.

    They do not know yet to which, so it is the dearest of the changes. Before the first change it is what the job has
    needed to start: a change is hardly dearer.
    """
    changes = [costs_s[kind] for kind in (RunChange.MOVE, RunChange.RESCALE, RunChange.DEGREES) if kind in costs_s]
    return max(changes) if changes else costs_s.get(RunChange.RESTART, costs_s.get(RunChange.START))


def _layout(plan: ParallelPlan) -> object:
    """What a checkpoint's parts depend on: the plan without its GPUs."""
    stages = tuple(
        (stage.num_layers, stage.tp, tuple(replica.local_batch for replica in stage.replicas)) for stage in plan.stages
    )
    return stages, plan.num_micro_batches
