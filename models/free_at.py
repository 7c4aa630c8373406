"""Which nodes are free at a later time, for certain and with which probability, as far as it is known now."""

from dataclasses import dataclass

import numpy as np

from models.windows import lasting_of, resolved
from models.workload import Job, Snapshot
from stowplan.arrays import FloatVector, Mask
from stowplan.errors import InputError
from topology.cluster import NodeState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FreeNodes:
    """What is known of N nodes (in the order of `Cluster.nodes`) at one time.

    Attributes
    ----------
    probability
        (N,) probability that nothing runs on the node any more that runs there now, and that it is nobody else's.
    """

    at_s: float
    probability: FloatVector

    @property
    def certain(self) -> Mask:
        """(N,) whether the node is free for certain."""
        mask: Mask = self.probability == 1.0
        return mask

    @property
    def expected(self) -> float:
        """How many nodes are free in the mean."""
        return float(self.probability.sum())


def free_at(snapshot: Snapshot, at_s: float, reservation: str | None = None) -> FreeNodes:
    """Foretell which nodes are free `at_s` seconds from now for jobs of a reservation (None: of none).

    Jobs end independently of one another, by their quantiles or else by `remaining_s` as a point forecast; of one that
    says neither nobody knows that it ends. What work outside of the snapshot has is taken, and so is every node that
    does not take work now. Nobody is preempted, and nothing starts until then. Entries of the calendar that hold at
    the time, soft ones too, close their nodes.

    Raises
    ------
    InputError
        When the time is past.
    """
    if not at_s >= 0.0:
        raise InputError(f"the time is {at_s} s from now; it must not be past")
    nodes = snapshot.cluster.nodes
    index = {node.id: n for n, node in enumerate(nodes)}
    probability = np.array([node.state is NodeState.UP and not node.gpus_in_use for node in nodes], dtype=np.float64)
    for job in snapshot.jobs:
        if job.current:
            ended = _ended(job, at_s)
            for part in job.current:
                probability[index[part.node]] *= ended
    nodes_of = resolved(snapshot, snapshot.calendar).positions
    for entry in snapshot.calendar:
        if entry.begin_s <= at_s < entry.end_s and entry.name != reservation:
            probability[list(nodes_of[entry.name])] = 0.0
    probability.setflags(write=False)
    return FreeNodes(at_s=at_s, probability=probability)


def _ended(job: Job, at_s: float) -> float:
    """Probability that a running job has ended by then."""
    lasting = lasting_of(job)
    return 0.0 if lasting is None else lasting.probability_within(at_s)
