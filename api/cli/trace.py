"""`stowplan trace`: what a trace of jobs holds, and the same jobs as a table that every reader of traces takes."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG
from api.cli.options import Json
from api.cli.paths import readable
from api.cli.pretty import pretty_json
from api.cli.trace_console import print_summary
from api.cli.windows import window_seconds
from stowplan.records import to_document
from workloads.readers import READERS, read_trace
from workloads.summary import summarise
from workloads.trace import Trace
from workloads.writer import write_csv


@command("trace", epilog=EPILOG)
def trace_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Trace of jobs; - for standard input.")],
    format_: Annotated[
        str | None,
        typer.Option("--format", help=f"One of {', '.join(READERS)}; told from the first line where that is clear."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="What the columns of a table are: submit=submit_time,gpus=gpu_num,duration=run_min:min."),
    ] = None,
    queue: Annotated[list[str] | None, typer.Option(help="Only jobs of this queue; may be repeated.")] = None,
    window: Annotated[str | None, typer.Option(help="Only submissions from hour A of the trace to B: A,B.")] = None,
    gpu_only: Annotated[bool, typer.Option("--gpu-only", help="Only jobs with GPUs.")] = False,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs of a cluster: the load is told in its share.")] = None,
    json_: Json = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the jobs to this file, as CSV.")] = None,
) -> None:
    """Summarise a trace of jobs: how many, how large, how long, what load, what is missing."""
    path = readable(file)
    name = "stdin" if path != file else file.stem
    with busy(f"reading {file}"):
        trace = read_trace(path, format_=format_, columns=columns, name=name)
        trace = _chosen(trace, tuple(queue or ()), window, gpu_only=gpu_only)
        summary = summarise(trace)
    if json_:
        document: dict[str, Any] = to_document(summary)
        sys.stdout.write(pretty_json(document) + "\n")
    else:
        print_summary(summary, gpus)
    if output is not None:
        write_csv(trace, output)


def _chosen(trace: Trace, queues: tuple[str, ...], window: str | None, *, gpu_only: bool) -> Trace:
    """The jobs that were asked for."""
    if queues:
        trace = trace.in_queues(*queues)
    if gpu_only:
        trace = trace.gpu_only()
    return trace if window is None else trace.window(*window_seconds(window))
