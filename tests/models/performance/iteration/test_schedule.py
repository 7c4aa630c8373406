"""The 1F1B schedule, against drawings and against the formula.

2 stages, 3 micro-batches, forward 1 s, backward 2 s:

stage 0  F0 F1 .  B0 B0 F2 B1 B1 .  B2 B2        0  1  2  3     5  6     8  9    11
stage 1  .  F0 B0 B0 F1 B1 B1 F2 B2 B2
"""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.performance.iteration.schedule import Pass, one_forward_one_backward, schedule


def test_drawing() -> None:
    passes = schedule([1.0, 1.0], [2.0, 2.0], 3)
    first = [(p.micro_batch, p.backward, p.start_s) for p in passes if p.stage == 0]
    assert first == [(0, False, 0), (1, False, 1), (0, True, 4), (2, False, 6), (1, True, 7), (2, True, 10)]
    last = [(p.micro_batch, p.backward, p.start_s) for p in passes if p.stage == 1]
    assert last == [(0, False, 1), (0, True, 2), (1, False, 4), (1, True, 5), (2, False, 7), (2, True, 8)]


def test_one_stage_takes_turns() -> None:
    assert one_forward_one_backward(1, 0, 2) == [(0, False), (0, True), (1, False), (1, True)]


def test_fewer_micro_batches_than_stages() -> None:
    assert one_forward_one_backward(4, 0, 2) == [(0, False), (1, False), (0, True), (1, True)]


@given(
    num_stages=st.integers(1, 6),
    num_micro_batches=st.integers(1, 12),
    forward_s=st.floats(0.1, 9.0),
    ratio=st.floats(1, 3),
)
@settings(max_examples=50, deadline=None)
def test_equal_stages_end_when_the_formula_says(
    num_stages: int, num_micro_batches: int, forward_s: float, ratio: float
) -> None:
    backward_s = ratio * forward_s
    passes = schedule([forward_s] * num_stages, [backward_s] * num_stages, num_micro_batches)
    end_s = (num_stages + num_micro_batches - 1) * (forward_s + backward_s)
    assert max(p.end_s for p in passes) == pytest.approx(end_s)


times = st.lists(st.tuples(st.floats(0.1, 9.0), st.floats(0.1, 9.0)), min_size=1, max_size=5)


@given(times=times, num_micro_batches=st.integers(1, 8))
@settings(max_examples=50, deadline=None)
def test_every_pass_waits_and_no_stage_does_two_things(
    times: list[tuple[float, float]], num_micro_batches: int
) -> None:
    forward_s, backward_s = zip(*times, strict=True)
    passes = schedule(forward_s, backward_s, num_micro_batches)
    assert len(passes) == 2 * len(times) * num_micro_batches
    by_key = {(p.stage, p.micro_batch, p.backward): p for p in passes}
    for p in passes:
        before = _before(p, len(times))
        assert before is None or by_key[before].end_s <= p.start_s
    for one, two in pairwise(passes):
        assert one.stage != two.stage or one.end_s <= two.start_s


def _before(p: Pass, num_stages: int) -> tuple[int, int, bool] | None:
    if p.backward:
        return (p.stage, p.micro_batch, False) if p.stage == num_stages - 1 else (p.stage + 1, p.micro_batch, True)
    return None if p.stage == 0 else (p.stage - 1, p.micro_batch, False)
