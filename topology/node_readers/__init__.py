"""Readers of what tools say of the inside of a node: how its GPUs are linked, and which adapters it has. `READERS`
names them, and loads one when it reads.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from types import MappingProxyType

from stowplan.errors import FileFormatError
from topology.gpu_catalogue import GpuProduct
from topology.node_readers.base import NodeFacts, Remark

__all__ = ["READERS", "NodeFacts", "Reader", "Remark", "read_node_facts"]

MAX_CHARS = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Reader:
    """A format. `function` is `module:function`, (source, text, GpuProduct or None) -> NodeFacts. `mark`: found in
    texts of the format alone. `summary`: for people, such as the command that writes it.
    """

    function: str
    mark: str
    summary: str

    def __call__(self, source: str, text: str, product: GpuProduct | None) -> NodeFacts:
        """Read a text."""
        found: NodeFacts = resolve_name(self.function)(source, text, product)
        return found


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        "nccl": Reader("topology.node_readers.nccl:read_nccl_topology", r"<system\b", "what NCCL_TOPO_DUMP_FILE names"),
        "nvidia-smi": Reader(
            "topology.node_readers.nvidia_smi:read_nvidia_smi_topology",
            r"(?m)^GPU\d+\s",
            "what `nvidia-smi topo -m` prints",
        ),
    }
)


def read_node_facts(source: str, text: str, product: GpuProduct | None = None) -> NodeFacts:
    """Read what a tool says of a node; its format is told by what is in it.

    Parameters
    ----------
    source
        What the text is called: a path, or a name that a request gives it.
    product
        The GPUs of the node, as far as somebody says which they are.

    Raises
    ------
    FileFormatError
        When it is of no known format, has other GPUs, or is wrong: names the line.
    """
    if len(text) > MAX_CHARS:
        raise FileFormatError.at(source, None, f"has {len(text)} characters; at most {MAX_CHARS}")
    for reader in READERS.values():
        if re.search(reader.mark, text):
            return reader(source, text, product)
    known = ", ".join(reader.summary for reader in READERS.values())
    raise FileFormatError.at(source, None, f"is none of: {known}")
