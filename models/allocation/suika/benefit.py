"""Marginal benefit of a scale-out and the threshold that it has to reach (Suika section 3.2.3)."""

from topology.cluster import Cluster


def benefit(num_before: int, num_added: int, throughput_before: float, throughput_after: float) -> float:
    """B = |R0| / |Rd| (T(R0 u Rd) - T(R0)) / T(R0): 1 when the added GPUs bring as much each as those before.

    The GPUs of a job are of one type, so that counts stand for the sums of FLOP/s of footnote 1.
    """
    return num_before / num_added * (throughput_after - throughput_before) / throughput_before


def threshold(intensity: float, aggressiveness: float) -> float:
    """tau = U^lambda, for a resource intensity U: basic demands of the jobs that run over all resources."""
    return float(intensity**aggressiveness)


def gpu_sizes(cluster: Cluster) -> dict[str, float]:
    """What a GPU of each type counts in ||R||: its FLOP/s in GPUs of the fastest type (footnote 1)."""
    fastest = max(kind.peak_flops_per_s for kind in cluster.gpu_types)
    return {kind.name: kind.peak_flops_per_s / fastest for kind in cluster.gpu_types}
