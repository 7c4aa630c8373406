"""Arnold: the exact algorithm next to general solvers: `python -m benchmarks arnold-latency --runs 3 --limit 10`.

Every variant plans the same snapshot under the same limit, gap 0, one thread, in one process, one after the other:
- exact: `models.placement.arnold.exact.search`
- highs: the paper's MIP from the constructive start
- highs strengthened: with the rows of ours
- scip: the paper's MIP
CPU and wall time are those of the whole road from snapshot to checked plan, build included; `solve` is the part inside
the solver. Runs differ in the seed of the free nodes. Cases: the five hard shapes at alpha 0.1 and 0.3, a job of 1,200
nodes among 10,000 in 300 minipods, Table 1 (iii), 1,200 nodes on 80 minipods at 95 % fill, groups that are larger than
most leaves, and, where the real fabric lies beside the checkout, its leaf groups with 35 % of the hosts drained.
"""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from typing import Annotated

import typer

from benchmarks.rows import Row, median, show, write
from benchmarks.suite.cases.arnold import LINGJUN
from benchmarks.suite.registry import all_cases
from benchmarks.workloads.generators import H800, arnold_snapshot, dirichlet_split, pretraining_job
from models.placement.arnold.parameters import ArnoldParameters
from models.plan import PlanRequest
from models.planning import plan
from models.workload import Snapshot
from solver.options import SolveOptions
from topology.cluster import NodeState
from topology.readers import NodeDefaults
from topology.readers.csv import read_csv

MakeRequest = Callable[[int], PlanRequest]

_FROM_THE_SUITE = ("arnold/hard/*", "arnold/scale/10000n*", "arnold/table1/iii-*")
_VARIANTS = (
    ("exact", "exact", False),
    ("highs", "highs", False),
    ("highs+rows", "highs", True),
    ("scip", "scip", False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One plan. Seconds."""

    cpu_s: float
    wall_s: float
    solve_s: float | None
    objective: float | None
    bound: float | None
    gap: float | None
    termination: str


_ALL = ["*"]
_NAMES = [name for name, _, _ in _VARIANTS]


def main(
    runs: Annotated[int, typer.Option(help="Of every case and variant.")] = 3,
    limit: Annotated[float, typer.Option(help="Seconds per solve.")] = 10.0,
    cases: Annotated[list[str], typer.Option(help="Pattern of case names; may be repeated.")] = _ALL,
    variants: Annotated[list[str], typer.Option(help="May be repeated.")] = _NAMES,
) -> None:
    """Compare the exact algorithm of Arnold with general solvers."""
    _plan(_open_cases()["arnold/open/1200 on 80"](0), "exact", False, limit)
    rows: list[Row] = []
    for name, make in _cases():
        if any(fnmatch(name, pattern) for pattern in cases):
            for variant, solver, strengthen in _VARIANTS:
                if variant in variants:
                    made = [_plan(make(seed), solver, strengthen, limit) for seed in range(runs)]
                    rows.append(_row(name, variant, made))
                    print(rows[-1], flush=True)
    show(f"medians of {runs} runs, limit {limit:g} s", rows)
    print(write("arnold_latency", f"{runs} runs, limit {limit:g} s, gap 0, 1 thread", rows))


def _cases() -> Iterator[tuple[str, MakeRequest]]:
    for name, case in all_cases().items():
        if any(fnmatch(name, pattern) for pattern in _FROM_THE_SUITE):
            yield name, case.request
    yield from _open_cases().items()


def _open_cases() -> dict[str, MakeRequest]:
    """Cases that the paper's MIP leaves open for long, and one that arguments alone leave open."""
    cases: dict[str, MakeRequest] = {
        "arnold/open/1200 on 80": partial(_generated, 150, 8, 80, 0.95, None),
        "arnold/open/9 on leaves of 8": partial(_generated, 60, 9, 119, 0.9, 8),
    }
    if LINGJUN.is_file():
        cases["arnold/open/lingjun leaves, 35 % drained"] = _drained
    return cases


def _generated(rows: int, columns: int, num_minipods: int, fill: float, most: int | None, seed: int) -> PlanRequest:
    free = dirichlet_split(round(rows * columns / fill), num_minipods, seed, most=most)
    return PlanRequest(snapshot=arnold_snapshot(free, rows, columns), parameters=ArnoldParameters(alpha=0.3))


def _drained(seed: int) -> PlanRequest:
    cluster = read_csv(LINGJUN, NodeDefaults(gpu_type=H800, num_gpus=8), minipod_tier="PSW")
    rng = random.Random(seed)  # noqa: S311 - reproducible, not secret
    drained = set(rng.sample(range(len(cluster.nodes)), round(0.35 * len(cluster.nodes))))
    nodes = tuple(
        replace(node, state=NodeState.DRAINED) if k in drained else node for k, node in enumerate(cluster.nodes)
    )
    snapshot = Snapshot(cluster=replace(cluster, nodes=nodes), jobs=(pretraining_job(64, 8),))
    return PlanRequest(snapshot=snapshot, parameters=ArnoldParameters(alpha=0.3, minipod_tier="ASW"))


def _plan(request: PlanRequest, solver: str, strengthen: bool, limit_s: float) -> _Run:
    parameters = request.parameters
    if not isinstance(parameters, ArnoldParameters):
        raise TypeError("not a case of Arnold")
    options = SolveOptions(solver=solver, time_limit_s=limit_s, relative_gap=0.0)
    request = replace(request, parameters=replace(parameters, strengthen=strengthen), options=options)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    outcome = plan(request)
    return _Run(
        cpu_s=time.process_time() - cpu_s,
        wall_s=time.perf_counter() - wall_s,
        solve_s=outcome.statistics.solve_s,
        objective=outcome.objective,
        bound=outcome.bound,
        gap=outcome.relative_gap,
        termination=outcome.termination.value,
    )


def _row(name: str, variant: str, runs: list[_Run]) -> Row:
    return {
        "case": name.removeprefix("arnold/"),
        "variant": variant,
        "cpu_s": median([run.cpu_s for run in runs]),
        "wall_s": median([run.wall_s for run in runs]),
        "solve_s": median([run.solve_s for run in runs]),
        "proven": f"{sum(run.termination == 'optimal' for run in runs)}/{len(runs)}",
        "objective": median([run.objective for run in runs]),
        "bound": median([run.bound for run in runs]),
        "gap": median([run.gap for run in runs]),
    }
