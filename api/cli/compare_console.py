"""What the command line prints of a comparison of solvers."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from api.cli import console as common
from api.common.wording import duration, ending_words, memory, number, percent
from api.schemas.comparison import ComparisonResultDoc, SolverRunDoc


def print_run(run: SolverRunDoc) -> None:
    """One line as soon as a solver is done, where progress goes."""
    ended = f"failed: {run.failure.detail}" if run.failure else f"{_ending(run)} in {duration(run.total_ms)}"
    common.errors().print(f"{escape(run.solver)}: {escape(ended)}", soft_wrap=True)


def print_comparison(screen: Console, result: ComparisonResultDoc) -> None:
    """Answers, times, failures, and whether the answers agree."""
    answered = [run for run in result.runs if run.failure is None]
    if answered:
        screen.print(_answers(answered))
        screen.print()
        screen.print(_times(answered))
        screen.print()
    for run in result.runs:
        if run.failure is not None:
            screen.print(f"[bold]{escape(run.solver)}[/] failed: {escape(run.failure.detail)}", soft_wrap=True)
    if result.agreement is not None:
        style = "bold red" if result.agreement.errors else "bold"
        screen.print(f"[{style}]{escape(result.agreement.statement)}[/]", soft_wrap=True)
        for error in result.agreement.errors:
            screen.print(f"  {escape(error)}", soft_wrap=True)


def _answers(runs: Sequence[SolverRunDoc]) -> Table:
    table = _table("solver", "answered by", "ended", right=("objective", "bound", "gap", "nodes", "verified"))
    for run in runs:
        used = run.solver_used
        nodes = None if run.size is None else run.size.num_nodes
        table.add_row(
            escape(run.solver),
            "-" if used is None else escape(f"{used.name} {used.version}"),
            _ending(run),
            number(run.objective),
            number(run.bound),
            percent(run.relative_gap),
            "-" if nodes is None else str(nodes),
            "yes" if run.verified else "-",
        )
    return table


def _times(runs: Sequence[SolverRunDoc]) -> Table:
    """Wall-clock time per phase, in the order in which phases run."""
    phases = list(dict.fromkeys(name for run in runs for name in run.phases_ms))
    table = _table("solver", right=(*phases, "total", "CPU", "first plan", "peak memory"))
    for run in runs:
        table.add_row(
            escape(run.solver),
            *(duration(run.phases_ms.get(name)) for name in phases),
            duration(run.total_ms),
            duration(run.cpu_ms),
            duration(run.first_incumbent_ms),
            memory(run.peak_memory_bytes),
        )
    return table


def _ending(run: SolverRunDoc) -> str:
    ended = run.termination
    return "-" if ended is None else ending_words(ended.reason, ended.limit)


def _table(*left: str, right: Sequence[str]) -> Table:
    table = Table(*left, box=None, pad_edge=False, header_style="bold")
    for name in right:
        table.add_column(name, justify="right")
    return table
