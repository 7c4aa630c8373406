"""What bandwidth tests say of the factors of a site."""

from models.measured.base import Bandwidth
from models.performance.iteration.adjustment import Adjustment, told
from models.performance.iteration.priors import priors
from stowplan.errors import InputError
from topology.cluster import GpuType

# Of the logarithm of a factor: trainings share links with other work, and send messages of many sizes.
_DEVIATION = 0.1
# Beyond as many times the stated bandwidth, it is of other links.
_MOST = 2.0
_GIGA = 1e9


def told_bandwidth(
    adjustment: Adjustment, found: Bandwidth, kind: GpuType, *, num_ports: int, num_nodes: int | None = None
) -> tuple[Adjustment, str]:
    """What is known after a bandwidth test, and a sentence on it.

    Parameters
    ----------
    num_ports
        Network ports of a node, for tests of one port.
    num_nodes
        That took part, where the test does not say.

    Raises
    ------
    InputError
        When it is not known on how many nodes the test ran, or its bandwidth is none of such links.
    """
    nodes = found.num_nodes if found.num_nodes is not None else num_nodes
    if nodes is None:
        raise InputError("does not say on which hosts it ran (its header is missing); give --nodes 1, 2, ...")
    inside = nodes == 1
    stated = kind.intra_node_bandwidth_bytes_per_s if inside else kind.inter_node_bandwidth_bytes_per_s
    reached = found.bytes_per_s * (num_ports if found.is_port else 1)
    share, where = reached / stated, "links inside nodes" if inside else "the network of a node"
    what = f"{where} reach {reached / _GIGA:.4g} GB/s of {stated / _GIGA:.4g} that {kind.name} has"
    if not 1.0 / (50.0 * _MOST) <= share <= _MOST:
        raise InputError(f"{what}: is this of other links, or is another number of ports or nodes meant?")
    prior = priors().link if inside else priors().network
    sentence = f"{what} ({100 * share:.0f} %), from messages of {found.saturation_bytes:.3g} bytes on"
    return told(adjustment, "link" if inside else "network", prior / share, _DEVIATION), sentence
