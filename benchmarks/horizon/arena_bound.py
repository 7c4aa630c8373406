"""What no policy can be below on Arena's Philly, and none that packs jobs, beside what was replayed.

    python -m benchmarks arena-bound

The bound is that of `benchmarks/horizon/fluid_bound.py` by the table and the rules of `arena-replays`: every arrival is
known, and one start is paid for, on the fewest GPUs. Policies pack a job on as few nodes as hold it; by the table some
are faster on more (16 V100 on two nodes), of which the second bound makes use. On the other traces of Arena there is
nothing to bound: policies reach what jobs take alone.
"""

import json
import math
from functools import partial
from typing import Annotated

import numpy as np
import typer

from benchmarks.horizon.ascent import good_prices_of
from benchmarks.horizon.fluid_bound import FluidKind, FluidProblem, priced
from benchmarks.paths import RESULTS
from benchmarks.replays.arena_replays import Rules, setup_of
from benchmarks.rows import Row, command_line, show, write
from benchmarks.workloads.published.arena import DIRECTORY, ROUND_S, data_are_there
from executor.simulation.setup import ReplaySetup, truth_of
from models.performance.goodput.spec import ThroughputTable
from models.workload import Job
from stowplan.arrays import FloatArray
from stowplan.errors import InputError

_NAME = "arena_bound"
_PROTOCOL = "rules: see benchmarks/horizon/arena_bound.py; mean completion time until the horizon, in seconds"
_TRACE = "philly"
_S_PER_HOUR = 3600.0
# Prices are found on intervals of six rounds, and bound on single ones; the first prices, and the length of a step.
_ROUNDS, _FIRST, _RATE = 6, 0.01, 0.005


def main(steps: Annotated[int, typer.Option(min=1, help="Of the search for prices.")] = 200) -> None:
    """Bound from below the mean completion time on Arena's Philly under any policy."""
    if not data_are_there():
        raise InputError(f"there are no traces of Arena at {DIRECTORY}")
    replayed = {
        str(row["variant"]): round(row["mean_h"] * _S_PER_HOUR)
        for row in json.loads((RESULTS / "horizon_replays_arena.json").read_text())["rows"]
        if row["trace"] == _TRACE
    }
    bounds = _bounds(setup_of(_TRACE, "sia", Rules()), steps)
    row: Row = {"trace": _TRACE, **bounds, **replayed, "steps": steps, "command": command_line()}
    show(_PROTOCOL, [{name: value for name, value in row.items() if name != "command"}])
    print(write(_NAME, _PROTOCOL, [row]))


def _bounds(setup: ReplaySetup, steps: int) -> Row:
    """Without contention, and with it: of jobs on as few nodes as hold them, and on any."""
    row: dict[str, object] = {}
    for name, is_spread in (("packed", False), ("on any nodes", True)):
        problem = fluid_problem(setup, _ROUNDS * ROUND_S, is_spread=is_spread)
        first = np.full((problem.lengths_s.size, len(problem.num_gpus)), _FIRST)
        prices = good_prices_of(partial(priced, problem), first, problem.num_gpus, steps, _RATE)
        row[f"alone_s, {name}"] = _mean_s(problem, np.zeros_like(prices))
        row[f"bound_s, {name}"] = _mean_s(problem, prices)
        row["jobs"] = problem.work.size
    return row


def _mean_s(problem: FluidProblem, prices: FloatArray) -> int:
    """The bound at prices (K, T), on a finer grid."""
    value_s = priced(problem.finer(_ROUNDS), np.repeat(prices, _ROUNDS, axis=0)).value
    return math.floor(value_s / problem.work.size)


def fluid_problem(setup: ReplaySetup, interval_s: float, *, is_spread: bool = False) -> FluidProblem:
    """The jobs that come before the horizon of a trace whose throughputs are known by table. is_spread: on any nodes,
    not on as few as hold them."""
    if setup.horizon_s is None:
        raise InputError(f"the trace {setup.trace.name!r} is replayed to its end; the bound needs a horizon")
    truth, gpu_types = truth_of(setup), [kind.name for kind in setup.cluster.gpu_types]
    kinds: dict[object, int] = {}
    found: list[FluidKind] = []
    rows: list[tuple[int, float, float, float]] = []
    for job in setup.trace.jobs:
        if not truth.covers(job) or job.submit_s >= setup.horizon_s:
            continue
        told = truth.told(job.id)
        key = told.performance, told.min_gpus, told.max_gpus
        if key not in kinds:
            kinds[key] = len(found)
            found.append(_kind(told, gpu_types, is_spread=is_spread))
        start_s = setup.truth.delay_s(int(found[kinds[key]].gpus_of.min()), is_first=True)
        rows.append((kinds[key], truth.work(job.id), job.submit_s, job.submit_s + start_s))
    kind_of, work, submit_s, ready_s = (np.array(column) for column in zip(*rows, strict=True))
    types = [gpu_types.index(node.gpu_type) for node in setup.cluster.nodes]
    return FluidProblem(
        kinds=found,
        kind_of=kind_of,
        work=work,
        submit_s=submit_s,
        ready_s=ready_s,
        num_gpus=np.bincount(types, [node.num_gpus for node in setup.cluster.nodes], len(gpu_types)).astype(np.int64),
        bounds_s=np.append(np.arange(0.0, setup.horizon_s, interval_s), setup.horizon_s),
    )


def _kind(job: Job, gpu_types: list[str], *, is_spread: bool) -> FluidKind:
    """Iterations a second of the counts that the job may get, on as few nodes as are known, or on the best number."""
    table = job.performance
    if not isinstance(table, ThroughputTable) or not table.batch_size:
        raise InputError(f"job {job.id!r} says nothing of its throughput by a table")
    best: dict[tuple[str, int], float] = {}
    for entry in table.entries:
        shape = entry.gpu_type, entry.num_gpus
        is_asked = is_spread or entry.num_nodes is None
        if is_asked and job.min_gpus <= entry.num_gpus <= (job.max_gpus or entry.num_gpus):
            best[shape] = max(best.get(shape, 0.0), entry.value / table.batch_size)
    return FluidKind(
        type_of=np.array([gpu_types.index(name) for name, _ in best]),
        gpus_of=np.array([num_gpus for _, num_gpus in best]),
        speed=np.array(list(best.values())),
    )
