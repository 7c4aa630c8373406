"""Arnold on 1,000 fabrics of every shape, and on large ones: `python -m benchmarks arnold-shapes`.

Families, each fabric from a seed of its own:
- any: 8 to 128 minipods (log-uniform) of 0 to 68 free nodes (uniform); groups of 1 to as many nodes as the largest
  minipod has (uniform); fill (nodes of the job over free nodes) 0.5 to 1, alpha 0 to 1 (uniform); 1 to 3 tiers:
  minipods, leaves of 8 nodes in them, pods of 4 minipods above them
- large groups: the same with groups of 58 nodes and a fill of 0.99, where few packings exist
- weighted tiers: 2 or 3 tiers, all weighted 1, with 2 to 12 minipods and a job of at most 200 nodes
- scale: minipods of equal size, all free; groups of 3 nodes, fill 0.99, alpha 0.3

CPU is that of the whole road from snapshot to checked plan, and of its search alone, one thread, in one process; memory
is the peak of the process, snapshot included. `highs`: the paper's program from the constructive start, gap 0, on the
first fabrics of the family; the answers are compared, and a contradiction is an error.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

import numpy as np
import typer

from benchmarks.rows import Row, show, write
from benchmarks.workloads.generators import H800, arnold_snapshot, even_split, pretraining_job
from models.placement.arnold.parameters import ArnoldParameters
from models.plan import PlanRequest
from models.planning import load, plan
from models.workload import Snapshot
from solver.options import SolveOptions
from solver.result import TerminationReason
from topology.cluster import Cluster, Node, Tier

_MOST_NODES = 68
_LEAF, _POD = 8, 4
_TIERS = {1: ("minipod",), 2: ("minipod", "leaf"), 3: ("pod", "minipod", "leaf")}
_TOLERANCE = 1e-6
_TARGET_MS, _SCALE_TARGET_MS, _SCALE_TARGET_MIB = 50, 300, 200
# Nodes, minipods.
_SCALES = ((10_000, 200), (50_000, 1_000), (100_000, 2_000))


class Family(StrEnum):
    """Shapes; see the module."""

    ANY = "any"
    LARGE_GROUPS = "large groups"
    WEIGHTED_TIERS = "weighted tiers"
    SCALE = "scale"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """One plan, without the plan: thousands of them would have to be searched for cycles again and again."""

    cpu_ms: float
    phases_ms: Mapping[str, float]
    peak_bytes: int | None
    objective: float | None
    bound: float | None
    proven: bool


_ALL = list(Family)


def main(
    fabrics: Annotated[int, typer.Option(help="Of each family but scale.")] = 1_000,
    sample: Annotated[int, typer.Option(help="Fabrics that HiGHS solves, too.")] = 10,
    limit: Annotated[float, typer.Option(help="Seconds per solve.")] = 10.0,
    only: Annotated[list[Family], typer.Option(help="May be repeated.")] = _ALL,
) -> None:
    """Plan Arnold on many seeded fabrics: CPU by quantile, share proven, ratio to HiGHS; and on large fabrics."""
    _measure(_drawn(Family.ANY, 0), "auto", limit)
    if Family.SCALE in only:
        # First, as the peak of memory never falls.
        rows = [_scale_row(num_nodes, num_minipods, limit) for num_nodes, num_minipods in _SCALES]
        show("large fabrics, from snapshot to checked plan", rows)
        print(write("arnold_shapes_scale", "one run each, 1 thread", rows))
    families = [family for family in only if family is not Family.SCALE]
    rows = [_row(family, fabrics, sample, limit) for family in families]
    if rows:
        show(f"{fabrics} fabrics each, from snapshot to checked plan, CPU ms", rows)
        print(write("arnold_shapes", f"{fabrics} fabrics, one run each, limit {limit:g} s, gap 0, 1 thread", rows))


def _row(family: Family, fabrics: int, sample: int, limit_s: float) -> Row:
    measured = [_measure(_drawn(family, seed), "auto", limit_s) for seed in range(fabrics)]
    cpu = np.array([run.cpu_ms for run in measured])
    search = np.array([run.phases_ms["solve"] for run in measured])
    p50, p95, p99 = np.percentile(cpu, [50, 95, 99])
    ratios = list(_ratios(family, measured[:sample], limit_s))
    return {
        "family": family.value,
        "fabrics": fabrics,
        "p50": float(p50),
        "p95": float(p95),
        "p99": float(p99),
        "max": float(cpu.max()),
        "search p50, p99, max": " ".join(f"{value:.3g}" for value in [*np.percentile(search, [50, 99]), search.max()]),
        "proven": float(np.mean([run.proven for run in measured])),
        "target p99": _TARGET_MS,
        "met": "yes" if p99 <= _TARGET_MS else "no",
        "highs: median of ratios": float(np.median([ratio for ratio, _ in ratios])) if ratios else None,
        "highs proven": f"{sum(proven for _, proven in ratios)}/{len(ratios)}",
    }


def _ratios(family: Family, measured: Sequence[_Measured], limit_s: float) -> Iterator[tuple[float, bool]]:
    """CPU of HiGHS over ours, and whether it has proven; at its limit it is at least that."""
    for seed, ours in enumerate(measured):
        theirs = _measure(_drawn(family, seed), "highs", limit_s)
        best, bound, other, other_bound = ours.objective, ours.bound, theirs.objective, theirs.bound
        if best is None or bound is None or other is None or other_bound is None:
            raise RuntimeError(f"{family} {seed}: every fabric has room")
        if bound > other + _TOLERANCE or other_bound > best + _TOLERANCE:
            raise RuntimeError(f"{family} {seed}: [{bound}, {best}] contradicts HiGHS, [{other_bound}, {other}]")
        yield theirs.cpu_ms / ours.cpu_ms, theirs.proven


def _measure(request: PlanRequest, solver: str, limit_s: float) -> _Measured:
    options = SolveOptions(solver=solver, time_limit_s=limit_s, relative_gap=0.0)
    request = replace(request, options=options)
    load(request.parameters, options, declared=solver != "auto")
    begin_s = time.process_time()
    outcome = plan(request)
    return _Measured(
        cpu_ms=1e3 * (time.process_time() - begin_s),
        phases_ms={phase: 1e3 * seconds for phase, seconds in outcome.times.phase_cpu_s.items()},
        peak_bytes=outcome.times.peak_memory_bytes,
        objective=outcome.objective,
        bound=outcome.bound,
        proven=outcome.termination is TerminationReason.OPTIMAL and outcome.relative_gap == 0,
    )


def _scale_row(num_nodes: int, num_minipods: int, limit_s: float) -> Row:
    groups = num_nodes * 33 // 100
    snapshot = arnold_snapshot(even_split(num_nodes, num_minipods), groups, 3)
    run = _measure(PlanRequest(snapshot=snapshot, parameters=ArnoldParameters(alpha=0.3)), "auto", limit_s)
    peak_mib = None if run.peak_bytes is None else run.peak_bytes / 2**20
    met = run.cpu_ms <= _SCALE_TARGET_MS and peak_mib is not None and peak_mib <= _SCALE_TARGET_MIB
    return {
        "nodes": num_nodes,
        "minipods": num_minipods,
        "groups": groups,
        "cpu ms": run.cpu_ms,
        **{f"{phase} ms": spent_ms for phase, spent_ms in run.phases_ms.items()},
        "peak MiB": peak_mib,
        "proven": run.proven,
        "target at 50,000": f"{_SCALE_TARGET_MS} ms, {_SCALE_TARGET_MIB} MiB",
        "met": ("yes" if met else "no") if num_nodes == 50_000 else "-",
    }


def _drawn(family: Family, seed: int) -> PlanRequest:
    """The fabric of this seed, with its job."""
    rng = np.random.default_rng((18, seed))
    small = family is Family.WEIGHTED_TIERS
    least, most = (2, 12) if small else (8, 128)
    num_minipods = round(float(np.exp(rng.uniform(np.log(least), np.log(most)))))
    free = rng.integers(0, _MOST_NODES + 1, num_minipods)
    # Of the weighted tiers the job is small, so that the declared program is.
    total = min(200, int(free.sum())) if small else int(free.sum())
    size, fill = int(rng.integers(1, max(1, int(free.max())) + 1)), rng.uniform(0.5, 1)
    if family is Family.LARGE_GROUPS:
        size, fill = min(58, int(free.max())), 0.99
    num_groups = max(1, int(fill * total) // size)
    alpha, num_tiers = float(rng.uniform()), int(rng.integers(2 if small else 1, 4))
    parameters = ArnoldParameters(alpha=alpha)
    names = _TIERS[num_tiers]
    if small:
        parameters = replace(parameters, tier_weights=dict.fromkeys(names, 1.0))
    # A job that only just fits: one group has to be no larger than all minipods.
    free[0] += max(0, num_groups * size - int(free.sum()))
    return PlanRequest(snapshot=_fabric(free.tolist(), names, num_groups, size), parameters=parameters)


def _fabric(free: Sequence[int], tiers: Sequence[str], num_rows: int, num_columns: int) -> Snapshot:
    unit: dict[str, Callable[[int, int], str]] = {
        "pod": lambda m, _: f"pod-{m // _POD:03}",
        "minipod": lambda m, _: f"minipod-{m:03}",
        "leaf": lambda _, k: f"leaf-{k // _LEAF:02}",
    }
    nodes = tuple(
        Node(id=f"m{m:03}-{k:03}", gpu_type=H800.name, num_gpus=8, path=tuple(unit[tier](m, k) for tier in tiers))
        for m, count in enumerate(free)
        for k in range(count)
    )
    cluster = Cluster(
        gpu_types=(H800,), nodes=nodes, tiers=tuple(Tier(name=name) for name in tiers), minipod_tier="minipod"
    )
    return Snapshot(cluster=cluster, jobs=(pretraining_job(num_rows, num_columns),))
