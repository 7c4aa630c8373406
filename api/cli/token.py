"""`stowplan token`: tokens with which clients ask a service."""

from collections.abc import Mapping

from api.cli.commands import LazyCommand, LazyGroup
from api.cli.exit_codes import EPILOG

# The first line of each command's own help; a test compares them.
TOKEN_COMMANDS: Mapping[str, LazyCommand] = {
    "create": LazyCommand("api.cli.token_commands:create_command", "Make a token for a client, and print it, once."),
    "list": LazyCommand("api.cli.token_commands:list_command", "List all tokens without what they are, newest first."),
    "revoke": LazyCommand("api.cli.token_commands:revoke_command", "End a token from the next request on."),
}


class _Token(LazyGroup):
    """The commands below `stowplan token`."""

    lazy_commands = TOKEN_COMMANDS


token_group = _Token(
    name="token",
    help="Make, list and revoke tokens of clients, of a service that runs (--url) or one that is stopped (--database).",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
)
