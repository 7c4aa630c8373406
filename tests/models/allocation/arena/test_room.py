"""What is kept of searches for room from move to move is what a fresh look finds."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from models.allocation.arena.assignment import Assignment, Moves, Way
from models.allocation.arena.parameters import ArenaMethod
from models.allocation.arena.room import Room
from tests.models.allocation.arena.scenes import formulation_of, random_parameters, random_snapshot
from tests.models.placement.scenes import SEEDS, dice

_DEPTHS = (0, 2, 9)


def told(ways: Sequence[Way]) -> list[tuple[Moves, tuple[float, ...], tuple[float, ...]]]:
    return [(way.moves, way.costs, way.savings) for way in ways]


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_what_is_kept_is_what_a_fresh_look_finds(seed: int) -> None:
    rng = dice(seed)
    snapshot = random_snapshot(rng, num_nodes=6, num_jobs=12)
    instance = formulation_of(snapshot, random_parameters(rng, ArenaMethod.HEURISTIC)).instance
    assignment, depth = Assignment(instance), rng.choice(_DEPTHS)
    room = Room(assignment, depth)
    pairs = list(zip(instance.pair_jobs.tolist(), instance.pair_configurations.tolist(), strict=True))
    for _ in range(8 if pairs else 0):
        fresh = Room(assignment, depth)
        assert room.best_fitting() == fresh.best_fitting()
        for i, c in pairs:
            for steps in (depth, 9):
                assert told(room.ways(c, steps, lambda: False)) == told(fresh.ways(c, steps, lambda: False))
            if assignment.chosen[i] >= 0:
                found, expected = (look.ways_for(i, c, depth, lambda: False) for look in (room, fresh))
                assert told(found) == told(expected)
        job, target = rng.choice(pairs)
        ways = room.ways(target, depth, lambda: False)
        if assignment.chosen[job] < 0 and ways:
            room.moved(assignment.apply({**rng.choice(ways).moves, job: target}))
