"""Gradient noise where the replicas of stages are not alike."""

from executor.training_job import TrainingJob
from executor.training_layout import Coordinates


def noise_squares(
    job: TrainingJob, place: Coordinates, alone: float, summed: float, num_parts: int = 1
) -> tuple[float, float]:
    """A rank's parts of the squared norms that `StepResult` has: over `small_batch` sequences, and over all.

    Over b sequences the squared norm is |G|^2 + S / b in the mean (McCandlish et al. 2018, appendix A.1), with S of the
    stage's parameters: linear in 1 / b. What the replicas of a stage measure with their shares b_j, in the mean at the
    mean of 1 / b_j, is moved along that line to the batch that all stages have in common.

    Parameters
    ----------
    alone, summed
        Squared norms of the rank's gradient over its replica's samples, as a part of the mean over the batch, and of
        its part of the gradient over all samples.
    num_parts
        Of the replica's samples, each with a gradient of its own, whose squared norms are added up in `alone`.
    """
    layout, batch = job.stages[place.pipe], job.global_batch
    if job.small_batch == batch:
        return summed, summed
    # Samples of a part, by replica.
    shares = [share * job.num_micro_batches / num_parts for share in layout.batches]
    measured = sum(1 / share for share in shares) / layout.dp
    factor = (1 / job.small_batch - 1 / batch) / (measured - 1 / batch)
    small = alone / num_parts * (batch / shares[place.data]) ** 2 / layout.dp
    return factor * small + (1.0 - factor) * summed, summed
