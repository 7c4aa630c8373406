"""More GPUs for a running job (Suika section 3.2, Algorithm 1)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np

from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.incremental.affinity import affinity_order, units
from models.parallelism.incremental.candidates import Skeleton
from models.parallelism.incremental.configs import StageShapes
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.incremental.problem import Problem
from models.parallelism.incremental.progress import Reached, searches, start_key
from models.parallelism.incremental.search import Search
from models.parallelism.incremental.selection import EQUAL, Balanced
from models.parallelism.results import IncrementalResult, Step
from models.performance.iteration.model import PerformanceModel
from stowplan.arrays import IntArray
from stowplan.errors import InputError

_DEFAULT = IncrementalOptions()


def expand(
    model: PerformanceModel, plan: ParallelPlan, released: Sequence[Gpu], options: IncrementalOptions = _DEFAULT
) -> IncrementalResult:
    """Plans that a running job can have with more and more of the released GPUs, in its affinity order.

    Throughput never falls from step to step, and a step that brings nothing has the plan of the one before. Where the
    model counts transfers between stages, plans are sought as if these were free, and a plan that is no faster with
    them than the one before is not taken.

    Raises
    ------
    InputError
        When a released GPU is one of the plan's, or plan, nodes or GPU types are not those of the model.
    """
    taken = sorted(set(plan.gpus) & set(released))
    if taken:
        raise InputError(f"GPU {taken[0][1]} of node {taken[0][0]!r} is released, and the plan uses it")
    order = affinity_order(model.fabric, {node for node, _ in plan.gpus}, released)
    pieces = units(order, options.unit_of(plan.num_gpus), options.most_added(plan.num_gpus))
    if not pieces:
        return IncrementalResult(order=order, base_throughput=model.throughput(plan), steps=())
    num_added = list(accumulate(len(piece) for piece in pieces))
    problem = Problem.of(model, plan, options, added=order[: num_added[-1]])
    search = Search(problem.tables, problem.landscape, options)
    key = start_key(problem.tables, plan, options, model.fabric, len(problem.landscape.nodes))
    start = searches.start(key)
    if start is None:
        start = _start(problem, model, search)
        searches.keep_start(key, start)
    reached, is_kept = start, True
    for piece, count, available in zip(pieces, num_added, _prefixes(problem, pieces), strict=True):
        added = piece, model.fabric.host(piece[0][0])
        after = reached.after.get(added)
        if after is None:
            after = _next(problem, model, search, reached, order[:count], available)
            is_kept = is_kept and searches.keep(key, start, reached, added, after)
        reached = after
    return IncrementalResult(order=order, base_throughput=plan.global_batch / start.time_s, steps=reached.steps)


def _start(problem: Problem, model: PerformanceModel, search: Search) -> Reached:
    """Before any GPU is added."""
    time_s = model.iteration(problem.plan).total_s
    growth = search.start(_base(problem, model, time_s))
    return Reached(growth=growth, steps=(), built=problem.plan, time_s=time_s)


def _next(
    problem: Problem,
    model: PerformanceModel,
    search: Search,
    reached: Reached,
    released: Sequence[Gpu],
    available: IntArray,
) -> Reached:
    """One piece later; `released`: all GPUs up to it, `available`: how many the plan may use of every node."""
    before = reached.growth.on(len(problem.landscape.nodes))
    growth = search.step(before, available)
    built, time_s = reached.built, reached.time_s
    if growth.taken is not before.taken:
        candidate = problem.build(growth.taken, released)
        candidate_s = search.exact_s(growth.taken) if model.send_receive else growth.taken.time_s
        if candidate_s is None:
            candidate_s = model.iteration(candidate).total_s
        if candidate_s < time_s * (1.0 - EQUAL):
            built, time_s = candidate, candidate_s
    step = Step(num_added=len(released), plan=built, throughput=built.global_batch / time_s)
    return Reached(growth=growth, steps=(*reached.steps, step), built=built, time_s=time_s)


def _base(problem: Problem, model: PerformanceModel, time_s: float) -> Balanced:
    """The plan that runs, as it is, with its time when transfers between stages are free."""
    tables, plan = problem.tables, problem.plan
    if model.send_receive:
        time_s = replace(model, send_receive=False).iteration(plan).total_s
    rows = np.arange(plan.pp)
    own = StageShapes.of(
        tables, problem.landscape, problem.gpus // tables.degrees[problem.degree][:, None], problem.degree
    )
    return Balanced(
        skeleton=Skeleton(
            gpus=problem.gpus, degree=problem.degree, origin=tuple(range(plan.pp)), repeats=own.repeats(rows)
        ),
        layers=tuple(stage.num_layers for stage in plan.stages),
        batch=tables.num_micro_batches.tolist().index(plan.num_micro_batches),
        time_s=time_s,
    )


def _prefixes(problem: Problem, pieces: Sequence[Sequence[Gpu]]) -> list[IntArray]:
    """GPUs per node that the plan may use after every piece."""
    available = problem.gpus.sum(axis=0)
    prefixes = []
    for piece in pieces:
        available = available.copy()
        available[problem.landscape.nodes.index(piece[0][0])] += len(piece)
        prefixes.append(available)
    return prefixes
