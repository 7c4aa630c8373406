"""Hosts with a real network between them on one machine: network namespaces under leaf switches and a shaped spine.

    host a0 --+                                                 +-- host b0
              +-- leaf a ==== uplink ==== spine ==== uplink ==== leaf b --+
    host a1 --+                                                 +-- host b1

Each host is a network namespace with one interface. Switches are bridges in a namespace of their own, so nothing is
added to the machine's own network. Every link is shaped in both directions by a token bucket (tc tbf). The CPUs and
the file system are shared by all hosts.

Needs root, `ip` and `tc` (Debian: iproute2), and `nsenter` (util-linux).
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from executor.launch.local import LocalBackend
from stowplan.errors import StowplanError

# Name of every host's interface.
INTERFACE = "eth0"
# The spine itself, seen as a host: what manages the others may run there.
HEAD, HEAD_ADDRESS = "switch", "10.0.0.254"

_PREFIX = "stowplan"
# Where `ip netns` keeps namespaces.
_FOLDER = "/run/netns"
_COMMAND_S = 30.0
# A bucket holds what passes in this time, and at least two of the largest packets that the kernel hands down whole.
_BURST_S = 0.005
_LEAST_BURST_BYTES = 128 * 1024
_QUEUE_BYTES = 4 * 2**20


class NamespaceError(StowplanError):
    """The machine does not let us build the network."""

    code: ClassVar[str] = "no_namespaces"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafSpine:
    """Hosts under leaves. Rates in bit/s and direction: of a host's link to its leaf, of a leaf's uplink."""

    leaves: Mapping[str, tuple[str, ...]]
    host_bits_per_s: float
    uplink_bits_per_s: float

    @property
    def hosts(self) -> tuple[str, ...]:
        """All hosts, leaf by leaf."""
        return tuple(host for hosts in self.leaves.values() for host in hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network that is up. `prefix` begins the names of its namespaces; `addresses`: IPv4 address of every host."""

    layout: LeafSpine
    prefix: str
    addresses: Mapping[str, str]

    def enter(self, host: str) -> list[str]:
        """Words before a command that make it run on a host, or on HEAD; the process keeps its id."""
        # `ip netns exec` would also put a bare /sys in place.
        return ["nsenter", f"--net={_FOLDER}/{self.prefix}-{host}", "--"]

    def uplink_bytes(self) -> int:
        """Bytes that all leaves have sent up to the spine so far."""
        links = json.loads(_run("ip", "-n", f"{self.prefix}-{HEAD}", "-s", "-j", "link", "show"))
        uplinks = {f"up-{leaf}" for leaf in self.layout.leaves}
        return sum(link["stats64"]["tx"]["bytes"] for link in links if link["ifname"] in uplinks)


class NamespaceBackend(LocalBackend):
    """Processes on this machine, each on its host of a network; the deployment must use the network's addresses."""

    name: ClassVar[str] = "namespaces"

    def __init__(self, network: Network) -> None:
        self._network = network

    def agent_command(self, folder: Path, host: str) -> list[str]:
        """Command that becomes the agent of a host."""
        return [*self._network.enter(host), *super().agent_command(folder, host)]

    def hold_port(self, launch: Mapping[str, Any]) -> None:
        """Leave it to the agent of the first host: its ports are its own."""


@contextmanager
def leaf_spine(layout: LeafSpine) -> Iterator[Network]:
    """Build the network, and take it down however the block ends.

    Raises
    ------
    NamespaceError
        When something is missing, or a command fails.
    """
    if missing := _missing():
        raise NamespaceError(missing)
    _remove_leftovers()
    prefix = f"{_PREFIX}-{os.getpid()}"
    network = Network(
        layout=layout,
        prefix=prefix,
        addresses={host: f"10.0.0.{number}" for number, host in enumerate(layout.hosts, start=1)},
    )
    with ExitStack() as stack:
        for name in (HEAD, *layout.hosts):
            _run("ip", "netns", "add", f"{prefix}-{name}")
            stack.callback(_delete, f"{prefix}-{name}")
        _build(network)
        yield network


def obstacle() -> str | None:
    """Say why networks cannot be built here; None when they can."""
    try:
        with leaf_spine(LeafSpine(leaves={"a": ("a0",)}, host_bits_per_s=1e9, uplink_bits_per_s=1e9)):
            return None
    except NamespaceError as error:
        return str(error)


def _build(network: Network) -> None:
    layout, switch = network.layout, f"{network.prefix}-{HEAD}"
    _bridge(switch, "spine")
    _run("ip", "-n", switch, "address", "add", f"{HEAD_ADDRESS}/24", "dev", "spine")
    _run("ip", "-n", switch, "link", "set", "lo", "up")
    for leaf, hosts in layout.leaves.items():
        _bridge(switch, f"leaf-{leaf}")
        up, down = f"up-{leaf}", f"down-{leaf}"
        _link(switch, up, switch, down, layout.uplink_bits_per_s)
        _plug(switch, up, f"leaf-{leaf}")
        _plug(switch, down, "spine")
        for host in hosts:
            namespace = f"{network.prefix}-{host}"
            _link(switch, f"to-{host}", namespace, INTERFACE, layout.host_bits_per_s)
            _plug(switch, f"to-{host}", f"leaf-{leaf}")
            _run("ip", "-n", namespace, "address", "add", f"{network.addresses[host]}/24", "dev", INTERFACE)
            for interface in ("lo", INTERFACE):
                _run("ip", "-n", namespace, "link", "set", interface, "up")


def _bridge(switch: str, name: str) -> None:
    _run("ip", "-n", switch, "link", "add", name, "type", "bridge")
    _run("ip", "-n", switch, "link", "set", name, "up")


def _link(namespace: str, end: str, other_namespace: str, other_end: str, bits_per_s: float) -> None:
    """Lay a cable that is shaped in both directions."""
    _run(
        *("ip", "link", "add", end, "netns", namespace, "type", "veth"),
        *("peer", "name", other_end, "netns", other_namespace),
    )
    burst = max(_LEAST_BURST_BYTES, round(bits_per_s / 8 * _BURST_S))
    shape = ("root", "tbf", "rate", f"{bits_per_s:.0f}bit", "burst", str(burst), "limit", str(_QUEUE_BYTES + burst))
    for place, name in ((namespace, end), (other_namespace, other_end)):
        _run("tc", "-n", place, "qdisc", "add", "dev", name, *shape)


def _plug(switch: str, interface: str, bridge: str) -> None:
    _run("ip", "-n", switch, "link", "set", interface, "master", bridge)
    _run("ip", "-n", switch, "link", "set", interface, "up")


def _missing() -> str | None:
    tools = [tool for tool in ("ip", "tc", "nsenter") if shutil.which(tool) is None]
    if tools:
        return f"there is no {', '.join(tools)} here (Debian: iproute2, util-linux)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    return None


def _remove_leftovers() -> None:
    """Delete the namespaces of runs that were killed."""
    for name in re.findall(rf"^{_PREFIX}-\d+-\S+", _run("ip", "netns", "list"), flags=re.MULTILINE):
        if not Path(f"/proc/{name.split('-')[1]}").exists():
            _delete(name)


def _delete(namespace: str) -> None:
    _run("ip", "netns", "delete", namespace)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)
    if done.returncode != 0:
        raise NamespaceError(f"{_text(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def _text(command: Sequence[str]) -> str:
    return " ".join(command)
