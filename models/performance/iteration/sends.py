"""Transfers between pipeline stages: what the paper neglects, and Arnold's placement is about.

Replica j of a stage works on an interval of every micro-batch, in the order of the replicas; it sends to the replicas
of the next stage whose intervals meet its own. All transfers of a micro-batch between two stages go at the same time:
those between two nodes share the nodes' network bandwidth, those inside a node have links of their own. Where the
software splits what it sends, an activation is counted once per tensor group, whose ranks send a part each; otherwise
every rank sends all of it to its counterpart.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from models.parallel_plan import ParallelPlan, Replica, Stage
from models.performance.iteration.coefficients import SizeCoefficients
from models.performance.iteration.fabric import Fabric
from models.performance.iteration.formulas import Floats
from models.performance.iteration.profile import ModelProfile
from models.performance.iteration.sizes import boundary_bytes
from models.software import FEATURES


def send_s(fabric: Fabric, profile: ModelProfile, sizes: SizeCoefficients, plan: ParallelPlan) -> tuple[float, ...]:
    """Seconds per stage to hand a micro-batch to the next stage and get its gradient back; 0 for the last one."""
    boundaries = boundary_bytes(profile, sizes)
    times: list[float] = []
    last = 0
    for here, there in pairwise(plan.stages):
        last += here.num_layers
        sent = float(copies(profile, float(here.tp)))
        payload = sent * float(boundaries[last - 1])
        times.append(2.0 * _transfer_s(fabric, here, there, payload, plan.context_parallel))
    return (*times, 0.0)


def copies(profile: ModelProfile, tp: Floats) -> Floats:
    """How often an activation is sent by a tensor group."""
    return 1.0 if FEATURES[profile.software].splits_sends else tp


def with_sends(
    profile: ModelProfile, forward_s: Floats, backward_s: Floats, one_way_s: Floats
) -> tuple[Floats, Floats]:
    """Times of stages in the steady state of a pipeline, for searches. What a micro-batch takes in one direction is
    sent while the stage computes where the software does that, else between its passes."""
    half = 0.5 * one_way_s
    if FEATURES[profile.software].overlaps_sends:
        return np.maximum(forward_s, half), np.maximum(backward_s, half)
    return forward_s + half, backward_s + half


def _transfer_s(fabric: Fabric, here: Stage, there: Stage, sample_bytes: float, cp: int) -> float:
    """Seconds until the slowest node has sent, and the slowest has received."""
    # Of a node's network, and of the GPUs of a replica inside its node.
    sent: dict[tuple[str, tuple[int, ...]], float] = defaultdict(float)
    received: dict[tuple[str, tuple[int, ...]], float] = defaultdict(float)
    for sender, receiver, samples in _transfers(here, there, cp):
        payload = samples * sample_bytes
        if sender.node == receiver.node:
            seconds = payload / len(sender.gpus) / fabric.intra_bytes_per_s(sender.node)
            sent[sender.node, sender.gpus] += seconds
            received[receiver.node, receiver.gpus] += seconds
        else:
            seconds = payload / fabric.send_receive_bytes_per_s(sender.node, receiver.node)
            sent[sender.node, ()] += seconds
            received[receiver.node, ()] += seconds
    return max(*sent.values(), *received.values())


def _transfers(here: Stage, there: Stage, cp: int) -> Iterator[tuple[Replica, Replica, int]]:
    """Pairs of replicas that work on the same (parts of) sequences of a micro-batch, and how many."""
    for part in range(cp):
        yield from _transfers_between(here.replicas[part::cp], there.replicas[part::cp])


def _transfers_between(
    senders: Sequence[Replica], waiting: Sequence[Replica]
) -> Iterator[tuple[Replica, Replica, int]]:
    receivers = iter(waiting)
    receiver = next(receivers)
    room = receiver.local_batch
    for sender in senders:
        left = sender.local_batch
        while left:
            samples = min(left, room)
            yield sender, receiver, samples
            left -= samples
            room -= samples
            if not room and (following := next(receivers, None)) is not None:
                receiver, room = following, following.local_batch
