"""What was found of each job of a snapshot, carried over from round to round."""

from collections.abc import Mapping

import numpy as np

from models.workload import Job, Snapshot
from stowplan.arrays import Mask
from stowplan.living import found_once
from stowplan.rolls import Roll, Rolls

_rolls: Rolls[Snapshot, Job] = Rolls()


def roll_of(snapshot: Snapshot) -> Roll[Job]:
    """The roll of the jobs of a snapshot."""
    return _rolls.of(snapshot, snapshot.jobs)


@found_once
def row_of(snapshot: Snapshot) -> Mapping[str, int]:
    """Where each job stands, by its id; in the order of the jobs."""
    return {job.id: row for row, job in enumerate(snapshot.jobs)}


def reserves(snapshot: Snapshot) -> Mask:
    """Whether each job (J,) has a reservation."""
    jobs = snapshot.jobs
    return roll_of(snapshot).each("reserves", np.bool_, lambda rows: (jobs[k].reservation is not None for k in rows))


def is_preemptible(snapshot: Snapshot) -> Mask:
    """Whether each job (J,) may be taken its GPUs."""
    jobs = snapshot.jobs
    return roll_of(snapshot).each("is preemptible", np.bool_, lambda rows: (jobs[k].preemptible for k in rows))


def has_model(snapshot: Snapshot) -> Mask:
    """Whether each job (J,) says what it trains."""
    jobs = snapshot.jobs
    return roll_of(snapshot).each("has a model", np.bool_, lambda rows: (jobs[k].model is not None for k in rows))
