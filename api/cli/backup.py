"""`stowplan backup` and `restore`: a copy of a service's database, and its way back."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.busy import busy
from api.cli.commands import command
from api.store.backup import back_up, refuse_server, restore


@command("backup")
def backup_command(
    database: Annotated[str, typer.Argument(metavar="DATABASE", help="SQLite file of a service.")],
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="File to write; must not exist.")],
) -> None:
    """Copy the database of a service, also while it runs, and check the copy for damage.

    A service that is started with --database COPY has all that was stored at that moment.
    """
    refuse_server(database)
    with busy(f"copying {database}"):
        back_up(Path(database), copy)
    typer.echo(f"{copy}: {copy.stat().st_size / 1e6:.1f} MB, no damage found")


@command("restore")
def restore_command(
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="File that `stowplan backup` has made; it stays.")],
    database: Annotated[str, typer.Argument(metavar="DATABASE", help="SQLite file of a service that is stopped.")],
) -> None:
    """Check a copy and put it in the place of a database, which is kept under another name.

    A copy that an older Stowplan has made becomes one of this version.
    """
    refuse_server(database)
    with busy(f"checking {copy}"):
        before = restore(copy, Path(database))
    typer.echo(f"{database}: restored from {copy}")
    if before is not None:
        typer.echo(f"{before}: what was there before")
