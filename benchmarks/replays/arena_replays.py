"""Policies on the traces published with Arena (EuroSys'26), on the 1,280 GPUs of its simulation.

    python -m benchmarks arena-replays --trace pai --trace helios --processes 2

Rules. Every submitted job counts; of Philly those of the first 1,673 rounds of 300 s, and what does not end by then
counts until then. All policies go by the same table of throughputs, which is true; a start, and every later change,
costs 10 s for each GPU, at most 40 s; work is credited at the speed at which it was done. A job may get from a quarter
to four times the GPUs that it asked for (with less, the best times of the released simulator could not be reached);
`gang` gives it what it asked for. Plans are made after every event, or with `--round` every so many seconds. `alone`
is the mean of the jobs each alone on the cluster, until the horizon like all others: no policy can be below.

The released simulator credits all past work at the present speed, and counts rounds: its figures stand in the README of
the data, and are no bound for these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from api.cli.replay_policies import parameters_of
from benchmarks.rows import Row, show, write
from benchmarks.workloads.published.arena import DIRECTORY, ROUND_S, THROUGHPUTS, data_are_there, simulated_cluster
from executor.control.options import ControlOptions
from executor.simulation.figures import ReplayResult
from executor.simulation.known import Known
from executor.simulation.processes import replay_all
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import TruthParameters
from stowplan.errors import InputError
from workloads.readers import read_trace
from workloads.throughputs import read_throughputs

_HORIZONS_S = {"pai": None, "helios": None, "philly": 1673 * ROUND_S}
_TRUTH = TruthParameters(start_s=40.0, restart_s=40.0, delay_per_gpu_s=10.0)
_TRACES = list(_HORIZONS_S)
_SHOWN = ("trace", "policy", "parameters", "ended", "jct_s", "alone_s", "longest_wait_s", "restarts", "policy_cpu_s")
_POLICIES = ["gang", "sia", "arena", "arena-ilp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    trace: str
    named: str
    round_s: float | None


def main(
    traces: Annotated[list[str], typer.Option("--trace", help="May be repeated.")] = _TRACES,
    policies: Annotated[
        list[str], typer.Option("--policy", help='May be repeated; with parameters as arena:{"search_depth": 5}.')
    ] = _POLICIES,
    round_s: Annotated[float | None, typer.Option("--round", help="Plan every so many seconds.")] = None,
    name: Annotated[str, typer.Option("--result", help="Name of the result file.")] = "arena_replays",
    processes: Annotated[int, typer.Option(min=1, help="Replays at a time.")] = 1,
) -> None:
    """Replay the traces of Arena under policies, all by the same rules."""
    if not data_are_there():
        raise InputError(f"there are no traces of Arena at {DIRECTORY}")
    unknown = set(traces) - set(_HORIZONS_S)
    if unknown:
        raise InputError(f"the traces are {', '.join(_HORIZONS_S)}, and not {', '.join(sorted(unknown))}")
    tasks = [_Task(trace=trace, named=policy, round_s=round_s) for trace in traces for policy in policies]
    setups = [setup_of(task.trace, task.named, task.round_s) for task in tasks]
    rows = []
    for task, result in zip(tasks, replay_all(setups, processes), strict=True):
        rows.append(_row(task, result))
        print(rows[-1], flush=True)
    protocol = "rules: see benchmarks/replays/arena_replays.py; one process a replay, CPU seconds of one thread"
    show(protocol, [{name: row[name] for name in _SHOWN} for row in rows])
    print(write(name, protocol, rows))


def _row(task: _Task, result: ReplayResult) -> Row:
    policy, _, parameters = task.named.partition(":")
    return {
        "trace": task.trace,
        "policy": policy,
        "parameters": parameters,
        "round_s": task.round_s,
        "jobs": result.num_jobs,
        "ended": result.num_finished,
        "jct_s": round(result.completion_s.mean),
        "alone_s": round(result.floor_completion_s),
        "jct_p99_s": round(result.completion_s.p99),
        "longest_wait_s": round(result.waited_s.most),
        "makespan_s": round(result.makespan_s),
        "restarts": round(result.num_restarts, 2),
        "most_unfair": round(result.most_unfair, 2),
        "deadlines": round(result.num_deadlines_met / result.num_deadlines, 3) if result.num_deadlines else None,
        "gpu_hours": round(result.gpu_hours),
        "decisions": result.decisions.num_planned,
        "decision_ms": _decision_ms(result),
        "policy_cpu_s": round(result.decisions.total_cpu_s, 1),
        "other_cpu_s": round(result.other_cpu_s, 1),
    }


def setup_of(trace: str, policy: str, round_s: float | None) -> ReplaySetup:
    """A trace by the rules above."""
    (parameters,) = parameters_of(None, [policy], {}, known=Known.TABLE)
    return ReplaySetup(
        cluster=simulated_cluster(),
        trace=read_trace(DIRECTORY / f"trace_{trace}.csv", format_="arena"),
        control=ControlOptions(parameters=parameters, round_s=round_s),
        truth=_TRUTH,
        throughputs=read_throughputs(DIRECTORY / THROUGHPUTS),
        horizon_s=_HORIZONS_S[trace],
    )


def _decision_ms(result: ReplayResult) -> Sequence[float]:
    spread = result.decisions.cpu_s
    return [round(1e3 * value_s, 1) for value_s in (spread.median, spread.p95, spread.most)]
