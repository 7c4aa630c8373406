"""`stowplan forecast`: how long jobs last, learned from a site's history."""

from collections.abc import Mapping

from api.cli.commands import LazyCommand, LazyGroup
from api.cli.exit_codes import EPILOG

# The first line of each command's own help; a test compares them.
FORECAST_COMMANDS: Mapping[str, LazyCommand] = {
    "train": LazyCommand(
        "api.cli.forecast_commands:train_command",
        "Learn from a history of jobs how long jobs last, and test it on the last tenth; refused when no better.",
    ),
    "show": LazyCommand(
        "api.cli.forecast_commands:show_command", "Print what a forecaster was trained on, and how well it did."
    ),
    "predict": LazyCommand(
        "api.cli.forecast_commands:predict_command",
        "Say how long jobs last, those that run for how long they have already.",
    ),
}


class _Forecast(LazyGroup):
    """The commands below `stowplan forecast`."""

    lazy_commands = FORECAST_COMMANDS


forecast_group = _Forecast(
    name="forecast",
    help="Learn from a history how long jobs last, and say it of others; needs the extra `forecast`.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
)
