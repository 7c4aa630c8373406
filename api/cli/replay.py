"""`stowplan replay`: what policies would have made of a trace of jobs."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter
from pydantic_core import to_json as to_json_bytes

from api.cli import console
from api.cli.clusters import CLUSTER_HELP, cluster_of
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.files import read_json
from api.cli.options import Catalogue, Json, Output, given, json_object, readable, write
from api.cli.pretty import pretty_json
from api.cli.replay_console import print_results
from api.cli.windows import window_seconds
from api.convert.reading import read_document
from api.schemas.parameters import PARAMETERS
from executor.control.controller import ControlOptions, Step
from executor.simulation.figures import ReplayResult
from executor.simulation.replay import OnStep, Replay, ReplaySetup, ReplayState
from executor.simulation.truth import Estimates, TruthParameters
from models.policies import POLICIES
from models.policy import Parameters, Policy
from stowplan.errors import InputError
from stowplan.records import from_document, to_document, to_json
from workloads.generators.failures import FailureParameters
from workloads.readers import READERS, read_trace
from workloads.throughputs import read_throughputs

_S_PER_HOUR = 3600.0
_DRAWN_EVERY_S = 0.2
_SAVED_EVERY_S = 30.0


@command("replay", epilog=EPILOG)
def replay_command(
    file: Annotated[Path, typer.Argument(metavar="TRACE", help="Trace of jobs, as for `stowplan trace`; - for stdin.")],
    cluster: Annotated[str, typer.Option(help=CLUSTER_HELP)],
    policies: Annotated[str, typer.Option(help=f"One or more of {', '.join(POLICIES)}, with commas.")] = "gang",
    performance: Annotated[
        Path | None,
        typer.Option(help="Table of throughputs by application; without it jobs run as long as they did in the trace."),
    ] = None,
    parameters: Annotated[str | None, typer.Option(help="Parameters of every policy, as a JSON object.")] = None,
    order: Annotated[str | None, typer.Option(help="Gang: fifo or priority.")] = None,
    backfill: Annotated[str | None, typer.Option(help="Gang: none or easy.")] = None,
    round_: Annotated[
        float | None, typer.Option("--round", help="Plan every so many seconds, not after events.")
    ] = None,
    estimates: Annotated[
        Estimates, typer.Option(help="What policies are told of durations: true ones, time limits, or nothing.")
    ] = Estimates.EXACT,
    noise: Annotated[float, typer.Option(help="Standard deviation of log(estimate / truth).")] = 0.0,
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
    seed: Annotated[int, typer.Option(min=0, help="Of noise and failures.")] = 0,
    format_: Annotated[str | None, typer.Option("--format", help=f"One of {', '.join(READERS)}.")] = None,
    columns: Annotated[str | None, typer.Option(help="What the columns of a table are.")] = None,
    window: Annotated[str | None, typer.Option(help="Only submissions from hour A of the trace to B: A,B.")] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Keep the state of the replay in this file, and go on from there; one policy only."),
    ] = None,
    json_: Json = False,
    output: Output = None,
    _catalogue: Catalogue = None,
) -> None:
    """Replay a trace of jobs on a cluster under policies, and compare when jobs end."""
    path = readable(file)
    trace = read_trace(path, format_=format_, columns=columns, name="stdin" if path != file else file.stem)
    if window is not None:
        trace = trace.window(*window_seconds(window))
    where = cluster_of(cluster)
    table = None if performance is None else read_throughputs(performance)
    named = {**json_object(parameters), **given({"order": order, "backfill": backfill})}
    truth = TruthParameters(
        start_s=start_delay,
        restart_s=restart_delay,
        delay_per_gpu_s=delay_per_gpu,
        checkpoint_s=None if checkpoints is None else 60 * checkpoints,
        estimates=estimates,
        noise=noise,
    )
    failures = None if mtbf is None else FailureParameters(mtbf_s=mtbf * _S_PER_HOUR, repair_s=repair * _S_PER_HOUR)
    chosen = _policies(policies, by_size=table is None)
    if state is not None and len(chosen) > 1:
        raise InputError(f"--state is of one replay; {policies!r} names {len(chosen)} policies")
    setups = [
        ReplaySetup(
            cluster=where,
            trace=trace,
            control=ControlOptions(parameters=_parameters(known, named), round_s=round_),
            truth=truth,
            throughputs=table,
            failures=failures,
            horizon_s=None if horizon is None else horizon * _S_PER_HOUR,
            seed=seed,
        )
        for known in chosen
    ]
    results = [_replayed(setup, state) for setup in setups]
    document = {"replays": [to_document(result) for result in results]}
    if output is not None:
        write(output, (pretty_json(document) + "\n").encode())
    if json_:
        sys.stdout.write(pretty_json(document) + "\n")
    else:
        print_results(results)


def _policies(text: str, *, by_size: bool) -> list[Policy]:
    """The policies that were named; `by_size`: of jobs nothing but the size is known.

    Raises
    ------
    InputError
        When one is unknown, or needs more of jobs than a trace has.
    """
    able = [name for name, policy in POLICIES.items() if policy.plans_by_size or not by_size]
    names = text.split(",")
    for name in names:
        if name not in POLICIES:
            raise InputError(f"--policies: {name!r} is no policy; choose of {', '.join(POLICIES)}")
        if name not in able:
            raise InputError(
                f"--policies: {name!r} has to know how fast jobs train; give --performance, or choose of "
                f"{', '.join(able)}"
            )
    return [POLICIES[name] for name in names]


def _parameters(policy: Policy, values: dict[str, Any]) -> Parameters:
    """The parameters of a policy, those that were not given at their defaults."""
    document = read_document(TypeAdapter(PARAMETERS[policy.name]), to_json_bytes(values), "parameters")
    return document.parameters_for(policy)


def _replayed(setup: ReplaySetup, kept: Path | None) -> ReplayResult:
    """Replay, from the state that was kept where there is one."""
    there = kept is not None and kept.exists()
    replay = Replay(
        setup, state=from_document(ReplayState, read_json(kept), f"state {kept}") if kept and there else None
    )
    with _following(setup.policy) as follow:
        saved_s = time.monotonic()

        def on_step(replay: Replay, step: Step) -> None:
            nonlocal saved_s
            follow(replay, step)
            if kept is not None and time.monotonic() - saved_s > _SAVED_EVERY_S:
                _save(kept, replay)
                saved_s = time.monotonic()

        try:
            return replay.run(on_step)
        finally:
            if kept is not None:
                _save(kept, replay)


def _save(kept: Path, replay: Replay) -> None:
    """Write the state so that the file is whole at every moment."""
    part = kept.with_name(kept.name + ".part")
    write(part, to_json(replay.state()).encode())
    part.replace(kept)


@contextmanager
def _following(policy: str) -> Iterator[OnStep]:
    """A line that follows a replay, where somebody looks on."""
    screen = console.errors()
    if not screen.is_terminal:
        yield lambda *_: None
        return
    drawn_s = 0.0
    with screen.status(f"{policy}  starting") as status:

        def draw(replay: Replay, step: Step) -> None:
            nonlocal drawn_s
            if time.monotonic() - drawn_s > _DRAWN_EVERY_S:
                drawn_s = time.monotonic()
                ended = replay.num_jobs - replay.num_left
                status.update(
                    f"{policy}  {ended:,} of {replay.num_jobs:,} jobs ended  hour {step.at_s / _S_PER_HOUR:,.1f}"
                )

        yield draw
