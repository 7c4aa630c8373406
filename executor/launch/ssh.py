"""Hosts reached over SSH.

Host keys and passwords are never asked for: set up keys, and an `ssh_config` for users, ports and jump hosts.
"""

from collections.abc import Sequence
from typing import ClassVar

from executor.launch.remote_shell import RemoteShellBackend

_CONNECT_S = 10


class SshBackend(RemoteShellBackend):
    """The `ssh` command; `options` are put before the host name (`("-F", "my_config")`)."""

    name: ClassVar[str] = "ssh"
    program: ClassVar[str] = "an SSH client"
    unreachable_code: ClassVar[int | None] = 255

    def __init__(self, options: tuple[str, ...] = ()) -> None:
        self._options = options

    def line(self, address: str, command: str) -> Sequence[str]:
        """Run the command as the user and at the port that the SSH configuration says."""
        return (
            "ssh",
            "-o",
            "BatchMode=yes",
            "-o",
            f"ConnectTimeout={_CONNECT_S}",
            *self._options,
            "--",
            address,
            command,
        )
