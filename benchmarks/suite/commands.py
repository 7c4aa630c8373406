"""Run suites; show, draw and compare their results."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from benchmarks.rows import command_line
from benchmarks.suite.compare import WORSE, Comparison, compare
from benchmarks.suite.external import EXTERNAL_SOLVERS
from benchmarks.suite.figures import write_figures
from benchmarks.suite.record import Protocol, RunRecord, read_result
from benchmarks.suite.registry import SUITES, all_cases, chosen_cases, suite_cases
from benchmarks.suite.report import put_into, report
from benchmarks.suite.run import orders, run_suite
from benchmarks.suite.table import output, result_table, run_line, target_table
from benchmarks.suite.task import RunOrder
from solver.registry import SOLVER_NAMES
from stowplan.errors import InputError

_DEFAULT_SOLVERS = "decomposition,exact,highs,scip"
_WORSE = 1


def list_() -> None:
    """List the suites and all cases that can be made here."""
    console = output()
    for suite, patterns in SUITES.items():
        console.print(f"suite {suite}: {', '.join(patterns)}")
    table = Table("case", "size", "source")
    for case in all_cases().values():
        table.add_row(case.name, ", ".join(f"{value:g} {name}" for name, value in case.size.items()), case.source)
    console.print(table)


def run(
    suite: Annotated[str, typer.Option(help=f"One of: {', '.join(SUITES)}.")] = "smoke",
    cases: Annotated[str, typer.Option(help="Patterns of case names instead of a suite, separated by commas.")] = "",
    solvers: Annotated[
        str, typer.Option(help="Separated by commas; each is used where it applies.")
    ] = _DEFAULT_SOLVERS,
    runs: Annotated[int, typer.Option(min=1, help="Runs of every case, seed and solver.")] = 3,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0, 1, ... of generated cases.")] = 1,
    limit: Annotated[float, typer.Option(help="Time limit of every solve, seconds of wall clock.")] = 60.0,
    gap: Annotated[float, typer.Option(help="Relative gap at which a solve ends.")] = 1e-4,
    result: Annotated[Path, typer.Option("--output", help="Where the result goes, as JSON.")] = Path("benchmark.json"),
) -> None:
    """Run a suite: every run in a process of its own, one after another."""
    chosen = chosen_cases(cases.split(",")) if cases else suite_cases(suite)
    protocol = Protocol(
        suite=cases or suite,
        solvers=_known_solvers(solvers),
        num_runs=runs,
        seeds=tuple(range(seeds)),
        limit_s=limit,
        relative_gap=gap,
    )
    console = output()
    with _progress(sum(1 for _ in orders(chosen, protocol)), runs) as watch:
        measured = run_suite(chosen, protocol, command_line(), result, watch)
    console.print(result_table(measured))
    targets = target_table(measured)
    if targets is not None:
        console.print(targets)
    console.print(f"written to {result}", soft_wrap=True)


def figures(
    result: Annotated[Path, typer.Argument(help="A result of `run`.")],
    folder: Annotated[Path, typer.Option("--output", help="Folder for the pictures.")] = Path("figures"),
) -> None:
    """Draw latency by scale, single cases, gap over time and the share of the phases."""
    console = output()
    for path in write_figures(read_result(result), folder):
        console.print(f"{path} and .svg", soft_wrap=True)


def report_(
    results: Annotated[list[Path] | None, typer.Argument(help="Results of `run`.")] = None,
    into: Annotated[Path | None, typer.Option(help="Put them between the marks of this document instead.")] = None,
) -> None:
    """Print targets and tables as Markdown, or put them into `benchmarks/README.md`."""
    text = report([read_result(path) for path in results or ()])
    if into is None:
        typer.echo(text, nl=False)
    else:
        put_into(into, text)


def compare_(
    before: Annotated[Path, typer.Argument(help="An earlier result.")],
    after: Annotated[Path, typer.Argument(help="A later result.")],
    fail: Annotated[bool, typer.Option("--fail", help="Exit with 1 when anything got worse.")] = False,
) -> None:
    """Say what changed between two results, beyond the noise."""
    found = compare(read_result(before), read_result(after))
    _print_comparison(found)
    if fail and any(difference.verdict in WORSE for difference in found.differences):
        raise typer.Exit(_WORSE)


def _print_comparison(found: Comparison) -> None:
    console = output()
    for remark in found.remarks:
        console.print(Text(remark, style="yellow"), soft_wrap=True)
    if not found.differences:
        console.print(f"nothing changed beyond the noise in {found.num_pairs} pairs of case and solver")
        return
    table = Table("case", "solver", "what", "before", "after", "")
    for item in found.differences:
        style = "red" if item.verdict in WORSE else ""
        table.add_row(item.case, item.solver, item.what, item.before, item.after, Text(item.verdict.value, style=style))
    console.print(table)
    console.print(f"{len(found.differences)} changes in {found.num_pairs} pairs of case and solver")


def _known_solvers(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    known = (*SOLVER_NAMES, *EXTERNAL_SOLVERS)
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise InputError(f"unknown solvers {unknown}; there are {', '.join(known)}")
    return names


@contextmanager
def _progress(total: int, runs: int) -> Iterator[Any]:
    """A line per finished run, and on a terminal a bar with what runs now; unproven runs are not repeated."""
    left = total
    console = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=total)

        def watch(order: RunOrder, record: RunRecord | None) -> None:
            nonlocal left
            if record is None:
                bar.update(task, description=f"{order.case} {order.solver}")
            else:
                left -= 0 if record.is_proven else runs - order.run - 1
                bar.update(task, advance=1, total=left)
                bar.console.print(run_line(record), soft_wrap=True)

        yield watch
