"""`stowplan calendar`: look at the calendar of a snapshot."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from api.cli import console
from api.cli.busy import busy
from api.cli.commands import command
from api.cli.exit_codes import EPILOG, ExitCode
from api.cli.files import CalendarFile, load_calendar
from api.cli.options import File, Json, picture_format, print_document
from api.cli.paths import readable, write
from api.convert.calendar import listing
from api.convert.icalendar import icalendar_of, nodes_words
from api.figures.picture_format import PictureFormat
from api.figures.request import CalendarFigure
from api.schemas.calendar import ListedEntryDoc
from stowplan.errors import Issue, Severity

# It loads what draws.
_RENDER = "api.figures.calendar:render"


@command("calendar", epilog=EPILOG)
def calendar_command(
    file: File,
    figure: Annotated[Path | None, typer.Option(help="Draw minipods over time: .svg or .png.")] = None,
    ics: Annotated[Path | None, typer.Option(help="Write the entries as iCalendar, too.")] = None,
    json_: Json = False,
) -> None:
    """List the entries of the calendar of a snapshot, and what excludes one another."""
    format_ = picture_format(figure)
    found = load_calendar(readable(file))
    listed = listing(found.cluster, found.documents, found.entries, found.issues)
    if json_:
        print_document(listed)
    else:
        _print(listed.entries, found.issues)
    if any(issue.severity is Severity.ERROR for issue in found.issues):
        raise typer.Exit(ExitCode.ILLEGAL)
    name = "standard input" if str(file) == "-" else file.stem
    if ics is not None:
        write(ics, icalendar_of(found.documents, found.taken_at, name).encode())
    if figure is not None and format_ is not None:
        write(figure, _drawn(found, name, format_))


def _drawn(found: CalendarFile, name: str, format_: PictureFormat) -> bytes:
    request = CalendarFigure(
        name=name, cluster=found.cluster, entries=found.entries, taken_at=found.taken_at, format=format_
    )
    with busy("drawing the calendar"):
        drawn: bytes = resolve_name(_RENDER)(request)
    return drawn


def _print(entries: Sequence[ListedEntryDoc], issues: Sequence[Issue]) -> None:
    """A row an entry, then what is wrong and what is odd."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("entry", "kind", "from (UTC)", "until (UTC)", "nodes", "owner", "now"):
        table.add_column(title, overflow="fold")
    for listed in entries:
        entry = listed.entry
        kind = entry.kind.value if entry.hard else f"{entry.kind.value}, soft"
        until = "" if entry.until_time is None else _time(entry.until_time)
        words = (entry.name, kind, _time(entry.from_time), until, nodes_words(entry), entry.owner or "", listed.status)
        table.add_row(*(escape(word) for word in words))
    output = console.output()
    output.print(table if entries else "no entries")
    errors = [issue for issue in issues if issue.severity is Severity.ERROR]
    for issue in errors:
        output.print(f"[bold red]conflict:[/] {escape(issue.pointer)}: {escape(issue.detail)}", soft_wrap=True)
    console.print_warnings([issue for issue in issues if issue.severity is Severity.WARNING])


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}"
