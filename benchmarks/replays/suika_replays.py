"""Suika (section 5.2; section 5.5 for 1,024 GPUs) on its workload: LLM trainings of Table 1, submitted as in Philly.

    python -m benchmarks suika-replays --seeds 4 --processes 2

Rules. Traced jobs that ran longer than the window are left out: one of those that ran for weeks would decide the mean.
Jobs train as fast as the performance model says of the plan that they run on these GPUs; with `--noise` a plan
is faster or slower than that by a factor of its own, which no policy knows. Jobs ask for the GPUs of Table 1, and start
with the fastest symmetric plan on them. After every change of its GPUs or its plan a job does no work for `--restart`
seconds, whatever the policy; the first start takes as long. Suika plans after every event, Sia every 60 s, as in the
paper. Nodes of 8 H100; on 1,024 GPUs racks of 16 nodes with half the bandwidth between them, and models up to 175B.

gang       what was asked for, first come, first served: the non-elastic scheduler of the paper (with `backfill` none)
sia        by throughputs, data parallelism only
suika      with `{"planning": {"scaling": "data"}}` the paper's Suika-DP

`alone` is the mean of the jobs each alone on the fastest known plan of 1, 2, 4, ... or all GPUs.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Annotated

import typer

from api.cli.replay_policies import parameters_of
from benchmarks.paths import PUBLISHED
from benchmarks.rows import Row, show, write
from benchmarks.workloads.suika_events import rack_cluster
from executor.control.options import ControlOptions, usual_options
from executor.simulation.figures import ReplayResult
from executor.simulation.known import Known
from executor.simulation.processes import replay_all
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import TruthParameters
from models.policies import policy_of
from stowplan.errors import InputError
from workloads.generators.suika import SUIKA_64, SUIKA_1024, suika_workload
from workloads.readers import read_trace
from workloads.trace import Trace

PHILLY = PUBLISHED / "traces" / "philly.csv"
_SETTINGS = {setting.num_gpus: setting for setting in (SUIKA_64, SUIKA_1024)}
_GPUS_PER_NODE = 8
_ROUNDS_S = {"sia": 60.0}
# No bound on what a job may get beyond that of the cluster.
_ELASTICITY = 1024.0
RESTART_S = 60.0
_POLICIES = ['gang:{"backfill": "none"}', "sia", 'suika:{"planning": {"scaling": "data"}}', "suika"]
_SHOWN = ("seed", "policy", "noise", "jobs", "jct_s", "wjct_s", "alone_s", "longest_wait_s", "busy", "restarts")


def main(
    num_gpus: Annotated[int, typer.Option("--gpus", help="64 (8 h) or 1024 (24 h).")] = 64,
    seeds: Annotated[int, typer.Option(min=1, help="Workloads, from seed 0 on.")] = 1,
    load: Annotated[float, typer.Option(help="GPU time of the jobs over that of the cluster in the window.")] = 1.0,
    policies: Annotated[
        list[str], typer.Option("--policy", help='May be repeated; with parameters as suika:{"queueing": "sjf"}.')
    ] = _POLICIES,
    noises: Annotated[list[float], typer.Option("--noise", help="May be repeated.")] = [0.0],  # noqa: B006 - typer reads it
    restart_s: Annotated[float, typer.Option("--restart", help="Seconds without work after a change.")] = RESTART_S,
    name: Annotated[str, typer.Option("--result", help="Name of the result file.")] = "suika_replays",
    processes: Annotated[int, typer.Option(min=1, help="Replays at a time.")] = 1,
) -> None:
    """Replay the workload of Suika under policies, all by the same rules."""
    if num_gpus not in _SETTINGS:
        raise InputError(f"there are settings of {' and '.join(map(str, _SETTINGS))} GPUs, and none of {num_gpus}")
    if not PHILLY.exists():
        raise InputError(f"there is no trace of Philly at {PHILLY}")
    tasks = [(seed, policy, noise) for seed in range(seeds) for noise in noises for policy in policies]
    workloads = [workload_of(num_gpus, seed, load) for seed in range(seeds)]
    setups = [setup_of(workloads[seed], num_gpus, policy, noise, restart_s, seed) for seed, policy, noise in tasks]
    rows, results = [], []
    for task, result in zip(tasks, replay_all(setups, processes), strict=True):
        results.append(result)
        rows.append({"gpus": num_gpus, "load": load, "restart_s": restart_s, **_row(*task, result)})
        print(rows[-1], flush=True)
    protocol = "rules: see benchmarks/replays/suika_replays.py; one process a replay, CPU seconds of one thread"
    show(protocol, [{name: row[name] for name in _SHOWN} for row in rows])
    show("over the seeds; against the first policy", _means([(noise, policy) for _, policy, noise in tasks], results))
    print(write(name, protocol, rows))


def workload_of(num_gpus: int, seed: int, load: float, hours: float | None = None) -> Trace:
    """A workload by the rules above, of so many hours (None: as many as in the paper)."""
    setting = replace(_SETTINGS[num_gpus], load=load)
    if hours is not None:
        setting = replace(setting, window_s=hours * 3600)
    short = _philly().where(lambda job: (job.duration_s or 0.0) <= setting.window_s)
    return suika_workload(short, setting, seed)


@cache
def _philly() -> Trace:
    return read_trace(PHILLY, format_="philly")


def setup_of(workload: Trace, num_gpus: int, policy: str, noise: float, restart_s: float, seed: int) -> ReplaySetup:
    """A replay of a workload by the rules above."""
    (parameters,) = parameters_of(None, [policy], {}, known=Known.MODELS)
    return ReplaySetup(
        cluster=rack_cluster(num_gpus // _GPUS_PER_NODE),
        trace=workload,
        control=ControlOptions(
            parameters=parameters, round_s=_ROUNDS_S.get(policy_of(parameters).name), options=usual_options(parameters)
        ),
        truth=TruthParameters(start_s=restart_s, restart_s=restart_s, elasticity=_ELASTICITY, noise=noise),
        modelled=True,
        seed=seed,
    )


def _row(seed: int, policy: str, noise: float, result: ReplayResult) -> Row:
    spread = result.decisions.cpu_s
    return {
        "seed": seed,
        "policy": policy,
        "noise": noise,
        "jobs": result.num_jobs,
        "ended": result.num_finished,
        "jct_s": round(result.completion_s.mean, 1),
        "wjct_s": round(result.weighted_completion_s, 1),
        "alone_s": round(result.floor_completion_s, 1),
        "p99_s": round(result.completion_s.p99),
        "longest_wait_s": round(result.waited_s.most),
        "makespan_h": round(result.makespan_s / 3600, 2),
        "busy": round(result.utilisation, 3),
        "restarts": round(result.num_restarts, 2),
        "restarts_by_kind": {kind: round(number, 2) for kind, number in result.restarts.items()},
        "decisions": result.decisions.num_planned,
        "decision_ms": [round(1e3 * value_s, 1) for value_s in (spread.median, spread.p95, spread.most)],
        "policy_cpu_s": round(result.decisions.total_cpu_s, 1),
        "other_cpu_s": round(result.other_cpu_s, 1),
    }


def _means(tasks: Sequence[tuple[float, str]], results: Sequence[ReplayResult]) -> list[Row]:
    """Completion times by noise and policy, mean over the seeds, and how many times those of the first policy are as
    long."""
    groups: dict[tuple[float, str], list[ReplayResult]] = {}
    for task, result in zip(tasks, results, strict=True):
        groups.setdefault(task, []).append(result)
    rows: list[Row] = []
    for (noise, policy), of_policy in groups.items():
        first = groups[noise, tasks[0][1]]
        jct_s, wjct_s = _completion_s(of_policy), _weighted_s(of_policy)
        rows.append(
            {
                "noise": noise,
                "policy": policy,
                "jct_s": jct_s,
                "wjct_s": wjct_s,
                "busy": fmean(result.utilisation for result in of_policy),
                "restarts": fmean(result.num_restarts for result in of_policy),
                "first/jct": _completion_s(first) / jct_s,
                "first/wjct": _weighted_s(first) / wjct_s,
            }
        )
    return rows


def _completion_s(results: Sequence[ReplayResult]) -> float:
    return fmean(result.completion_s.mean for result in results)


def _weighted_s(results: Sequence[ReplayResult]) -> float:
    return fmean(result.weighted_completion_s for result in results)
