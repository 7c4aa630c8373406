"""`horizon` beside the other policies over time, all by the same rules.

    python -m benchmarks horizon-replays --part sia --processes 2
    python -m benchmarks horizon-replays --part sia --trace 'helios/*' --variant horizon --horizon '{"restart_price":2}'
    python -m benchmarks horizon-replays --readme

sia         Sia's traces, as `sia-replays`; jobs of an application share what they measured, and steps on one GPU and
            what a restart costs are known, but for `sia` as it was released. `horizon` plans after every event and a
            minute after it has planned, others every minute, but for those whose names say otherwise; with seeds, again
            with each arrival up to ten minutes sooner or later
load        one of them with arrivals 0.5 to 2 times as often
ablation    `horizon` without its parts, and with errors in what it is told (not in how jobs run): log-normal ones in
            throughputs; of the work left twice or half as much as is true
leaves      `horizon` with placement classes and without them, where bandwidth differs by tier (`leaves.py`); seeds as
            above
objectives  what else it may be asked for: the tail, finish-time fairness, work at once, and room for jobs to come
arena       Arena's traces, as `arena-replays`
suika, suika-1024
            Suika's workload, as `suika-replays`; `horizon` is told the models and makes the plans of the jobs, or
            plans by the throughputs of data parallelism, like `sia`
reserved    trainings that arrive as in ITP, around a large job whose nodes are reserved (`reserved.py`)

A part has a result of its own, `results/horizon_replays_PART.json`, with the command in every row: rows that are asked
for are replaced, others stay. A limit on a solve makes replays depend on the machine; decisions that one ended are
counted (`limited`).
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.horizon.case import Asked, Case
from benchmarks.horizon.observed import Observed, observe_all
from benchmarks.horizon.parts import PARTS
from benchmarks.horizon.reserved import retention
from benchmarks.horizon.table import MARKS, tables
from benchmarks.paths import PUBLISHED, RESULTS, ROOT
from benchmarks.rows import Row, command_line, show, write
from benchmarks.suite.report import put_into
from executor.simulation.setup import ReplaySetup
from stowplan.errors import InputError

_S_PER_HOUR = 3600.0
_NAME = "horizon_replays"
_PROTOCOL = "rules: see benchmarks/horizon/horizon_replays.py; one process a replay, CPU seconds of one thread"
_PARTS = ["sia"]
_SHOWN = (
    *("trace", "load", "variant", "ended", "mean_h", "median_h", "p99_h", "makespan_h", "restarts"),
    *("longest_wait_h", "decision_ms", "gap"),
)


def main(
    parts: Annotated[list[str], typer.Option("--part", help=f"Of {', '.join(PARTS)}; may be repeated.")] = _PARTS,
    traces: Annotated[
        list[str] | None, typer.Option("--trace", help="Patterns of the traces; may be repeated.")
    ] = None,
    variants: Annotated[
        list[str] | None, typer.Option("--variant", help="Patterns of the variants; may be repeated.")
    ] = None,
    loads: Annotated[list[float] | None, typer.Option("--load", help="Of the part load; may be repeated.")] = None,
    horizon: Annotated[str, typer.Option(help="Parameters of horizon, as JSON.")] = "{}",
    seeds: Annotated[int, typer.Option(min=1, help="Of workloads that are made, moved arrivals, and errors.")] = 1,
    hours: Annotated[float | None, typer.Option(min=0.1, help="Of workloads that are made; else as published.")] = None,
    limit_s: Annotated[float, typer.Option("--limit", min=0.01, help="Seconds of a solve.")] = 60.0,
    suffix: Annotated[str, typer.Option("--suffix", help="Of the result's name, to keep it apart.")] = "",
    processes: Annotated[int, typer.Option(min=1, help="Replays at a time.")] = 1,
    readme: Annotated[bool, typer.Option("--readme", help="Only put tables of what there is into the README.")] = False,
) -> None:
    """Replay all traces under horizon and the other policies, under load, and without parts of horizon."""
    if readme:
        found = {part: rows for part in PARTS if (rows := _known(_path(part, "")))}
        put_into(ROOT / "benchmarks" / "README.md", tables(found), MARKS)
        return
    unknown = set(parts) - set(PARTS)
    if unknown:
        raise InputError(f"the parts are {', '.join(PARTS)}, and not {', '.join(sorted(unknown))}")
    if not PUBLISHED.is_dir():
        raise InputError(f"there are no published traces at {PUBLISHED}")
    asked = Asked(parameters=_parameters(horizon), seeds=seeds, hours=hours)
    for part in parts:
        chosen = [case for case in PARTS[part].cases(asked) if _is_chosen(case, traces, variants, loads)]
        if not chosen:
            raise InputError(f"no replay of {part} is of these traces, variants and loads")
        _replay(part, chosen, limit_s, suffix, processes)


def _replay(part: str, cases: Sequence[Case], limit_s: float, suffix: str, processes: int) -> None:
    """Carry out replays, and write each when it is done: they take minutes."""
    rows = {_key(row): row for row in _known(_path(part, suffix))}
    setups = [limited(case.make(), limit_s) for case in cases]
    for case, setup, observed in zip(cases, setups, observe_all(setups, processes), strict=True):
        row = row_of(case, setup, observed)
        rows[case.key] = row
        print(row, flush=True)
        path = write(_path(part, suffix).stem, _PROTOCOL, list(rows.values()))
    show(f"{part}; {_PROTOCOL}", [{name: rows[case.key][name] for name in _SHOWN} for case in cases])
    print(path)


def limited(setup: ReplaySetup, limit_s: float) -> ReplaySetup:
    """The replay with so many seconds for each solve."""
    options = replace(setup.control.options, time_limit_s=limit_s)
    return replace(setup, control=replace(setup.control, options=options))


def row_of(case: Case, setup: ReplaySetup, observed: Observed) -> Row:
    """Figures of a replay."""
    variant, result = case.variant, observed.result
    name, _, parameters = variant.policy.partition(":")
    spread = result.decisions.cpu_s
    return {
        "trace": case.trace,
        "load": case.load,
        "variant": variant.name,
        "seed": case.seed,
        "policy": name,
        "parameters": parameters,
        "round_s": setup.control.round_s,
        "told": setup.truth.profiling.value,
        "shared": setup.truth.shared_models,
        "noise": setup.truth.noise,
        "misjudged": setup.truth.misjudged,
        "models_told": setup.truth.tells_models,
        "limit_s": setup.control.options.time_limit_s,
        "jobs": result.num_jobs,
        "ended": result.num_finished,
        "mean_h": round(result.completion_s.mean / _S_PER_HOUR, 4),
        "median_h": round(result.completion_s.median / _S_PER_HOUR, 4),
        "p99_h": round(result.completion_s.p99 / _S_PER_HOUR, 3),
        "alone_h": round(result.floor_completion_s / _S_PER_HOUR, 4),
        "makespan_h": round(result.makespan_s / _S_PER_HOUR, 2),
        "longest_wait_h": round(result.waited_s.most / _S_PER_HOUR, 3),
        "restarts": round(result.num_restarts, 2),
        "restarts_by_kind": {kind: round(number, 2) for kind, number in result.restarts.items()},
        "most_unfair": round(result.most_unfair, 2),
        "deadlines": round(result.num_deadlines_met / result.num_deadlines, 3) if result.num_deadlines else None,
        "retention": _rounded(retention(result, setup)),
        "decisions": result.decisions.num_planned,
        "decision_ms": [round(1e3 * value_s, 1) for value_s in (spread.median, spread.p95, spread.p99, spread.most)],
        "gap": [float(f"{value:.2g}") for value in (observed.gap.median, observed.gap.p95, observed.gap.most)],
        "limited": observed.num_limited,
        "policy_cpu_s": round(result.decisions.total_cpu_s, 1),
        "other_cpu_s": round(result.other_cpu_s, 1),
        "command": command_line(),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _is_chosen(
    case: Case, traces: Sequence[str] | None, variants: Sequence[str] | None, loads: Sequence[float] | None
) -> bool:
    is_named = _matches(case.trace, traces) and _matches(case.variant.name, variants)
    return is_named and (not loads or case.load in loads)


def _matches(name: str, patterns: Sequence[str] | None) -> bool:
    return not patterns or any(fnmatch(name, pattern) for pattern in patterns)


def _parameters(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise InputError(f"--horizon is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise InputError("--horizon must be an object of parameters")
    return found


def _path(part: str, suffix: str) -> Path:
    name = "_".join([_NAME, part.replace("-", "_"), *([suffix] if suffix else [])])
    return RESULTS / f"{name}.json"


def _known(path: Path) -> list[Row]:
    """What earlier runs have left."""
    if not path.exists():
        return []
    rows: list[Row] = json.loads(path.read_text())["rows"]
    return rows


def _key(row: Row) -> tuple[object, ...]:
    return row["trace"], row["load"], row["variant"], row["seed"]
