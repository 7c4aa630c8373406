"""`stowplan serve`: the service and its settings."""

import importlib
import logging
from typing import Annotated

import typer

from api.cli.commands import command
from api.common.settings import Settings, read_settings, setting_variables


def _default(setting: str) -> str:
    """What a setting is where neither an option nor a variable gives it."""
    return str(getattr(Settings(), setting))


@command("serve", epilog=f"Variables: {', '.join(setting_variables())}.")
def serve_command(
    host: Annotated[str | None, typer.Option(help="Address to listen on.", show_default=_default("host"))] = None,
    port: Annotated[
        int | None, typer.Option(help="Port to listen on; 0 for any free one.", show_default=_default("port"))
    ] = None,
    database: Annotated[
        str | None, typer.Option(help="SQLite file, or :memory:.", show_default=_default("database"))
    ] = None,
    deployments: Annotated[
        str | None, typer.Option(help="Folder of deployments; without it the service deploys nothing.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Solves at a time.", show_default=_default("workers"))] = None,
    queue_size: Annotated[
        int | None, typer.Option(help="Plans that may wait.", show_default=_default("queue_size"))
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds for a solve that names no limit.", show_default=_default("time_limit_s")),
    ] = None,
    max_time_limit: Annotated[
        float | None,
        typer.Option(help="Most seconds that a request may ask for.", show_default=_default("max_time_limit_s")),
    ] = None,
    max_threads: Annotated[
        int | None, typer.Option(help="Most threads that a request may ask for.", show_default=_default("max_threads"))
    ] = None,
    max_body_bytes: Annotated[
        int | None, typer.Option(help="Largest request body.", show_default=_default("max_body_bytes"))
    ] = None,
) -> None:
    """Serve the HTTP interface. Every setting can be given as a variable STOWPLAN_..., options win."""
    overrides = {
        "host": host,
        "port": port,
        "database": database,
        "deployments": deployments,
        "workers": workers,
        "queue_size": queue_size,
        "time_limit_s": time_limit,
        "max_time_limit_s": max_time_limit,
        "max_threads": max_threads,
        "max_body_bytes": max_body_bytes,
    }
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    # The web stack takes as long to load as all other commands together.
    importlib.import_module("api.server").serve(read_settings(overrides))
