"""A large job told four hours ahead (Arnold, appendix H, Fig. 14), replayed through the controller.

    python -m benchmarks reservation-replays --seeds 4 --first 8

Rows of other seeds by the same rules (`--limit`, `--busy`, `--epsilon`) stay in the result, others do not.

1,264 nodes of eight GPUs in 16 minipods, about nine of ten in use; at 18:00 it becomes known that a job of 640 whole
nodes starts at 22:00. Others are of whole nodes, too, one for each GPU that they had in the trace, in the order of a
queue with backfill (`gang`), planned every ten minutes. Arrivals are drawn, with a seed, from the last tenth of the
trace, as a Poisson process that keeps `--busy` of all nodes in use; the site ends jobs after `--limit` hours, so that
nobody who runs at 18:00 is known to run at 22:00. What is said of durations was learned from the rest of the trace
(`arrivals.py`). All variants (`variants.py`) go on from the same 18:00 with the same arrivals, and are left when the
large job starts: whoever is on its nodes then would be evicted, which is counted and not done.

allocation: share of all nodes with a job; retention: of the planned ones. idle: hours of planned nodes without a job,
from 18:00 to 22:00. wait: mean over the jobs that arrive meanwhile, those that still wait at 22:00 until then. wrong:
of the evicted jobs those that were admitted after 18:00. For bin-pack the planned nodes are those of Arnold.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Annotated

import numpy as np
import typer

from benchmarks.paths import PUBLISHED, RESULTS
from benchmarks.reservations.arrivals import Source, draw, source_of
from benchmarks.reservations.day import HOUR_S, Day, Outcome, nodes_of, run, warm_up
from benchmarks.reservations.figure import draw_rates
from benchmarks.reservations.variants import VARIANTS, Says, nodes_by_topology
from benchmarks.rows import Row, show, write
from benchmarks.workloads.ahead_weeks import generated_cluster
from stowplan.arrays import FloatVector
from stowplan.errors import InputError
from topology.cluster import Cluster
from workloads.readers import read_trace

NAME = "reservation_replays"
_TRACES = ["itp/cluster04.csv", "philly.csv"]
_NUM_NODES, _NUM_MINIPODS, _LARGE_NODES = 1264, 16, 640
# The largest of other jobs, in nodes.
_MOST_NODES = 256
_NOTICE_H = 4.0
# Beyond the limit, after which as many jobs end as come.
_SETTLING_H = 1.0
_ROUND_S = 600.0
_PROTOCOL = "rules: see benchmarks/reservations/reservation_replays.py; every variant has the same arrivals"
# best-effort is as bin-pack: gang sees no difference between nodes that are open to everybody.
_SHOWN = [name for name in VARIANTS if name != "best-effort"]
_PAIRS = (
    ("ours-moving", "arnold-blind"),
    ("ours-sure", "arnold-blind"),
    ("ours", "arnold-blind"),
    ("ours", "mixed"),
    ("ours", "arnold"),
)
_FIGURES = (
    *("idle_node_h", "busy_node_h", "evicted", "evicted_nodes", "wrong", "waited_s"),
    *("num_arrived", "num_waiting", "num_minipods", "moved", "moved_nodes"),
)


def main(
    traces: Annotated[list[str], typer.Option("--trace", help="File below the published traces.")] = _TRACES,
    seeds: Annotated[int, typer.Option(min=1, help="Arrivals, one for each seed.")] = 20,
    first: Annotated[int, typer.Option(min=0, help="The first seed; others in the result stay.")] = 0,
    variants: Annotated[list[str], typer.Option("--variant", help="May be repeated.")] = _SHOWN,
    limit_h: Annotated[float, typer.Option("--limit", help="Hours after which the site ends a job.")] = 4.0,
    busy: Annotated[float, typer.Option(help="Share of the nodes that is in use on average.")] = 0.9,
    epsilon: Annotated[
        float, typer.Option(help="Probability with which an admitted job may be there too long.")
    ] = 0.01,
    name: Annotated[str, typer.Option("--result", help="Name of the result file.")] = NAME,
) -> None:
    """Replay arrivals around a large job that is told four hours ahead: who keeps its nodes free at which price."""
    unknown = set(variants) - set(VARIANTS)
    if unknown:
        raise InputError(f"the variants are {', '.join(VARIANTS)}, and not {', '.join(sorted(unknown))}")
    missing = [file for file in traces if not (PUBLISHED / "traces" / file).exists()]
    if missing:
        raise InputError(f"there is no trace {missing[0]!r} at {PUBLISHED / 'traces'}")
    cluster = generated_cluster(_NUM_NODES, _NUM_MINIPODS)
    by_topology = nodes_by_topology(cluster, _LARGE_NODES)
    settings = {"limit_h": limit_h, "busy": busy, "epsilon": epsilon}
    asked = {(file, seed, variant) for file in traces for seed in range(first, first + seeds) for variant in variants}
    rows = [row for row in _known(name, settings) if (row["trace"], row["seed"], row["variant"]) not in asked]
    sources = {file: source_of(read_trace(PUBLISHED / "traces" / file), limit_h * HOUR_S) for file in traces}
    for seed in range(first, first + seeds):
        for file, source in sources.items():
            day = day_of(source, cluster, by_topology, _LARGE_NODES, seed, busy=busy, epsilon=epsilon)
            new = [_row(file, seed, variant, settings, outcome) for variant, outcome in outcomes(day, variants)]
            print(file, seed, {row["variant"]: row["evicted_nodes"] for row in new}, flush=True)
            rows += new
        # A seed takes a minute: who stops here keeps it.
        write(name, _PROTOCOL, rows)
    order = list(VARIANTS)
    rows.sort(key=lambda row: (str(row["trace"]), order.index(str(row["variant"])), int(str(row["seed"]))))
    show("mean over the seeds, and standard deviation of some", list(summary(rows)))
    show("beside each other: means over the seeds", list(comparisons(rows)))
    draw_rates(rows, RESULTS / f"{name}.svg", _NOTICE_H)


def _known(name: str, settings: Row) -> list[Row]:
    """What an earlier run by the same rules has left."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return []
    rows: list[Row] = json.loads(path.read_text())["rows"]
    return [row for row in rows if settings.items() <= row.items()]


