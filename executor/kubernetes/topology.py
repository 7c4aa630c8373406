"""TopologyAssignment of Kueue: which hosts the pods of a set are on, in rank order.

`workload_types.go` at v0.19.2: v1beta1 lists domains, v1beta2 has slices in which what is common is said once.
"""

from collections.abc import Sequence
from typing import Any

from executor.kubernetes.placing import HostPods

# Domains of a slice, and slices, at most.
MAX_DOMAINS, MAX_SLICES = 100_000, 1000


def topology_assignment(runs: Sequence[HostPods], level: str, version: str) -> dict[str, Any]:
    """The assignment, whose only level is the label that names hosts."""
    if version == "v1beta1":
        return {"levels": [level], "domains": [{"values": [run.host], "count": run.num_pods} for run in runs]}
    starts = range(0, len(runs), MAX_DOMAINS)
    return {"levels": [level], "slices": [_slice(runs[start : start + MAX_DOMAINS]) for start in starts]}


def _slice(runs: Sequence[HostPods]) -> dict[str, Any]:
    hosts = [run.host for run in runs]
    counts = [run.num_pods for run in runs]
    values: dict[str, Any] = {"universal": hosts[0]} if len(hosts) == 1 else {"individual": _shortened(hosts)}
    return {
        "domainCount": len(runs),
        "valuesPerLevel": [values],
        "podCounts": {"universal": counts[0]} if len(set(counts)) == 1 else {"individual": counts},
    }


def _shortened(hosts: Sequence[str]) -> dict[str, Any]:
    """Names without what all begin and end with; something is left of each."""
    shortest = min(map(len, hosts))
    prefix = _common_start(hosts)[: shortest - 1]
    rest = [host[len(prefix) :] for host in hosts]
    suffix = _common_start([text[::-1] for text in rest])[: shortest - len(prefix) - 1][::-1]
    roots = [text[: len(text) - len(suffix)] for text in rest]
    parts = (("prefix", prefix), ("suffix", suffix))
    return {**{name: text for name, text in parts if text}, "roots": roots}


def _common_start(texts: Sequence[str]) -> str:
    """What all texts begin with: the first and the last in the order of letters say it."""
    first, last = min(texts), max(texts)
    length = next((k for k, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[:length]
