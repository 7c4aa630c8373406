"""Fewer GPUs for a running job: the best plan on what is left when a scale-out, or any GPUs, are taken away.

Stages lose replicas, tensor degree, or are dissolved. What is best of this for every number of micro-batches is
expanded by the GPUs that are idle, and folded, as long as that brings something. The same from the rest laid out anew,
as evenly as it goes: the better of both is taken, and the first where both are equal.
"""

from collections.abc import Collection, Iterator

import numpy as np

from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.incremental.candidates import Skeleton
from models.parallelism.incremental.folding import Part, skeleton_of
from models.parallelism.incremental.options import IncrementalOptions, Scaling
from models.parallelism.incremental.problem import Problem
from models.parallelism.incremental.search import Search
from models.performance.iteration.model import PerformanceModel
from stowplan.arrays import IntArray
from stowplan.errors import InputError

_DEFAULT = IncrementalOptions()


def shrink(
    model: PerformanceModel, plan: ParallelPlan, lost: Collection[Gpu], options: IncrementalOptions = _DEFAULT
) -> ParallelPlan | None:
    """Best legal plan on the GPUs that are left; None when there is none.

    Of the options, `window`, `unit` and `expansion_limit` are about more GPUs and have no effect here.

    Raises
    ------
    InputError
        When a lost GPU is not one of the plan's, or plan, nodes or GPU types are not those of the model.
    """
    foreign = sorted(set(lost) - set(plan.gpus))
    if foreign:
        raise InputError(f"GPU {foreign[0][1]} of node {foreign[0][0]!r} is taken away, and the plan does not use it")
    if len(set(lost)) == plan.num_gpus:
        return None
    problem = Problem.of(model, plan, options, lost=lost)
    search = Search(problem.tables, problem.landscape, options)
    available = problem.gpus.sum(axis=0)
    kept = search.refine(list(_starts(problem, options)), available)
    cold_start = search.relayout(available)
    if kept is None or (cold_start is not None and cold_start.time_s < kept.time_s):
        kept = cold_start
    return None if kept is None else problem.build(kept, ())


def _starts(problem: Problem, options: IncrementalOptions) -> Iterator[Skeleton]:
    """What is left of the plan: stages with a replica less, with a lower degree, or dissolved; one way for all stages
    that lost something, then one stage in its own way."""
    whole = [sum(len(replica.gpus) for replica in stage.replicas) for stage in problem.plan.stages]
    damaged = np.flatnonzero(problem.gpus.sum(axis=1) < whole).tolist()
    num_degrees = len(problem.tables.degrees)
    narrower = _with_degrees(problem, problem.degree)
    if options.scaling is Scaling.DATA:
        yield from (plan for plan in narrower if plan.num_stages == problem.plan.pp)
        return
    yield from narrower
    for degree in range(num_degrees):
        changed = problem.degree.copy()
        changed[damaged] = np.minimum(changed[damaged], degree)
        yield from _with_degrees(problem, changed)
    for stage in damaged:
        yield from _with_degrees(problem, problem.degree, without=stage)
        for degree in range(int(problem.degree[stage])):
            changed = problem.degree.copy()
            changed[stage] = degree
            yield from _with_degrees(problem, changed)


def _with_degrees(problem: Problem, degree: IntArray, without: int | None = None) -> Iterator[Skeleton]:
    """The stages that still have a whole group with these degrees."""
    tp = problem.tables.degrees[degree][:, None]
    gpus = problem.gpus // tp * tp
    parts = [
        Part(gpus=gpus[s], degree=int(degree[s]), origin=s) for s in range(len(gpus)) if s != without and gpus[s].any()
    ]
    if parts:
        yield skeleton_of(parts)
