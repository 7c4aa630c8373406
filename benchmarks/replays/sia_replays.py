"""Sia (SOSP'23) on its traces: the applications as they were profiled, on the 64 GPUs of its simulation.

    python -m benchmarks sia-replays --trace helios/workload-1 --processes 2

Rules, those of the released simulator: a plan every 60 s; after it got GPUs, the first time too, a job does no work for
as long as its application needs for a checkpoint and its restore, and keeps them until then; steps take `_SLOWDOWNS`
times as long as was measured, which no policy knows; a job may get twice as many GPUs as it ever had. What policies are
told: see `--told`; with `--shared` jobs of an application share what they have measured. `gavel` is told how fast a job
trains on average by GPU type, with the GPUs and the batch that it asked for; its rounds should be longer (`--round`).

`alone` is the mean of the jobs each alone on the cluster in the one configuration where it ends first, with the best
batch in every epoch.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import typer

from api.cli.replay_policies import parameters_of
from benchmarks.rows import Row, show, write
from benchmarks.workloads.published.sia_traces import APPLICATIONS, DATA, sia_cluster
from executor.control.options import ControlOptions, usual_options
from executor.simulation.figures import ReplayResult
from executor.simulation.known import Known
from executor.simulation.processes import replay_all
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import Profiling, TruthParameters
from stowplan.errors import InputError
from workloads.profiles import ApplicationProfile, read_profiles
from workloads.readers import read_trace
from workloads.trace import Trace

_S_PER_HOUR = 3600.0
# What the policy of the released simulator takes a restart for, where that is not what it costs there.
_PLANNED_RESTARTS_S = {"cifar10": 30.0, "yolov3": 45.0, "ncf": 30.0}
_SLOWDOWNS = {"cifar10": 1.8, "ncf": 1.5}
_SLOWDOWN = 1.2
# Above this a step of DeepSpeech2 does not fit the memory of that type.
_MAX_LOCAL_BATCHES = {("deepspeech2", "rtx"): 57}
_TRACES = ["helios/workload-1"]
_POLICIES = ["sia"]
_SHOWN = ("trace", "policy", "parameters", "ended", "jct_h", "alone_h", "p99_h", "makespan_h", "restarts", "gpu_h")


def main(
    traces: Annotated[list[str], typer.Option("--trace", help="As in helios/workload-1; may be repeated.")] = _TRACES,
    policies: Annotated[
        list[str], typer.Option("--policy", help='May be repeated; with parameters as sia:{"restart_price": 2}.')
    ] = _POLICIES,
    told: Annotated[Profiling, typer.Option(help="What is known of a job before it has run.")] = Profiling.RELEASED,
    shared: Annotated[bool, typer.Option(help="Jobs of an application share what they measured.")] = False,
    round_s: Annotated[float, typer.Option("--round", help="Plan every so many seconds.")] = 60.0,
    name: Annotated[str, typer.Option("--result", help="Name of the result file.")] = "sia_replays",
    processes: Annotated[int, typer.Option(min=1, help="Replays at a time.")] = 1,
) -> None:
    """Replay the traces of Sia under policies, all by the same rules."""
    if not DATA.is_dir():
        raise InputError(f"there are no traces of Sia at {DATA}")
    tasks = [(trace, policy) for trace in traces for policy in policies]
    truth = TruthParameters(profiling=told, shared_models=shared)
    setups = [setup_of(trace, policy, truth, round_s) for trace, policy in tasks]
    rows = []
    for (trace, policy), result in zip(tasks, replay_all(setups, processes), strict=True):
        rows.append({"told": told.value, "shared": shared, "round_s": round_s, **_row(trace, policy, result)})
        print(rows[-1], flush=True)
    protocol = "rules: see benchmarks/replays/sia_replays.py; one process a replay, CPU seconds of one thread"
    show(protocol, [{name: row[name] for name in _SHOWN} for row in rows])
    print(write(name, protocol, rows))


def setup_of(
    trace: str,
    policy: str,
    truth: TruthParameters,
    round_s: float | None = 60.0,
    *,
    true_restarts: bool = False,
) -> ReplaySetup:
    """A trace by the rules above. round_s: None to plan after every event. true_restarts: policies are told what a
    restart costs, not what the released one takes it for."""
    jobs = read_trace(DATA / "workloads" / f"{trace}.csv", format_="sia")
    (parameters,) = parameters_of(None, [policy], {}, known=Known.FOLDER)
    return ReplaySetup(
        cluster=sia_cluster(),
        trace=jobs,
        control=ControlOptions(parameters=parameters, round_s=round_s, settle=True, options=usual_options(parameters)),
        truth=truth,
        profiles=_profiles(jobs, {} if true_restarts else _PLANNED_RESTARTS_S),
    )


def _profiles(trace: Trace, planned_restarts_s: Mapping[str, float]) -> tuple[ApplicationProfile, ...]:
    """Of the applications of a trace, with what the simulator says of each."""
    gpu_types = [kind.name for kind in sia_cluster().gpu_types]
    names = {job.application for job in trace.jobs if job.application is not None}
    return tuple(
        replace(
            profile,
            types=tuple(
                replace(
                    kind,
                    max_local_batch=_MAX_LOCAL_BATCHES.get((profile.application, kind.gpu_type), kind.max_local_batch),
                )
                for kind in profile.types
            ),
            restart_s=APPLICATIONS[profile.application].restart_cost_s,
            planned_restart_s=planned_restarts_s.get(profile.application),
            slowdown=_SLOWDOWNS.get(profile.application, _SLOWDOWN),
        )
        for profile in read_profiles(DATA / "profiles", names, gpu_types)
    )


def _row(trace: str, policy: str, result: ReplayResult) -> Row:
    name, _, parameters = policy.partition(":")
    spread = result.decisions.cpu_s
    return {
        "trace": trace,
        "policy": name,
        "parameters": parameters,
        "jobs": result.num_jobs,
        "ended": result.num_finished,
        "jct_h": round(result.completion_s.mean / _S_PER_HOUR, 4),
        "alone_h": round(result.floor_completion_s / _S_PER_HOUR, 4),
        "median_h": round(result.completion_s.median / _S_PER_HOUR, 4),
        "p99_h": round(result.completion_s.p99 / _S_PER_HOUR, 3),
        "makespan_h": round(result.makespan_s / _S_PER_HOUR, 2),
        "restarts": round(result.num_restarts, 2),
        "restarts_by_kind": {kind: round(number, 2) for kind, number in result.restarts.items()},
        "gpu_h": round(result.gpu_hours / max(1, result.num_jobs), 3),
        "decisions": result.decisions.num_planned,
        "decision_ms": [round(1e3 * value_s, 1) for value_s in (spread.median, spread.p95, spread.most)],
        "policy_cpu_s": round(result.decisions.total_cpu_s, 1),
        "other_cpu_s": round(result.other_cpu_s, 1),
    }
