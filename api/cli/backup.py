"""`stowplan backup`: a copy of a service's database."""

from pathlib import Path
from typing import Annotated

import typer

from api.cli.commands import command
from api.store.backup import back_up


@command("backup")
def backup_command(
    database: Annotated[Path, typer.Argument(metavar="DATABASE", help="SQLite file of a service.")],
    copy: Annotated[Path, typer.Argument(metavar="COPY", help="File to write; must not exist.")],
) -> None:
    """Copy the database of a service, also while it runs, and check the copy for damage.

    A service that is started with --database COPY has all that was stored at that moment.
    """
    back_up(database, copy)
    typer.echo(f"{copy}: {copy.stat().st_size / 1e6:.1f} MB, no damage found")
