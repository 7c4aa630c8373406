"""Policies on the traces published with Arena (EuroSys'26), on the 1,280 GPUs of its simulation.

    python -m benchmarks arena-replays --trace pai --trace helios --processes 2

Rules. Every submitted job counts; of Philly those of the first 1,673 rounds of 300 s, and what does not end by then
counts until then. All policies go by the same table of throughputs, which is true; a start, and every later change,
costs 10 s for each GPU, at most 40 s (`--start`); work is credited at the speed at which it was done. A job may get
from a quarter to four times the GPUs that it asked for (with less, the best times of the released simulator could not
be reached); `gang` gives it what it asked for. Plans are made after every event, or with `--round` every so many
seconds. `alone` is the mean of the jobs each alone on the cluster, until the horizon like all others: no policy can be
below.

The released simulator credits all past work at the present speed, and counts rounds: its figures stand in the README of
the data, and are no bound for these. It ends after a number of rounds (`--rounds`: the first with one digit above 0
that is greater than those of the trace, 400 for PAI), and its mean is that of the jobs that ended (`ended_jct_s`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from api.cli.replay_policies import parameters_of
from benchmarks.rows import Row, show, write
from benchmarks.workloads.published.arena import DIRECTORY, ROUND_S, THROUGHPUTS, data_are_there, simulated_cluster
from executor.control.options import ControlOptions, usual_options
from executor.simulation.figures import ReplayResult
from executor.simulation.known import Known
from executor.simulation.processes import replay_all
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import TruthParameters
from stowplan.errors import InputError
from workloads.readers import read_trace
from workloads.throughputs import read_throughputs

_HORIZONS_S = {"pai": None, "helios": None, "philly": 1673 * ROUND_S}
# Starts of fewer GPUs take so much of the seconds for each of them.
_PER_GPU = 0.25
_START_S = 40.0
_TRACES = list(_HORIZONS_S)
_SHOWN = (
    *("trace", "policy", "parameters", "ended", "jct_s", "ended_jct_s", "alone_s"),
    *("longest_wait_s", "restarts", "policy_cpu_s"),
)
_POLICIES = ["gang", "sia", "arena", "arena-ilp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """round_s: plan every so many seconds (None: after every event). num_rounds: of 300 s, after which the replay ends
    (None: that of the trace). start_s: how long a start on four GPUs takes, or on more."""

    round_s: float | None = None
    num_rounds: int | None = None
    start_s: float = _START_S


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    trace: str
    named: str
    rules: Rules


def main(
    traces: Annotated[list[str], typer.Option("--trace", help="May be repeated.")] = _TRACES,
    policies: Annotated[
        list[str], typer.Option("--policy", help='May be repeated; with parameters as arena:{"search_depth": 5}.')
    ] = _POLICIES,
    round_s: Annotated[float | None, typer.Option("--round", help="Plan every so many seconds.")] = None,
    num_rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="End after so many rounds of 300 s.")
    ] = None,
    start_s: Annotated[
        float,
        typer.Option("--start", min=1.0, help="Seconds of a start on four GPUs or more; fewer take a quarter each."),
    ] = _START_S,
    name: Annotated[str, typer.Option("--result", help="Name of the result file.")] = "arena_replays",
    processes: Annotated[int, typer.Option(min=1, help="Replays at a time.")] = 1,
) -> None:
    """Replay the traces of Arena under policies, all by the same rules."""
    if not data_are_there():
        raise InputError(f"there are no traces of Arena at {DIRECTORY}")
    unknown = set(traces) - set(_HORIZONS_S)
    if unknown:
        raise InputError(f"the traces are {', '.join(_HORIZONS_S)}, and not {', '.join(sorted(unknown))}")
    rules = Rules(round_s=round_s, num_rounds=num_rounds, start_s=start_s)
    tasks = [_Task(trace=trace, named=policy, rules=rules) for trace in traces for policy in policies]
    setups = [setup_of(task.trace, task.named, task.rules) for task in tasks]
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
        "round_s": task.rules.round_s,
        "num_rounds": task.rules.num_rounds,
        "start_s": task.rules.start_s,
        "jobs": result.num_jobs,
        "ended": result.num_finished,
        "jct_s": round(result.completion_s.mean),
        "ended_jct_s": round(ended_jct_s(result)),
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


def setup_of(trace: str, policy: str, rules: Rules) -> ReplaySetup:
    """A trace by the rules above."""
    (parameters,) = parameters_of(None, [policy], {}, known=Known.TABLE)
    return ReplaySetup(
        cluster=simulated_cluster(),
        trace=read_trace(DIRECTORY / f"trace_{trace}.csv", format_="arena"),
        control=ControlOptions(parameters=parameters, round_s=rules.round_s, options=usual_options(parameters)),
        truth=TruthParameters(start_s=rules.start_s, restart_s=rules.start_s, delay_per_gpu_s=_PER_GPU * rules.start_s),
        throughputs=read_throughputs(DIRECTORY / THROUGHPUTS),
        horizon_s=_HORIZONS_S[trace] if rules.num_rounds is None else rules.num_rounds * ROUND_S,
    )


def ended_jct_s(result: ReplayResult) -> float:
    """Mean from submission to end of the jobs that ended."""
    spent_s = [job.completion_s for job in result.jobs if job.ended_s is not None]
    return sum(spent_s) / max(1, len(spent_s))


def _decision_ms(result: ReplayResult) -> Sequence[float]:
    spread = result.decisions.cpu_s
    return [round(1e3 * value_s, 1) for value_s in (spread.median, spread.p95, spread.most)]
