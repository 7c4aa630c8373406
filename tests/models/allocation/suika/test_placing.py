"""Where plans go: close together, tensor groups inside nodes, holes kept whole."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from models.allocation.suika.placing import place, renamed
from models.parallel_plan import ParallelPlan, Replica, Stage
from tests.models.allocation.suika.scenes import plan_on

FLAT: dict[str, tuple[str, ...]] = {f"n{k}": () for k in range(9)}


def groups_plan(sizes: list[int]) -> ParallelPlan:
    """One stage per tensor group."""
    stages = [
        Stage(num_layers=1, replicas=(Replica(node=f"v{k}", gpu_type="a", gpus=tuple(range(size)), local_batch=1),))
        for k, size in enumerate(sizes)
    ]
    return ParallelPlan(stages=tuple(stages), num_micro_batches=1)


def test_the_fullest_node_that_holds_the_plan() -> None:
    free = {"n0": range(8), "n1": range(3), "n2": range(4)}
    placed = place(plan_on([("v", 0), ("v", 1), ("v", 2)]), free, FLAT)
    assert placed is not None
    assert placed.gpus == (("n1", 0), ("n1", 1), ("n1", 2))


def test_the_last_part_goes_to_the_node_that_it_fills_best() -> None:
    """Ten GPUs: eight on a whole node, two where only two are free."""
    free = {"n0": range(8), "n1": range(8), "n2": range(2)}
    placed = place(plan_on([("v", k) for k in range(10)]), free, FLAT)
    assert placed is not None
    assert {node for node, _ in placed.gpus} == {"n0", "n2"}


def test_ranks_follow_one_another_from_node_to_node() -> None:
    free = {"n0": range(2), "n1": range(2)}
    placed = place(plan_on([("v", k) for k in range(4)]), free, FLAT)
    assert placed is not None
    assert [replica.node for replica in placed.stages[0].replicas] == ["n0", "n0", "n1", "n1"]


def test_nothing_when_groups_do_not_fit() -> None:
    assert place(plan_on([("v", 0), ("v", 1)], tp=2), {"n0": (0,), "n1": (3,)}, FLAT) is None


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_groups_whose_sizes_divide_one_another_fit_whenever_they_can(seed: int) -> None:
    """Against every way to put groups on nodes."""
    rng = Random(seed)  # noqa: S311 - reproducible instances, no secret
    sizes = sorted((rng.choice((1, 2, 4)) for _ in range(rng.randint(1, 6))), reverse=True)
    room = [rng.randint(0, 5) for _ in range(rng.randint(1, 4))]

    def fits(k: int, left: list[int]) -> bool:
        if k == len(sizes):
            return True
        return any(
            free >= sizes[k] and fits(k + 1, [*left[:n], free - sizes[k], *left[n + 1 :]])
            for n, free in enumerate(left)
        )

    free = {f"n{n}": tuple(range(count)) for n, count in enumerate(room)}
    placed = place(groups_plan(sizes), free, FLAT)
    assert (placed is not None) == fits(0, room)
    if placed is not None:
        assert all(gpu in free[node] for node, gpu in placed.gpus)
        assert [stage.tp for stage in placed.stages] == sizes


def test_renaming_moves_whole_groups() -> None:
    plan = plan_on([("n0", 0), ("n0", 1), ("n1", 0), ("n1", 1)], tp=2)
    moved = renamed(plan, {("n0", 0): ("n2", 5), ("n0", 1): ("n2", 4)})
    assert moved.gpus == (("n2", 5), ("n2", 4), ("n1", 0), ("n1", 1))
    assert renamed(plan, {}) == plan
