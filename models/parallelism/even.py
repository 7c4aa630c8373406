r"""Symmetric plans of a job on some GPUs, interleaved and zero-bubble ones, and those whose replicas share sequences or
experts, where the software has them.

Every pipeline degree p and tensor degree that divides the GPUs, numbers of micro-batches N, parts v of a stage
(`virtual_stages`), and degrees of context and expert parallelism (`sharing_degrees`) are ranked by the tables of the
grids, with stages as even by load as it goes:

    seconds = N max_i c_i + (sum_i c_i - max_i c_i) / v + extra        c_i: forward and backward pass of stage i

which for v = 1 is the time of searches, and for v > 1 a bubble that is v times shorter (Narayanan et al. 2021, section
2.2); where weights have passes of their own, it is the bound of their schedules. Stages of zbv are cut where those of
the folded model are even, layer k together with layer L - 1 - k. Where stages recompute on their own, each does the
cheapest that fits beside the micro-batches that it has in flight: the time of an iteration rises with that of every
stage, so that this is best for these layers. The first of each kind are then looked at by the performance model itself,
sends and schedule included; what is returned is the best of those, never worse by the model than what was ranked first,
with a bound of all that were ranked (`even_bound`).
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.parallelism.cuts import stage_cuts
from models.parallelism.even_bound import least_s, least_split_s, split_s
from models.parallelism.grid.degrees import compact_degrees
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.stage_table import Recomputation
from models.parallelism.micro_batches import divisors, least_from
from models.parallelism.recomputation import StageChoices, recomputing
from models.performance.iteration.formulas import pipeline_s, scaling
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.times import schedule_of
from models.pipeline_schedule import PipelineSchedule
from stowplan.arrays import FloatArray
from stowplan.errors import InputError

_LOOKED_AT = 12
# Tokens of a part of a sequence, at least: what is published of context parallelism (NeMo, Llama 3) has as many.
_LEAST_TOKENS = 4096
# Of plans that differ in the parts of their stages only: the ranking does not know that more parts send more often.
_OF_ONE_KIND = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class EvenPlans:
    """The best symmetric plan of each kind on virtual nodes; None: there is none. `seconds`: an iteration of the better
    one. `bound_s`: no iteration of a plan that was ranked takes less. Both are infinite where there is none."""

    plain: ParallelPlan | None
    interleaved: ParallelPlan | None
    zero_bubble: ParallelPlan | None
    seconds: float
    bound_s: float

    @property
    def found(self) -> tuple[ParallelPlan, ...]:
        """Those that there are."""
        return tuple(plan for plan in (self.plain, self.interleaved, self.zero_bubble) if plan is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranked:
    """A plan that is not built yet."""

    seconds: float
    bound_s: float
    layers: tuple[int, ...]
    dp: int
    tp: int
    cp: int
    ep: int
    num_micro_batches: int
    virtual_stages: int
    schedule: PipelineSchedule
    recomputation: tuple[Recomputation, ...] | None

    @property
    def kind(self) -> tuple[bool, bool]:
        """Of those of `EvenPlans`."""
        return self.virtual_stages > 1, self.schedule.splits_backward


def even_plans(
    model: PerformanceModel,
    gpu_type: str,
    gpus_per_node: int,
    num_gpus: int,
    loads: FloatArray,
    options: GridOptions,
    *,
    by_stage: bool = False,
) -> EvenPlans:
    """Find the best symmetric plans on all of the GPUs, on virtual nodes `0`, `1`, ...

    Parameters
    ----------
    loads
        Of layers (L,).
    by_stage
        Only plans whose stages recompute on their own, and not all layers alike; the bound is of all.
    """
    gpus = tuple((str(k // gpus_per_node), k % gpus_per_node) for k in range(num_gpus))
    ranked = sorted(
        _ranked(model, gpu_type, gpus_per_node, num_gpus, loads, options, by_stage=by_stage),
        key=lambda plan: plan.seconds,
    )
    wanted = [plan for plan in ranked if (plan.recomputation is not None) is by_stage]
    found: list[ParallelPlan | None] = []
    fastest_s = math.inf
    seconds: dict[int, float] = {}
    for kind in ((False, False), (True, False), (True, True)):
        best, best_s = None, math.inf
        for plan in _different([plan for plan in wanted if plan.kind == kind]):
            built = _built(plan, model, gpu_type, gpus)
            seconds[id(plan)] = built_s = math.inf if built is None else model.iteration(built).total_s
            if built_s < best_s:
                best, best_s = built, built_s
            if best is not None and options.is_over:
                break
        found.append(best)
        fastest_s = min(fastest_s, best_s)
    return EvenPlans(
        plain=found[0],
        interleaved=found[1],
        zero_bubble=found[2],
        seconds=fastest_s,
        bound_s=min((seconds.get(id(plan), plan.bound_s) for plan in ranked), default=math.inf),
    )


def even_bound_s(
    model: PerformanceModel,
    gpu_type: str,
    gpus_per_node: int,
    num_gpus: int,
    loads: FloatArray,
    options: GridOptions,
    *,
    by_stage: bool = False,
) -> float:
    """What an iteration of the plans that `even_plans` ranks takes at least, without looking at them."""
    ranked = _ranked(model, gpu_type, gpus_per_node, num_gpus, loads, options, by_stage=by_stage)
    return min((plan.bound_s for plan in ranked), default=math.inf)


def _ranked(
    model: PerformanceModel,
    gpu_type: str,
    gpus_per_node: int,
    num_gpus: int,
    loads: FloatArray,
    options: GridOptions,
    *,
    by_stage: bool,
) -> Iterator[_Ranked]:
    for cp, ep in sharing_degrees(model, num_gpus, options):
        shared = model.at(cp, ep)
        for pp in pipeline_degrees(model, num_gpus, options):
            size = num_gpus // pp
            if size % cp == 0 and size % ep == 0:
                yield from _of_degree(shared, gpu_type, gpus_per_node, size, pp, loads, options, by_stage=by_stage)


def _different(ranked: Sequence[_Ranked]) -> list[_Ranked]:
    """The first plans, few of them with the same degrees and micro-batches."""
    found: list[_Ranked] = []
    kinds: Counter[Hashable] = Counter()
    for plan in ranked:
        kind = len(plan.layers), plan.dp, plan.tp, plan.cp, plan.ep, plan.num_micro_batches, plan.schedule
        kinds[kind] += 1
        if kinds[kind] <= _OF_ONE_KIND:
            found.append(plan)
        if len(found) == _LOOKED_AT:
            break
    return found


def sharing_degrees(model: PerformanceModel, num_gpus: int, options: GridOptions) -> Iterator[tuple[int, int]]:
    """Degrees of context and expert parallelism to look at, (1, 1) first: those asked for that the model admits; of
    context parallelism, unless it is asked for, those that leave sequences long."""
    profile = model.profile
    longest = max(profile.sequence_length // _LEAST_TOKENS, 1)
    contexts = options.context_degrees or range(1, min(longest, num_gpus) + 1)
    experts = options.expert_degrees or range(1, min(profile.num_experts, num_gpus) + 1)
    for cp in contexts:
        for ep in experts:
            divides = num_gpus % cp == 0 == num_gpus % ep
            if divides and profile.admits_context_degree(cp) and profile.admits_expert_degree(ep):
                yield cp, ep


def pipeline_degrees(model: PerformanceModel, num_gpus: int, options: GridOptions) -> list[int]:
    """Numbers of stages to look at: those asked for that divide the GPUs."""
    most = min(num_gpus, model.profile.num_layers) if model.profile.has_pipelines else 1
    asked = options.pipeline_degrees
    return [pp for pp in range(1, most + 1) if num_gpus % pp == 0 and (asked is None or pp in asked)]


def _of_degree(
    model: PerformanceModel,
    gpu_type: str,
    gpus_per_node: int,
    size: int,
    pp: int,
    loads: FloatArray,
    options: GridOptions,
    *,
    by_stage: bool,
) -> Iterator[_Ranked]:
    """Plans of `pp` stages of `size` GPUs that fit; stages of all numbers of parts are in one table."""
    cuts = [cut for cut in stage_cuts(model, pp, loads, options) if not (by_stage and cut.schedule.splits_backward)]
    if not cuts:
        return
    parts = np.array([cut.parts for cut in cuts])
    split = [k for k, cut in enumerate(cuts) if cut.schedule.splits_backward]
    stages = StageChoices.of(
        model,
        gpu_type,
        compact_degrees(model.profile, (size,), gpus_per_node),
        [pair for cut in cuts for pair in cut.intervals],
        [count for cut in cuts for count in cut.behind],
        np.repeat(parts, pp).tolist() if by_stage else None,
        [pair for cut in cuts for pair in cut.rejoined] if split else None,
        [count for cut in cuts for count in cut.waiting] if split else None,
    )
    tensor, fixed = stages.table.degrees.tp.tolist(), model.profile.micro_batch
    cp, ep = model.context_parallel, model.expert_parallel
    replicas = {size // tp for tp in tensor if size % tp == 0}
    for count in micro_batches(model, pp, replicas, options):
        chosen = stages.cheapest(count)
        forward, backward, extra = (
            values.reshape(len(cuts), pp, -1).swapaxes(1, 2)
            for values in (chosen.forward_s, chosen.backward_s, chosen.extra_s)
        )
        warm_up, steady, last = pipeline_s(forward, backward, extra, count)
        slowest = (forward + backward).max(axis=-1)
        seconds = steady + slowest + (warm_up - slowest) / parts[:, None] + last
        least = chosen.least_s.reshape(4, len(cuts), pp, -1).swapaxes(2, 3)
        scale = float(scaling(pp * size, model.coefficients.scale_loss))
        at_least = scale * least_s(least[[0, 1, 3]], count, parts)
        legal = chosen.fits.reshape(len(cuts), pp, -1).all(axis=1)
        for k in split:
            cut = cuts[k]
            if not cut.takes(count):
                continue
            order = schedule_of(cut.schedule, pp, cut.parts, count)
            at_least[k] = scale * least_split_s(order, least[:, k], cut.share)
            with_sends = np.stack([forward[k], backward[k], least[2, k]])
            seconds[k] = split_s(order, with_sends, cut.share) + extra[k].max(axis=-1)
        for k, t in zip(*np.nonzero(legal), strict=True):
            dp = size // tensor[t] // cp
            if fixed is not None and dp * fixed * count != _global_batch(model):
                continue
            if cuts[k].takes(count):
                yield _Ranked(
                    seconds=float(seconds[k, t]),
                    bound_s=float(at_least[k, t]),
                    layers=cuts[k].layers,
                    dp=dp,
                    tp=tensor[t],
                    cp=cp,
                    ep=ep,
                    num_micro_batches=count,
                    virtual_stages=cuts[k].parts,
                    schedule=cuts[k].schedule,
                    recomputation=stages.recomputation(chosen.row[k * pp : (k + 1) * pp, t]),
                )


def micro_batches(model: PerformanceModel, pp: int, replicas: Set[int], options: GridOptions) -> Sequence[int]:
    """Of the numbers that leave one of several numbers of replicas equal batches, and of those that the stages divide,
    the least above every power of two; all where the job fixes its micro-batch."""
    batch = model.profile.global_batch
    every = divisors(_global_batch(model))
    if options.num_micro_batches is not None:
        return [count for count in every if count in options.num_micro_batches]
    if model.profile.micro_batch is not None:
        return every
    powers = [1 << k for k in range(batch.bit_length())]
    found: set[int] = set()
    for dp in replicas:
        divided = [count for count in every if batch % (count * dp) == 0]
        whole = [count for count in divided if count % pp == 0]
        found.update(least_from(some, power) for some in (divided, whole) if some for power in powers)
    return sorted(found)


def _global_batch(model: PerformanceModel) -> int:
    """Whole sequences of an iteration."""
    return model.profile.global_batch // model.context_parallel


def _built(
    plan: _Ranked, model: PerformanceModel, gpu_type: str, gpus: tuple[tuple[str, int], ...]
) -> ParallelPlan | None:
    try:
        built = symmetric_plan(
            num_layers=plan.layers,
            pp=len(plan.layers),
            dp=plan.dp,
            tp=plan.tp,
            global_batch=model.profile.global_batch,
            num_micro_batches=plan.num_micro_batches,
            gpu_type=gpu_type,
            gpus=gpus,
            virtual_stages=plan.virtual_stages,
            cp=plan.cp,
            ep=plan.ep,
            schedule=plan.schedule,
        )
    except InputError:
        # A tensor group would leave its node where stages do not start on whole nodes.
        return None
    if plan.recomputation is not None:
        built = recomputing(built, plan.recomputation)
    return built if model.fits(built) else None
