"""`stowplan replay`: what policies would have made of a trace of jobs."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from api.cli.busy import busy
from api.cli.clusters import CLUSTER_HELP, cluster_of
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.options import Json, Output, given, picture_format
from api.cli.paths import Catalogue, readable, write
from api.cli.pretty import pretty_json
from api.cli.replay_calendar import calendar_of, origin_of
from api.cli.replay_console import print_results
from api.cli.replay_policies import known_of, parameters_of
from api.cli.replay_run import drawn, results_of
from api.cli.windows import window_seconds
from executor.control.options import ControlOptions, usual_options
from executor.simulation.known import Known
from executor.simulation.setup import ReplaySetup
from executor.simulation.truth import Estimates, Profiling, TruthParameters
from models.allocation.gang.parameters import QueueOrder
from models.policies import POLICIES
from stowplan.errors import InputError
from stowplan.records import to_document
from workloads.generators.failures import FailureParameters
from workloads.profiles import read_profiles
from workloads.readers import READERS, read_trace
from workloads.throughputs import read_throughputs

_S_PER_HOUR = 3600.0


@command("replay", epilog=EPILOG)
def replay_command(
    file: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace of jobs, as for `stowplan trace`; - for stdin.")],
    cluster: Annotated[str, typer.Option(help=CLUSTER_HELP)],
    policies: Annotated[
        str | None, typer.Option(help=f"One or more of {', '.join(POLICIES)}, with commas.", show_default="gang")
    ] = None,
    policy: Annotated[
        list[str] | None,
        typer.Option(help='One with parameters, as in arena:{"search_depth": 5}; may be repeated.'),
    ] = None,
    performance: Annotated[
        Path | None,
        typer.Option(
            help="Table of throughputs by application, or a folder of applications as Sia measured them (placements-*, "
            "validation-*); without it jobs run as long as they did in the trace."
        ),
    ] = None,
    modelled: Annotated[
        bool,
        typer.Option(
            help="Jobs train models of the catalogue (`application`), as fast as the performance model says of the 3D "
            "plan that they run."
        ),
    ] = False,
    told: Annotated[
        Profiling,
        typer.Option(help="Folder: what policies are told of a job; steps on one GPU from the start, or less."),
    ] = Profiling.ONE_GPU,
    shared: Annotated[bool, typer.Option(help="Folder: jobs of an application share what they measure.")] = False,
    order: Annotated[str | None, typer.Option(help=f"Gang: {', '.join(QueueOrder)}.")] = None,
    backfill: Annotated[str | None, typer.Option(help="Gang: none or easy.")] = None,
    round_: Annotated[
        float | None, typer.Option("--round", help="Plan every so many seconds, not after events.")
    ] = None,
    settle: Annotated[
        bool, typer.Option(help="Jobs of known performance keep the GPUs they got until they work, at least.")
    ] = False,
    charge: Annotated[
        float, typer.Option(help="Jobs start so many times the CPU seconds of the decision later; not repeatable.")
    ] = 0.0,
    estimates: Annotated[
        Estimates, typer.Option(help="What policies are told of durations: true ones, time limits, or nothing.")
    ] = Estimates.EXACT,
    noise: Annotated[float, typer.Option(help="Standard deviation of log(estimate / truth).")] = 0.0,
    elasticity: Annotated[
        float, typer.Option(help="How many times fewer or more GPUs a job of known speed may get than it asked for.")
    ] = 4.0,
    start_delay: Annotated[float, typer.Option(help="Seconds that a start takes.")] = 0.0,
    restart_delay: Annotated[float, typer.Option(help="Seconds that a start takes after the first.")] = 0.0,
    delay_per_gpu: Annotated[
        float | None, typer.Option(help="Starts of few GPUs take only so many seconds for each of them.")
    ] = None,
    mtbf: Annotated[float | None, typer.Option(help="Hours between failures of a node, on average.")] = None,
    repair: Annotated[float, typer.Option(help="Hours until a node is back.")] = 1.0,
    checkpoints: Annotated[
        float | None,
        typer.Option(help="Minutes of work between checkpoints; without them a job that breaks begins anew."),
    ] = None,
    horizon: Annotated[
        float | None, typer.Option(help="Hours after which the replay ends; needed for failures.")
    ] = None,
    calendar: Annotated[
        Path | None,
        typer.Option(
            help="JSON file with a list of entries, or an object with them as `entries`, or a snapshot: who has which "
            "nodes when."
        ),
    ] = None,
    calendar_known: Annotated[
        float, typer.Option(min=0, help="Hours of the trace until which nobody knows of the calendar.")
    ] = 0.0,
    reserved: Annotated[
        list[str] | None, typer.Option(metavar="JOB=ENTRY", help="Job that belongs to a reservation; repeatable.")
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When time zero of the trace was, such as 2026-12-07T09:00:00Z, for a calendar; by default what the "
            "trace says.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of noise and failures.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Replay with so many seeds, from --seed on.")] = 1,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Replays at a time; as many as there are processors by default.")
    ] = None,
    format_: Annotated[str | None, typer.Option("--format", help=f"One of {', '.join(READERS)}.")] = None,
    columns: Annotated[str | None, typer.Option(help="What the columns of a table are.")] = None,
    window: Annotated[str | None, typer.Option(help="Only submissions from hour A of the trace to B: A,B.")] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Keep the state of the replay in this file, and go on from there; one replay only."),
    ] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the replays into this .svg or .png file.")] = None,
    json_: Json = False,
    output: Output = None,
    _catalogue: Catalogue = None,
) -> None:
    """Replay a trace of jobs on a cluster under policies, and compare when jobs end."""
    path, picture = readable(file), picture_format(figure)
    with busy(f"reading {file}"):
        trace = read_trace(path, format_=format_, columns=columns, name="stdin" if path != file else file.stem)
    if origin is not None:
        trace = replace(trace, origin_s=origin_of(origin))
    if window is not None:
        trace = trace.window(*window_seconds(window))
    where = cluster_of(cluster)
    known = known_of(performance, modelled=modelled)
    table = read_throughputs(performance) if performance is not None and known is Known.TABLE else None
    profiles = None
    if performance is not None and known is Known.FOLDER:
        names = {job.application for job in trace.jobs if job.application is not None}
        if not names:
            raise InputError(f"no job of {trace.name!r} says which application it is, by which {performance} goes")
        profiles = read_profiles(performance, names, [kind.name for kind in where.gpu_types])
    gang = given({"order": order, "backfill": backfill})
    truth = TruthParameters(
        start_s=start_delay,
        restart_s=restart_delay,
        delay_per_gpu_s=delay_per_gpu,
        elasticity=elasticity,
        checkpoint_s=None if checkpoints is None else 60 * checkpoints,
        estimates=estimates,
        noise=noise,
        profiling=told,
        shared_models=shared,
    )
    failures = None if mtbf is None else FailureParameters(mtbf_s=mtbf * _S_PER_HOUR, repair_s=repair * _S_PER_HOUR)
    horizon_s = None if horizon is None else horizon * _S_PER_HOUR
    known_s = calendar_known * _S_PER_HOUR
    known_calendar = calendar_of(calendar, reserved or [], trace, where, known_s=known_s, horizon_s=horizon_s)
    chosen = parameters_of(policies, policy or [], gang, known=known)
    if state is not None and len(chosen) * seeds > 1:
        raise InputError(f"--state is of one replay; there are {len(chosen) * seeds}")
    setups = [
        ReplaySetup(
            cluster=where,
            trace=trace,
            control=ControlOptions(
                parameters=parameters, round_s=round_, settle=settle, charge=charge, options=usual_options(parameters)
            ),
            truth=truth,
            throughputs=table,
            profiles=profiles,
            modelled=modelled,
            failures=failures,
            horizon_s=horizon_s,
            calendars=known_calendar.changes,
            reserved_for=known_calendar.reserved_for,
            seed=number,
        )
        for parameters in chosen
        for number in range(seed, seed + seeds)
    ]
    results = results_of(setups, state, processes)
    if figure is not None and picture is not None:
        with busy(f"drawing {figure}"):
            write(figure, drawn(results, where, picture))
    document = {"replays": [to_document(result) for result in results]}
    if output is not None:
        write(output, (pretty_json(document) + "\n").encode())
    if json_:
        sys.stdout.write(pretty_json(document) + "\n")
    else:
        print_results(results)
