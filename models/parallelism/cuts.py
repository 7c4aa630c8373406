"""How a model may be cut into the stages of a pipeline, by schedule and parts of stages, as even by load as it goes."""

from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from models.parallel_plan import v_parts
from models.parallelism.grid.operators import cluster
from models.parallelism.grid.options import GridOptions
from models.parallelism.legality import schedule_issues
from models.performance.iteration.model import PerformanceModel
from models.pipeline_schedule import PipelineSchedule, in_flight, waiting
from models.software import FEATURES
from stowplan.arrays import FloatArray

# More parts than published plans have; what they add to the transfers outweighs what is left of the bubble.
_MOST_PARTS = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageCut:
    """Stages that a pipeline may have: their schedule, parts, layers, and the layers of their parts: `intervals` with
    `rejoined`, where stages have layers from two places of the model. `share`: which part of the time of a stage each
    part takes (v, p)."""

    schedule: PipelineSchedule
    parts: int
    layers: tuple[int, ...]
    intervals: tuple[tuple[int, int], ...]
    rejoined: tuple[tuple[int, int], ...]
    share: FloatArray

    @property
    def behind(self) -> list[float]:
        """Micro-batches that stages have in flight."""
        pp = len(self.layers)
        return [in_flight(pp, stage, self.parts, self.schedule) for stage in range(pp)]

    @property
    def waiting(self) -> list[float]:
        """What waits for passes of weights beyond them."""
        pp = len(self.layers)
        return [waiting(pp, stage, self.parts, self.schedule) for stage in range(pp)]

    def takes(self, num_micro_batches: int) -> bool:
        """Whether the schedule has so many micro-batches."""
        in_groups = self.parts > 1 and self.schedule is not PipelineSchedule.ZBV
        return not in_groups or num_micro_batches % len(self.layers) == 0


def virtual_stages(model: PerformanceModel, pp: int) -> tuple[int, ...]:
    """Numbers of parts that the stages of a pipeline may have, 1 first: those that divide the layers, and those that do
    so where embedding and head count as a layer each, as Megatron-Core may divide them."""
    profile = model.profile
    if pp == 1 or not FEATURES[profile.software].virtual_stages:
        return (1,)
    most = min(_MOST_PARTS, profile.num_layers // pp)
    layers = profile.num_layers
    return tuple(v for v in range(1, most + 1) if layers % v == 0 or (layers + 2) % (pp * v) == 0)


def stage_bounds(loads: FloatArray, pp: int, parts: int) -> tuple[int, ...]:
    """Layers between which stages are cut, 0 and L included: of whole parts where these divide the layers."""
    if len(loads) % parts:
        return cluster(loads, pp)
    return tuple(parts * cut for cut in cluster(loads.reshape(-1, parts).sum(axis=1), pp))


def folded_layers(loads: FloatArray, pp: int) -> tuple[int, ...]:
    """Layers of stages of zbv."""
    half = -(-len(loads) // 2)
    folded = loads[:half] + np.where(np.arange(half) < len(loads) // 2, loads[::-1][:half], 0.0)
    pairs = np.diff(cluster(folded, pp)).tolist()
    # Of a layer in the middle there is one.
    return (*(2 * count for count in pairs[:-1]), 2 * pairs[-1] - len(loads) % 2)


def schedules_of(model: PerformanceModel, pp: int, options: GridOptions) -> tuple[PipelineSchedule, ...]:
    """Schedules to look at, of those that the job may have."""
    return tuple(
        one
        for one in PipelineSchedule
        if options.admits(one) and not any(schedule_issues(one, model.profile)) and (pp > 1 or not one.splits_backward)
    )


def stage_cuts(model: PerformanceModel, pp: int, loads: FloatArray, options: GridOptions) -> list[StageCut]:
    """Stages of all schedules and numbers of parts for which every stage has layers."""
    found, schedules = [], schedules_of(model, pp, options)
    every = [(v, tuple(np.diff(stage_bounds(loads, pp, v)).tolist())) for v in virtual_stages(model, pp)]
    for schedule in schedules:
        if schedule is PipelineSchedule.ZBV:
            if 2 * pp <= len(loads) and min(layers := folded_layers(loads, pp)) > 1:
                found.append(_v_cut(model, layers))
            continue
        for v, layers in every:
            if min(layers) >= v and (v > 1 or not schedule.splits_backward):
                bounds = tuple(pairwise(accumulate(layers, initial=0)))
                share = np.full((v, pp), 1.0 / v)
                cut = StageCut(
                    schedule=schedule, parts=v, layers=layers, intervals=bounds, rejoined=((0, 0),) * pp, share=share
                )
                found.append(cut)
    return found


def _v_cut(model: PerformanceModel, layers: tuple[int, ...]) -> StageCut:
    there, back = zip(*v_parts(layers), strict=True)
    table = model.share_table.compute
    compute = np.array([[table[last] - table[first] for first, last in part] for part in (there, back)])
    whole = compute.sum(axis=0)
    return StageCut(
        schedule=PipelineSchedule.ZBV,
        parts=2,
        layers=layers,
        intervals=there,
        rejoined=back,
        share=np.divide(compute, whole, out=np.full_like(compute, 0.5), where=whole > 0),
    )
