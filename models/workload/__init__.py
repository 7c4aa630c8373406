"""Jobs and the snapshot: what the cluster looks like at one moment. A `Snapshot` in hand is legal."""

from models.workload.job import Adaptivity, Expansion, Job, NodeGpus, Parallelism, Reservation
from models.workload.snapshot import Snapshot, checked_snapshot, snapshot_issues, snapshot_warnings

__all__ = [
    "Adaptivity",
    "Expansion",
    "Job",
    "NodeGpus",
    "Parallelism",
    "Reservation",
    "Snapshot",
    "checked_snapshot",
    "snapshot_issues",
    "snapshot_warnings",
]
