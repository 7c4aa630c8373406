"""When waiting alone changes plans."""

from dataclasses import replace

import pytest

from models.allocation.ageing import next_birthday_s, next_promotion_s
from models.allocation.arena.parameters import ArenaAnswer, ArenaMethod, ArenaObjective, ArenaParameters
from models.allocation.arena.waiting import changes_after
from models.allocation.gang.idle import changes_after as gang_changes_after
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.policy import Waiting


@pytest.mark.parametrize(
    ("waiting", "after_s"),
    [
        ([], None),
        ([(0.0, 1), (500.0, 1)], None),
        ([(0.0, 2)], 60.0),
        ([(60.0, 2)], None),
        ([(60.0, 3), (10.0, 1)], 60.0),
        ([(45.0, 3), (110.0, 3)], 10.0),
    ],
)
def test_promotions(waiting: list[Waiting], after_s: float | None) -> None:
    assert next_promotion_s(waiting, 60.0) == after_s


def test_birthdays() -> None:
    assert next_birthday_s([(10.0, 1), (40.0, 9), (100.0, 1)], 100.0) == 60.0
    assert next_birthday_s([(100.0, 1)], 100.0) is None


def test_gang_changes_where_a_running_job_has_had_enough() -> None:
    """The first reaches 100 GPU seconds in 10 s, the second in 5 s, the third is beyond them."""
    gang = GangParameters(order=QueueOrder.LAS, preemption=True, service_thresholds=(100.0,))
    running = [(4, 60.0), (1, 95.0), (8, 100.0)]
    assert gang_changes_after(gang, [(0.0, 1)], running) == 5.0
    assert gang_changes_after(gang, [(0.0, 1)], running[2:]) is None
    assert gang_changes_after(gang, [], running) is None
    assert gang_changes_after(replace(gang, preemption=False), [(0.0, 1)], running) is None
    assert gang_changes_after(GangParameters(order=QueueOrder.SRTF), [(0.0, 1)], running) is None


def test_arena_changes_by_promotion_and_by_its_longest_wait() -> None:
    waiting = [(10.0, 2), (21_000.0, 1)]
    parameters = ArenaParameters(objective=ArenaObjective.COMPLETION_TIME)
    assert changes_after(parameters, waiting, []) == 600.0
    assert changes_after(replace(parameters, longest_wait_s=None), waiting, []) == 3590.0
    throughput = replace(parameters, objective=ArenaObjective.THROUGHPUT)
    # The heuristic answers with the integer program's point only while that keeps nobody waiting for too long.
    assert changes_after(throughput, waiting, []) == 600.0
    assert changes_after(replace(throughput, answer=ArenaAnswer.ALGORITHM), waiting, []) == 3590.0
    assert changes_after(replace(throughput, method=ArenaMethod.ILP), waiting, []) == 3590.0
    assert changes_after(replace(throughput, method=ArenaMethod.ILP, promotion_after_s=None), waiting, []) is None