def day_of(
    source: Source,
    cluster: Cluster,
    by_topology: tuple[str, ...],
    num_nodes: int,
    seed: int,
    *,
    busy: float,
    epsilon: float,
) -> Day:
    """A day by the rules above."""
    told_s = source.limit_s + _SETTLING_H * HOUR_S
    start_s = told_s + _NOTICE_H * HOUR_S
    return Day(
        source=source,
        cluster=cluster,
        arrivals=draw(source, busy * len(cluster.nodes), start_s, seed, _MOST_NODES),
        num_nodes=num_nodes,
        by_topology=by_topology,
        told_s=told_s,
        start_s=start_s,
        epsilon=epsilon,
        round_s=_ROUND_S,
    )


def outcomes(day: Day, variants: Sequence[str]) -> Iterator[tuple[str, Outcome]]:
    """What becomes of a day under each variant."""
    state = warm_up(day)
    # Who goes by the same has the same nodes.
    planned: dict[tuple[bool, bool], tuple[str, ...]] = {}
    for name in variants:
        variant = VARIANTS[name]
        by = variant.ahead, variant.says is Says.TRUTH
        if by not in planned:
            planned[by] = nodes_of(day, state, variant)
        yield name, run(day, state, variant, planned[by])


def _row(file: str, seed: int, variant: str, settings: Row, outcome: Outcome) -> Row:
    found = asdict(outcome)
    rates = {name: [round(value, 4) for value in found[name]] for name in ("allocation", "retention")}
    return {
        "trace": file,
        "seed": seed,
        "variant": variant,
        **settings,
        **{name: round(found[name], 2) for name in _FIGURES},
        **rates,
    }


def summary(rows: Sequence[Row]) -> Iterator[Row]:
    """A row for every trace and variant."""
    groups: dict[tuple[object, object], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["trace"], row["variant"]), []).append(row)
    for (file, variant), of_variant in groups.items():
        yield {
            "trace": file,
            "variant": variant,
            "alloc 18/20/22": _three(of_variant, "allocation"),
            "ret 18/20/22": _three(of_variant, "retention"),
            "idle h": _spread(of_variant, "idle_node_h"),
            "busy h": _spread(of_variant, "busy_node_h"),
            "evicted": _spread(of_variant, "evicted"),
            "wrong": _spread(of_variant, "wrong"),
            "moved nodes": _spread(of_variant, "moved_nodes"),
            "wait min": f"{fmean(_values(of_variant, 'waited_s')) / 60:.0f}",
            "minipods": f"{fmean(_values(of_variant, 'num_minipods')):.1f}",
        }


def comparisons(rows: Sequence[Row]) -> Iterator[Row]:
    """Ours beside Arnold's: hours that planned nodes are idle, retention when the large job starts, and the least of
    what the allocation, mean over the seeds, is higher at any moment."""
    for file in dict.fromkeys(row["trace"] for row in rows):
        of = {
            name: [row for row in rows if (row["trace"], row["variant"]) == (file, name)]
            for name in dict.fromkeys(str(row["variant"]) for row in rows)
        }
        for name, beside in _PAIRS:
            if of.get(name) and of.get(beside):
                higher = _mean_rates(of[name], "allocation") - _mean_rates(of[beside], "allocation")
                idle_h, beside_h = (fmean(_values(of[each], "idle_node_h")) for each in (name, beside))
                yield {
                    "trace": file,
                    "variant": name,
                    "beside": beside,
                    "idle": f"{idle_h / beside_h - 1:+.0%}",
                    "retention": f"{_mean_rates(of[name], 'retention')[-1]:.4f}",
                    "beside's": f"{_mean_rates(of[beside], 'retention')[-1]:.4f}",
                    "least higher allocation": f"{float(higher.min()):+.4f}",
                }


def _mean_rates(rows: Sequence[Row], name: str) -> FloatVector:
    mean: FloatVector = np.array([row[name] for row in rows], dtype=np.float64).mean(axis=0)
    return mean


def _three(rows: Sequence[Row], name: str) -> str:
    """At the begin, in the middle, and just before the large job starts."""
    rates = _mean_rates(rows, name)
    return " ".join(f"{rates[k]:.3f}" for k in (0, len(rates) // 2, -1))


def _spread(rows: Sequence[Row], name: str) -> str:
    values = _values(rows, name)
    return f"{fmean(values):.0f}" + (f" ±{stdev(values):.0f}" if len(values) > 1 else "")


def _values(rows: Sequence[Row], name: str) -> list[float]:
    return [float(str(row[name])) for row in rows]
