"""`stowplan purge`: what is old leaves the database of a service that is stopped."""

import time
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from api.cli.busy import busy
from api.cli.commands import command
from api.common.environment import read_settings
from api.store.connection import Database
from api.store.purge import Retention, purge
from stowplan.errors import InputError


@command("purge")
def purge_command(
    database: Annotated[
        str,
        typer.Argument(metavar="DATABASE", help="SQLite file, or URL on PostgreSQL, of a service that is stopped."),
    ],
    keep_days: Annotated[
        float | None, typer.Option(help="Days for which plans, comparisons, replays and snapshots are kept.")
    ] = None,
    keep_plans: Annotated[int | None, typer.Option(help="Most final plans that are kept.")] = None,
    keep_events_days: Annotated[float | None, typer.Option(help="Days for which events of plans are kept.")] = None,
    keep_metrics_days: Annotated[float | None, typer.Option(help="Days for which steps of jobs are kept.")] = None,
    keep_steps: Annotated[int | None, typer.Option(help="Most steps of a launch that are kept.")] = None,
    keep_audit_days: Annotated[
        float | None, typer.Option(help="Days for which entries of the audit log are kept.")
    ] = None,
) -> None:
    """Delete what is older than it is kept, and give its space back to the disk (of SQLite).

    A running service does so every hour, by its settings (STOWPLAN_KEEP_...), which hold here, too, where no option
    says otherwise. Calendars, calibrations and forecasters stay.
    """
    asked = {
        "keep_days": keep_days,
        "keep_plans": keep_plans,
        "keep_events_days": keep_events_days,
        "keep_metrics_days": keep_metrics_days,
        "keep_steps": keep_steps,
        "keep_audit_days": keep_audit_days,
    }
    settings = read_settings({**asked, "database": database})
    keep, location = Retention.of(settings), settings.database_location
    file = location if isinstance(location, Path) else None
    if location is None or (file is not None and not file.is_file()):
        raise InputError(f"there is no database {database}")
    before = file.stat().st_size if file is not None else 0
    with busy(f"purging {database}"), closing(Database(location)) as opened:
        purged = purge(opened, keep, time.time())
    typer.echo(purged.told)
    # A server gives space back when it likes.
    if file is not None:
        after = file.stat().st_size
        typer.echo(f"{file}: {after / 1e6:.1f} MB, {(before - after) / 1e6:.1f} MB given back")
