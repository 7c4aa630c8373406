"""`--node-topology`: what tools say of the inside of nodes, in place of what the catalogue says of the usual node."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from api.cli.console import errors
from api.cli.gpu_facts import GpuFacts, GpuNames
from api.cli.paths import readable
from stowplan.errors import InputError
from stowplan.files import read_text
from topology.gpu_catalogue import known_product
from topology.node_readers import NodeFacts, Remark, read_node_facts
from topology.node_readers.base import NO_NETWORK


def node_facts_in(texts: Sequence[str], names: GpuNames, facts: GpuFacts) -> dict[str, NodeFacts]:
    """Read `topo.xml` and `h100=topo.xml`: GPU type -> its node. What options say of a bandwidth counts more.

    Raises
    ------
    InputError
        When a file is wrong, or nobody says which GPUs it is about; names it.
    """
    found: dict[str, NodeFacts] = {}
    for text in texts:
        said, _, path = text.rpartition("=")
        name = said or names.default
        product = None if name is None else known_product(names.products.get(name, name))
        node = read_node_facts(path, read_text(readable(Path(path))), product)
        name = name or node.product
        if name is None:
            raise InputError(f"{path}: does not name its GPUs; give --gpu-type")
        if name in found:
            raise InputError(f"--node-topology: {found[name].source} and {path} are both of GPUs of the type {name!r}")
        found[name] = _without(node, facts) if name == names.default else node
    return found


def filled(facts: GpuFacts, node: NodeFacts | None) -> GpuFacts:
    """Facts of a GPU that is in no catalogue, with the bandwidths of its node where no option says them."""
    if node is None or facts.memory is None or facts.peak_flops is None:
        return facts
    inside, outside = node.intra_node_bandwidth_bytes_per_s, node.inter_node_bandwidth_bytes_per_s
    return replace(
        facts,
        intra_node_bandwidth=facts.intra_node_bandwidth or (None if inside is None else f"{inside}B/s"),
        inter_node_bandwidth=facts.inter_node_bandwidth or (None if outside is None else f"{outside}B/s/node"),
    )


def tell(remarks: Sequence[Remark]) -> None:
    """A line for each."""
    for remark in remarks:
        more = f" (and {remark.count - 1} more)" if remark.count > 1 else ""
        errors().print(f"{remark.source}: {remark.detail}{more}", soft_wrap=True, markup=False, style="yellow")


def _without(node: NodeFacts, facts: GpuFacts) -> NodeFacts:
    """A node without the bandwidths that options say."""
    if facts.intra_node_bandwidth is not None:
        node = replace(node, intra_node_bandwidth_bytes_per_s=None)
    if facts.inter_node_bandwidth is not None:
        remarks = tuple(remark for remark in node.remarks if remark.code not in NO_NETWORK)
        node = replace(node, inter_node_bandwidth_bytes_per_s=None, remarks=remarks)
    return node
