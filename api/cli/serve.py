"""`stowplan serve`: the service. Its options are those that the settings name."""

import importlib
import inspect
import logging
from typing import Annotated, Any

import typer
from pydantic.fields import FieldInfo

from api.cli.commands import command
from api.common.asking import RequestIds
from api.common.environment import read_settings, setting_variables
from api.common.settings import Flag, Settings


def _parameters() -> list[inspect.Parameter]:
    """A parameter as Typer reads it for every setting that has an option; None stands for one that was not given."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_option(field, flag),
        )
        for name, field in Settings.model_fields.items()
        for flag in field.metadata
        if isinstance(flag, Flag)
    ]


def _option(field: FieldInfo, flag: Flag) -> Any:
    kind: Any = field.annotation
    # Said, not set: whoever gives no option gets the variable, and only then the default. An empty one says nothing.
    default = str(field.default) if field.default else False
    return Annotated[kind | None, typer.Option(flag.name, help=field.description, show_default=default)]


def _serve(**overrides: object) -> None:
    """Serve the HTTP interface. Every setting can be given as a variable STOWPLAN_..., options win."""
    handler = logging.StreamHandler()
    handler.addFilter(RequestIds())
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s%(request)s: %(message)s", handlers=[handler])
    # The help needs no pool of workers.
    importlib.import_module("api.server").serve(read_settings(overrides))


_OPTIONS = _parameters()
# Typer reads both.
_serve.__signature__ = inspect.Signature(_OPTIONS)  # type: ignore[attr-defined]
_serve.__annotations__ = {option.name: option.annotation for option in _OPTIONS}
serve_command = command("serve", epilog=f"Variables: {', '.join(setting_variables())}.")(_serve)
