"""Failures of nodes from a stated mean time between failures (MTBF) per node.

A node that is up fails after an exponential time of mean `mtbf_s`, and is back after `repair_s`, or after an
exponential time of that mean. So it is up for mtbf / (mtbf + repair) of the time in the long run. Every node has random
numbers of its own: more nodes, or more time, leave the failures that there are as they are.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stowplan.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureParameters:
    """`mtbf_s`: mean time from when a node is up until it fails. `repair_s`: time until it is back, or its mean."""

    mtbf_s: float
    repair_s: float
    exponential_repair: bool = False

    def __post_init__(self) -> None:
        for name, value in (("mtbf_s", self.mtbf_s), ("repair_s", self.repair_s)):
            if not 0 < value < math.inf:
                raise InputError(f"{name} is {value}; must be a number above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """A node is down from `down_s` on, until `up_s`."""

    node: str
    down_s: float
    up_s: float


def node_failures(
    nodes: Sequence[str], horizon_s: float, parameters: FailureParameters, seed: int
) -> tuple[NodeFailure, ...]:
    """Failures that begin before the horizon, by time; all nodes are up at first.

    Raises
    ------
    InputError
        When a node is named twice, or the horizon is none.
    """
    if len(set(nodes)) < len(nodes):
        raise InputError("a node is named twice; names of nodes must be unique")
    if not 0 < horizon_s < math.inf:
        raise InputError(f"the horizon is {horizon_s} s; must be a number above 0")
    failures = [failure for node in nodes for failure in _failures_of(node, horizon_s, parameters, seed)]
    return tuple(sorted(failures, key=lambda failure: (failure.down_s, failure.node)))


def _failures_of(node: str, horizon_s: float, parameters: FailureParameters, seed: int) -> list[NodeFailure]:
    name = int.from_bytes(hashlib.sha256(node.encode()).digest()[:8], "big")
    rng = np.random.default_rng([seed, name])
    failures = []
    down_s = rng.exponential(parameters.mtbf_s)
    while down_s < horizon_s:
        repair_s = rng.exponential(parameters.repair_s) if parameters.exponential_repair else parameters.repair_s
        failures.append(NodeFailure(node=node, down_s=down_s, up_s=down_s + repair_s))
        down_s += repair_s + rng.exponential(parameters.mtbf_s)
    return failures
