"""Where the iteration time goes, by hand.

2 stages, 3 micro-batches: c_0 = 3 s (1 s of it tensor communication), c_1 = 5 s (2 s); stage 1 is the slowest.
warm-up 3 + 5 = 8, steady 2 x 5 = 10; extra: stage 0 0.5 + 0.25; stage 1 2.5 + 0.5 after 2 s of backward = 1.
"""

from dataclasses import replace

import pytest

from models.performance.iteration.breakdown import breakdown
from models.performance.iteration.times import IterationTime, StageTime

FIRST = StageTime(
    forward_s=1.0,
    backward_s=2.0,
    tensor_communication_s=1.0,
    send_s=0.0,
    reduction_s=1.0,
    exposed_reduction_s=0.5,
    optimizer_s=0.25,
)
SECOND = replace(
    FIRST, forward_s=2.0, backward_s=3.0, tensor_communication_s=2.0, exposed_reduction_s=2.5, optimizer_s=0.5
)
TIME = IterationTime(total_s=19.0, warm_up_s=8.0, steady_s=10.0, extra_s=1.0, stages=(FIRST, SECOND))


def test_by_hand() -> None:
    parts = breakdown(TIME, 3)
    assert (parts.compute_s, parts.tensor_s, parts.bubble_s, parts.send_s) == (9.0, 6.0, 3.0, 0.0)
    # Stage 1 ends last: of its reduction 0.5 s are seen, and the whole optimiser.
    assert (parts.data_s, parts.optimizer_s) == (0.5, 0.5)
    assert parts.total_s == pytest.approx(TIME.total_s)


def test_hidden_reduction() -> None:
    """Nothing but a part of the optimiser is seen after the backward pass of stage 0."""
    short = replace(SECOND, exposed_reduction_s=0.1, optimizer_s=2.2)
    time = IterationTime(total_s=18.75, warm_up_s=8.0, steady_s=10.0, extra_s=0.75, stages=(FIRST, short))
    parts = breakdown(time, 3)
    assert parts.data_s == pytest.approx(0.5)
    assert parts.total_s == pytest.approx(18.75)


def test_sends_are_no_bubble() -> None:
    time = IterationTime(
        total_s=19.5, warm_up_s=8.5, steady_s=10.0, extra_s=1.0, stages=(replace(FIRST, send_s=0.5), SECOND)
    )
    parts = breakdown(time, 3)
    assert (parts.send_s, parts.bubble_s) == (0.5, 3.0)
    # Links that take longer than the slowest stage.
    parts = breakdown(replace(time, total_s=21.5, steady_s=12.0), 3)
    assert (parts.compute_s, parts.tensor_s, parts.send_s) == (9.0, 6.0, 2.5)
    assert parts.total_s == pytest.approx(21.5)


def test_stragglers_are_neither_bubble_nor_sends() -> None:
    parts = breakdown(replace(TIME, total_s=19.5, straggling_s=0.5), 3)
    assert (parts.straggling_s, parts.bubble_s, parts.send_s) == (0.5, 3.0, 0.0)
    assert parts.total_s == pytest.approx(19.5)
