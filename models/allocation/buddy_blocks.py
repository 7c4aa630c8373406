"""Buddy blocks: the GPU counts that Arena gives (section 3.5)."""

from models.configurations import ConfigurationSet, enumerate_configurations
from topology.cluster import Cluster


def buddy_blocks(cluster: Cluster) -> ConfigurationSet:
    """Powers of two and a whole node inside a node; above, whole nodes in powers of two."""
    powers = [2**k for k in range(1, len(cluster.nodes).bit_length())]
    return enumerate_configurations(cluster, multi_node_counts=powers)
