"""How many micro-batches a plan may have (Arena section 5.1: four times the stages)."""

from collections.abc import Sequence
from functools import lru_cache

from models.performance.iteration.profile import ModelProfile


@lru_cache(maxsize=256)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    return tuple(k for k in range(1, number + 1) if number % k == 0)


def micro_batch_counts(profile: ModelProfile, num_stages: int, replicas: Sequence[int]) -> tuple[int, ...]:
    """Numbers of micro-batches for a pipeline, in the order in which they are tried.

    First the least divisor of the global batch that is at least 4 x the stages, or the largest one; then more, which
    need less memory, then fewer, which leave more replicas something to do. Of the divisors, the least above every
    power of two is enough. When the job fixes its micro-batch, the stage with the most replicas has it: a number for
    every one of the `replicas` that the batch divides into, the nearest to 4 x the stages first.
    """
    wanted = 4 * num_stages
    if profile.micro_batch is not None:
        whole = profile.global_batch // profile.micro_batch
        counts = {whole // dp for dp in replicas if whole % dp == 0}
        return tuple(sorted(counts, key=lambda count: (max(count / wanted, wanted / count), -count)))
    every = divisors(profile.global_batch)
    first = least_from(every, wanted)
    others = {least_from(every, 1 << k) for k in range(profile.global_batch.bit_length())} - {first}
    more = sorted(count for count in others if count > first)
    return (first, *more, *sorted((count for count in others if count < first), reverse=True))


def least_from(ascending: Sequence[int], least: int) -> int:
    """The first number that is at least `least`, else the last."""
    return next((number for number in ascending if number >= least), ascending[-1])
