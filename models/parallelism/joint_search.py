r"""Symmetric plans whose stages have the layers that their memory leaves them: of the degrees and micro-batches that
may be better than what is known, the best layers and recomputations (`joint`).

No plan of p stages and N micro-batches is faster than

    (C + (N - 1) max(C / p, c)) x stragglers        C, c: both passes of all layers, and of one, nothing recomputed

so that degrees are looked at in the order of this bound until it is above the best plan, or enough have been tried.
With v parts of a stage it is C / v + (N - 1/v) max(C / p, c), an order. The first are then looked at by the performance
model itself; none is returned that is not faster than what is known.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.parallelism.cuts import virtual_stages
from models.parallelism.even import micro_batches, pipeline_degrees, sharing_degrees
from models.parallelism.grid.degrees import DegreeTable, compact_degrees
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.stage_table import StageTable
from models.parallelism.joint import JointStages, LayerChoices
from models.parallelism.recomputation import recomputing
from models.performance.iteration.formulas import scaling
from models.performance.iteration.model import PerformanceModel
from models.pipeline_schedule import PipelineSchedule
from models.transformer import Checkpointing
from stowplan.errors import InputError

# Degrees and micro-batches that are tried, of those the ones that fit, and plans that the whole model looks at then.
_MOST_TRIED = 400
_MOST_CHOSEN = 16
_LOOKED_AT = 4
# A stage with more layers than so many times the mean would be too slow.
_MOST_OF_MEAN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Degrees:
    """Degrees and micro-batches of plans, and what no plan of them is below."""

    bound_s: float
    model: PerformanceModel
    table: DegreeTable
    pp: int
    column: int
    num_micro_batches: int
    parts: int


def joint_plan(
    model: PerformanceModel,
    gpu_type: str,
    gpus_per_node: int,
    num_gpus: int,
    options: GridOptions,
    *,
    by_stage: bool,
    below_s: float,
) -> ParallelPlan | None:
    """The best plan found on all of the GPUs, on virtual nodes `0`, `1`, ...; None: there is none below `below_s`.

    Parameters
    ----------
    by_stage
        Stages recompute what is best for each; otherwise all what the job's model says.
    """
    if not options.admits(PipelineSchedule.ONE_F_ONE_B):
        return None
    every = sorted(
        _degrees(model, gpu_type, gpus_per_node, num_gpus, options, by_stage=by_stage), key=lambda one: one.bound_s
    )
    tables: dict[tuple[int, ...], LayerChoices] = {}
    chosen: list[tuple[_Degrees, JointStages]] = []
    least_s = below_s
    for one in every[:_MOST_TRIED]:
        if one.bound_s >= least_s or len(chosen) == _MOST_CHOSEN or options.is_over:
            break
        key = one.pp, one.parts, one.model.context_parallel, one.model.expert_parallel
        if key not in tables:
            most = -(-_MOST_OF_MEAN * model.profile.num_layers // one.pp)
            tables[key] = LayerChoices.of(
                one.model, gpu_type, one.table, one.pp, most, by_stage=by_stage, parts=one.parts
            )
        stages = tables[key].optimum(one.num_micro_batches, one.column)
        if stages is not None and stages.seconds < below_s:
            chosen.append((one, stages))
            least_s = min(least_s, stages.seconds)
    best, best_s = None, below_s
    gpus = tuple((str(k // gpus_per_node), k % gpus_per_node) for k in range(num_gpus))
    for one, stages in sorted(chosen, key=lambda pair: pair[1].seconds)[:_LOOKED_AT]:
        if stages.seconds >= best_s:
            break
        built = _built(one, stages, gpu_type, gpus)
        if built is not None and (seconds := model.iteration(built).total_s) < best_s:
            best, best_s = built, seconds
    return best


def _degrees(
    model: PerformanceModel,
    gpu_type: str,
    gpus_per_node: int,
    num_gpus: int,
    options: GridOptions,
    *,
    by_stage: bool,
) -> Iterator[_Degrees]:
    num_layers = model.profile.num_layers
    for cp, ep in sharing_degrees(model, num_gpus, options):
        shared = model.at(cp, ep)
        for pp in pipeline_degrees(model, num_gpus, options):
            size = num_gpus // pp
            if pp == 1 or size % cp or size % ep:
                continue
            degrees = compact_degrees(shared.profile, (size,), gpus_per_node)
            table = StageTable(
                model=shared,
                gpu_type=gpu_type,
                intervals=((0, num_layers), *((layer, layer + 1) for layer in (0, num_layers // 2, num_layers - 1))),
                degrees=degrees,
                recomputation=((Checkpointing.NONE, None),) * 4 if by_stage else None,
            )
            replicas = {size // tp for tp in degrees.tp.tolist() if size % tp == 0}
            straggling = float(scaling(num_gpus, shared.coefficients.scale_loss))
            for count in micro_batches(shared, pp, replicas, options):
                costs = table.costs(count)
                whole, *single = costs.computing_s[:2].sum(axis=0)[:, 0]
                for column in range(len(degrees.tp)):
                    dp = size // int(degrees.tp[column]) // cp
                    fixed = shared.profile.micro_batch
                    if not costs.valid[0, column] or (
                        fixed is not None and dp * fixed * count != shared.profile.global_batch // cp
                    ):
                        continue
                    slowest = max(whole[column] / pp, *(one[column] for one in single))
                    for parts in virtual_stages(shared, pp):
                        bound_s = straggling * float(whole[column] / parts + (count - 1 / parts) * slowest)
                        if math.isfinite(bound_s) and (parts == 1 or count % pp == 0):
                            yield _Degrees(
                                bound_s=bound_s,
                                model=shared,
                                table=degrees,
                                pp=pp,
                                column=column,
                                num_micro_batches=count,
                                parts=parts,
                            )


def _built(one: _Degrees, stages: JointStages, gpu_type: str, gpus: tuple[tuple[str, int], ...]) -> ParallelPlan | None:
    tp = int(one.table.tp[one.column])
    try:
        built = symmetric_plan(
            num_layers=stages.layers,
            pp=one.pp,
            dp=int(one.table.sizes[0]) // tp // one.model.context_parallel,
            tp=tp,
            global_batch=one.model.profile.global_batch // one.model.context_parallel,
            num_micro_batches=one.num_micro_batches,
            gpu_type=gpu_type,
            gpus=gpus,
            virtual_stages=one.parts,
            cp=one.model.context_parallel,
            ep=one.model.expert_parallel,
        )
    except InputError:
        # A tensor group would leave its node where stages do not start on whole nodes.
        return None
    if stages.recomputation is not None:
        built = recomputing(built, stages.recomputation)
    return built if one.model.fits(built) else None
