"""The parts of a stall add up, whatever clocks say; kinds of changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.change import RunChange, change_between, restart_price_s
from executor.stall import Stall, stall_between
from executor.timeline import Activity, Span, Start, Timeline
from models.parallel_plan import ParallelPlan, symmetric_plan


def span(activity: Activity, from_s: float, to_s: float) -> Span:
    return Span(activity=activity, from_s=from_s, seconds=to_s - from_s)


# Beside the old run, which does its last step until 100 s and writes a checkpoint until 103 s.
PREPARED = Start(
    spans=(
        span(Activity.IMPORTS, 80.0, 90.0),
        span(Activity.MEETING, 90.0, 91.0),
        span(Activity.BUILDING, 91.0, 95.0),
        span(Activity.WAITING, 95.0, 104.0),
        span(Activity.CONVERSION, 104.0, 106.0),
        span(Activity.LOADING, 106.0, 107.0),
    )
)
SAVING = span(Activity.SAVING, 100.5, 103.0)


def test_what_was_done_beside_the_old_run_is_no_part() -> None:
    found = stall_between(100.0, 107.25, SAVING, PREPARED)
    assert found == Stall(saving_s=3.0, handover_s=1.0, conversion_s=2.0, loading_s=1.0, other_s=0.25)


def test_a_state_that_was_handed_over_is_there_before_the_next_run_is_let_go() -> None:
    """The old ranks hand over until 102 s; the new ones take notice at 102.5 s and compute with it from 103 s on."""
    spans = (*PREPARED.spans[:3], span(Activity.WAITING, 95.0, 102.5), span(Activity.TRANSFER, 102.5, 103.0))
    found = stall_between(100.0, 103.0, None, Start(spans=spans), span(Activity.TRANSFER, 100.5, 102.0))
    assert found == Stall(transfer_s=2.5, handover_s=0.5)


def test_what_could_not_be_handed_over_is_saved_then() -> None:
    found = stall_between(100.0, 107.25, SAVING, PREPARED, span(Activity.TRANSFER, 100.0, 100.5))
    assert found == Stall(transfer_s=0.5, saving_s=2.5, handover_s=1.0, conversion_s=2.0, loading_s=1.0, other_s=0.25)


def test_the_longest_parts_are_said_first() -> None:
    found = Stall(saving_s=0.5, handover_s=1.25, loading_s=0.001)
    assert found.described() == "handover 1.25 s, saving 0.50 s"


def test_a_run_that_is_started_afterwards_does_all_of_it_in_the_stall() -> None:
    later = Start(spans=tuple(span(one.activity, one.from_s + 25, one.to_s + 25) for one in PREPARED.spans[:3]))
    found = stall_between(100.0, 120.0, SAVING, later)
    assert found == Stall(saving_s=3.0, launch_s=2.0, imports_s=10.0, meeting_s=1.0, building_s=4.0)


def test_without_a_last_checkpoint_nothing_is_saved() -> None:
    found = stall_between(70.0, 107.0, None, PREPARED)
    assert (found.saving_s, found.launch_s, found.imports_s) == (0.0, 10.0, 10.0)


seconds = st.floats(min_value=0.0, max_value=200.0)


@given(
    from_s=seconds,
    length_s=seconds,
    saving=st.none() | st.tuples(seconds, seconds),
    begin_s=seconds,
    handing=st.none() | st.tuples(seconds, seconds),
    lengths_s=st.lists(seconds, max_size=6),
)
def test_parts_add_up_whatever_clocks_say(
    from_s: float,
    length_s: float,
    saving: tuple[float, float] | None,
    begin_s: float,
    handing: tuple[float, float] | None,
    lengths_s: list[float],
) -> None:
    spans, at_s = [], begin_s
    for activity, one_s in zip(Activity, lengths_s, strict=False):
        spans.append(Span(activity=activity, from_s=at_s, seconds=one_s))
        at_s += one_s
    written = None if saving is None else Span(activity=Activity.SAVING, from_s=saving[0], seconds=saving[1])
    handed = None if handing is None else Span(activity=Activity.TRANSFER, from_s=handing[0], seconds=handing[1])
    found = stall_between(from_s, from_s + length_s, written, Start(spans=tuple(spans)), handed)
    assert found.total_s == pytest.approx(length_s, abs=1e-9)
    assert all(getattr(found, name) >= 0 for name in Stall.__dataclass_fields__)


def test_activities_follow_one_another() -> None:
    timeline = Timeline(Activity.IMPORTS)
    timeline.begin(Activity.MEETING)
    first, second = timeline.end().spans
    assert (first.activity, second.activity) == (Activity.IMPORTS, Activity.MEETING)
    assert first.to_s == pytest.approx(second.from_s)
    assert first.seconds >= 0


def plan(dp: int, tp: int, node: str = "a") -> ParallelPlan:
    gpus = tuple((node, gpu) for gpu in range(dp * tp))
    return symmetric_plan(
        num_layers=4, pp=1, dp=dp, tp=tp, global_batch=8, num_micro_batches=2, gpu_type="cpu", gpus=gpus
    )


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (None, plan(2, 1), RunChange.START),
        (plan(2, 1), plan(2, 1), RunChange.RESTART),
        (plan(2, 1), plan(2, 1, "b"), RunChange.MOVE),
        (plan(2, 1), plan(4, 1), RunChange.RESCALE),
        (plan(2, 2), plan(2, 1, "b"), RunChange.RESCALE),
        (plan(2, 1), plan(1, 2), RunChange.DEGREES),
        (plan(2, 1), plan(1, 2, "b"), RunChange.DEGREES),
    ],
)
def test_kind_of_a_change(before: ParallelPlan | None, after: ParallelPlan, change: RunChange) -> None:
    assert change_between(before, after) is change


@pytest.mark.parametrize(
    ("costs_s", "price_s"),
    [
        ({}, None),
        ({RunChange.START: 30.0}, 30.0),
        ({RunChange.START: 30.0, RunChange.RESTART: 20.0}, 20.0),
        ({RunChange.START: 30.0, RunChange.MOVE: 2.0, RunChange.RESCALE: 3.0}, 3.0),
        ({RunChange.DEGREES: 4.0, RunChange.RESTART: 20.0}, 4.0),
    ],
)
def test_price_of_other_gpus(costs_s: dict[RunChange, float], price_s: float | None) -> None:
    assert restart_price_s(costs_s) == price_s
