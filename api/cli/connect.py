"""`stowplan connect`: decide for the queue of a scheduler that runs, and tell it."""

from collections.abc import Mapping

from api.cli.commands import LazyCommand, LazyGroup
from api.cli.exit_codes import EPILOG

# The first line of each command's own help; a test compares them.
CONNECT_COMMANDS: Mapping[str, LazyCommand] = {
    "kubernetes": LazyCommand(
        "api.cli.connect_kubernetes:kubernetes_command",
        "Say when and where pods behind our scheduling gate start, and workloads of Kueue; dry without --send.",
    ),
    "slurm": LazyCommand(
        "api.cli.connect_slurm:slurm_command",
        "Say when and where jobs of Slurm start whose users opted in; dry without --send.",
    ),
}


class _Connect(LazyGroup):
    """The commands below `stowplan connect`."""

    lazy_commands = CONNECT_COMMANDS


connect_group = _Connect(
    name="connect",
    help="Decide for the queue of a scheduler that runs, and tell it; without --send only write down what.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
)
