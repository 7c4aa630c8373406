"""Commands that are loaded when they are chosen: the help of the group costs none of what they import."""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class LazyCommand(NamedTuple):
    """Where a command stands, as `package.module:function`, and what the group's help says of it."""

    target: str
    summary: str

    def load(self) -> TyperCommand | TyperGroup:
        """Import the module and give the command."""
        module, _, name = self.target.partition(":")
        loaded: TyperCommand | TyperGroup = getattr(importlib.import_module(module), name)
        return loaded


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> Any:
        return _keep_missing(super().get_params(ctx))


def command(name: str, epilog: str | None = None) -> Callable[[Callable[..., None]], TyperCommand]:
    """Make a command of a function."""

    def build(function: Callable[..., None]) -> TyperCommand:
        # Without rich: drawing its boxes takes twice as long as everything else that `--help` does.
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        alone.command(name, cls=_Command, epilog=epilog)(function)
        built = typer.main.get_command(alone)
        assert isinstance(built, TyperCommand)  # noqa: S101 - one function is one command
        return built

    return build


class LazyGroup(TyperGroup):
    """A group that knows its commands by name; subclasses list them."""

    lazy_commands: Mapping[str, LazyCommand] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Typer lists these names, and suggests one for a name that is misspelt.
        self.commands: Any = dict.fromkeys(self.lazy_commands)

    def get_params(self, ctx: Any) -> Any:
        """Options of the group."""
        return _keep_missing(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002 - the signature of groups
        """Load a command; None where there is none of that name."""
        known = self.lazy_commands.get(cmd_name)
        return None if known is None else known.load()

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - the signature of groups
        """Write a line per command without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, known.summary) for name, known in self.lazy_commands.items()])


def _keep_missing(parameters: Any) -> Any:
    """Have parameters leave alone what was not given, and texts: Typer loads pydantic to find that None is None, and
    a text a text."""
    for parameter in parameters:
        if "process_value" not in vars(parameter):
            parameter.process_value = partial(_process, parameter, parameter.process_value)
    return parameters


def _process(parameter: Any, convert: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    several = parameter.multiple or parameter.nargs != 1
    if value is None and not several and not parameter.required:
        return None
    # What older releases have no word for is converted as they do it.
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if parameter.callback is None and kind == (list[str] if several else str) and (value or not parameter.required):
        return list(value or ()) if several else value
    return convert(ctx, value)
