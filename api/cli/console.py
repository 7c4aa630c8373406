"""Where the command line prints, and how it prints errors and warnings."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from stowplan.errors import Issue, Severity, StowplanError

_PIPE_WIDTH = 140
_MAX_ISSUES_SHOWN = 40


def output() -> Console:
    """Where answers go; wide when it is no terminal."""
    return _wide(Console(highlight=False))


def errors() -> Console:
    """Where everything else goes."""
    return _wide(Console(stderr=True, highlight=False))


def print_error(error: StowplanError) -> None:
    """The detail, and a line per issue with its pointer."""
    console = errors()
    console.print(f"[bold red]error:[/] {escape(error.detail)}", soft_wrap=True)
    print_issues(console, error.issues)


def print_issues(console: Console, issues: Sequence[Issue]) -> None:
    """One line per issue, as many as can be read."""
    for issue in issues[:_MAX_ISSUES_SHOWN]:
        mark = "[yellow]warning:[/] " if issue.severity is Severity.WARNING else ""
        console.print(f"  {mark}{escape(issue.pointer or '/')}: {escape(issue.detail)}", soft_wrap=True)
    if len(issues) > _MAX_ISSUES_SHOWN:
        console.print(f"  and {len(issues) - _MAX_ISSUES_SHOWN} more")


def print_warnings(issues: Sequence[Issue]) -> None:
    """One line per warning."""
    console = errors()
    for issue in issues:
        console.print(f"[yellow]warning:[/] {escape(issue.pointer or '/')}: {escape(issue.detail)}", soft_wrap=True)


def _wide(console: Console) -> Console:
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    return console
