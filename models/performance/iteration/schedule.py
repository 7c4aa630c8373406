"""The 1F1B schedule of a pipeline (PipeDream-flush): who works on which micro-batch, and when.

Stage i of S first runs min(S - 1 - i, N_b) forward passes, then one forward and one backward pass in turn, then the
backward passes that are left. A forward pass waits for that of the stage before, a backward pass for that of the stage
behind. Where all stages are equally fast the last pass ends when the formula of Suika A.2 says. Where they differ, the
formula is an approximation in both directions: idle time of the slowest stage may be filled, or another stage be late.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One forward or backward pass of a stage over a micro-batch, in seconds from the start of the iteration; `weight`:
    the part of a backward pass that is of weights, where it is a pass of its own."""

    stage: int
    micro_batch: int
    backward: bool
    start_s: float
    end_s: float
    weight: bool = False


def one_forward_one_backward(num_stages: int, stage: int, num_micro_batches: int) -> list[tuple[int, bool]]:
    """Order of the (micro-batch, backward) passes of a stage."""
    ahead = min(num_stages - 1 - stage, num_micro_batches)
    steady = chain.from_iterable(((ahead + k, False), (k, True)) for k in range(num_micro_batches - ahead))
    last = ((k, True) for k in range(num_micro_batches - ahead, num_micro_batches))
    return [*((k, False) for k in range(ahead)), *steady, *last]


def schedule(forward_s: Sequence[float], backward_s: Sequence[float], num_micro_batches: int) -> tuple[Pass, ...]:
    """Time all passes, each as early as it can; ordered by stage, then time.

    Parameters
    ----------
    forward_s, backward_s
        Of each stage for one micro-batch.
    """
    num_stages = len(forward_s)
    waiting = [one_forward_one_backward(num_stages, i, num_micro_batches)[::-1] for i in range(num_stages)]
    done: dict[tuple[int, int, bool], Pass] = {}
    free_s = [0.0] * num_stages
    while any(waiting):
        for i, queue in enumerate(waiting):
            while queue and (start_s := _ready_s(done, i, *queue[-1], num_stages)) is not None:
                micro_batch, backward = queue.pop()
                start_s = max(start_s, free_s[i])
                free_s[i] = start_s + (backward_s if backward else forward_s)[i]
                done[i, micro_batch, backward] = Pass(
                    stage=i, micro_batch=micro_batch, backward=backward, start_s=start_s, end_s=free_s[i]
                )
    return tuple(sorted(done.values(), key=lambda one: (one.stage, one.start_s)))


def _ready_s(
    done: dict[tuple[int, int, bool], Pass], stage: int, micro_batch: int, backward: bool, num_stages: int
) -> float | None:
    """When what the pass waits for has ended; None while that is not known."""
    if backward:
        before = (stage, micro_batch, False) if stage == num_stages - 1 else (stage + 1, micro_batch, True)
    elif stage == 0:
        return 0.0
    else:
        before = (stage - 1, micro_batch, False)
    return done[before].end_s if before in done else None
