from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.configurations import enumerate_configurations
from models.placement.check import placement_violations
from models.placement.nodes import assign_gpus, fullest_units_first, nearest_nodes
from models.placement.occupancy import Slices, gpus_of, node_gpus, occupancy
from models.placement.placeability import takes_whole_nodes
from models.plan import Change, JobAllocation
from models.workload import Job, Snapshot
from stowplan.arrays import IntMatrix, IntVector
from tests.growth import work
from tests.models.placement.scenes import (
    SEEDS,
    Scene,
    cluster,
    configuration,
    dice,
    node,
    on,
    packable,
    random_scene,
    whole_size,
)
from topology.cluster import Cluster, NodeState


def place(
    machines: Cluster, jobs: list[Job], wanted: dict[str, int], kind: str = "a"
) -> dict[str, dict[str, tuple[int, ...]]]:
    """Place jobs that want so many GPUs; job id -> node -> GPUs."""
    snapshot = Snapshot(cluster=machines, jobs=tuple(jobs))
    configurations = enumerate_configurations(machines)
    choice = {name: configuration(configurations, kind, count) for name, count in wanted.items()}
    placed = assign_gpus(snapshot, configurations, choice, occupancy(snapshot))
    return {name: readable(machines, slices) for name, slices in placed.items()}


def readable(machines: Cluster, slices: Slices) -> dict[str, tuple[int, ...]]:
    return {machines.nodes[i].id: gpus_of(mask) for i, mask in slices}


def test_jobs_that_keep_their_configuration_keep_their_gpus() -> None:
    jobs = [Job(id="p", current=on({"x": (2, 5)})), Job(id="w", current=on({"y": tuple(range(8))})), Job(id="n")]
    placed = place(cluster(node("x"), node("y")), jobs, {"p": 2, "w": 8, "n": 4})
    assert placed["p"] == {"x": (2, 5)}
    assert placed["w"] == {"y": tuple(range(8))}
    # GPUs 2 and 5 break both blocks of 4, so what is left is taken from below.
    assert placed["n"] == {"x": (0, 1, 3, 4)}


def test_best_fit_and_aligned_blocks() -> None:
    """x [##......]  y [....]: a pair goes where it leaves least, 4 GPUs take the aligned upper block of x."""
    machines = cluster(node("x", in_use=(0, 1)), node("y", 4), node("z"))
    assert place(machines, [Job(id="p")], {"p": 2}) == {"p": {"y": (0, 1)}}
    jobs = [Job(id="p"), Job(id="q"), Job(id="r")]
    assert place(machines, jobs, {"p": 4, "q": 4, "r": 2}) == {
        "p": {"y": (0, 1, 2, 3)},
        "q": {"x": (4, 5, 6, 7)},
        "r": {"x": (2, 3)},
    }


def test_a_shrinking_job_stays_on_a_subset_and_a_growing_one_on_its_node() -> None:
    jobs = [
        Job(id="shrinks", current=on({"x": tuple(range(8))})),
        Job(id="grows", current=on({"y": (6,)})),
        Job(id="narrows", current=on({"z": tuple(range(8)), "u": tuple(range(8))})),
        Job(id="widens", current=on({"v": tuple(range(8))})),
    ]
    machines = cluster(*(node(name) for name in "rxyzuvw"))
    placed = place(machines, jobs, {"shrinks": 2, "grows": 4, "narrows": 8, "widens": 16})
    assert placed["shrinks"] == {"x": (0, 1)}
    assert placed["grows"] == {"y": (4, 5, 6, 7)}
    assert placed["narrows"].keys() <= {"z", "u"}
    assert "v" in placed["widens"]


def test_fragmentation_moves_the_one_job_that_is_in_the_way() -> None:
    """Two nodes, four pairs, two of them spread out; a whole node is wanted: only `c` has to move.

    x [aabb....]  y [cc......]   ->   x [aabbcc..]  y [wwwwwwww]
    """
    jobs = [
        Job(id="a", current=on({"x": (0, 1)})),
        Job(id="b", current=on({"x": (2, 3)})),
        Job(id="c", current=on({"y": (0, 1)})),
        Job(id="w"),
    ]
    placed = place(cluster(node("x"), node("y")), jobs, {"a": 2, "b": 2, "c": 2, "w": 8})
    assert placed == {
        "a": {"x": (0, 1)},
        "b": {"x": (2, 3)},
        "c": {"x": (4, 5)},
        "w": {"y": tuple(range(8))},
    }


def test_of_equally_few_jobs_the_smaller_one_moves() -> None:
    jobs = [
        Job(id="big", current=on({"x": (0, 1, 2, 3)})),
        Job(id="small", current=on({"y": (7,)})),
        Job(id="w"),
    ]
    placed = place(cluster(node("x"), node("y")), jobs, {"big": 4, "small": 1, "w": 8})
    assert placed["big"] == {"x": (0, 1, 2, 3)}
    assert placed["w"] == {"y": tuple(range(8))}


def test_multi_node_jobs_stay_inside_the_smallest_unit_with_room() -> None:
    """Leaves p/x: 1 node, p/y: 2 nodes, q/x: 3 nodes. Two nodes go to p/y; a job on q1 grows inside q/x."""
    paths = {"p0": ("p", "x"), "p1": ("p", "y"), "p2": ("p", "y")} | {f"q{i}": ("q", "x") for i in range(3)}
    machines = cluster(*(node(name, path=path) for name, path in paths.items()), tiers=("pod", "leaf"))
    assert place(machines, [Job(id="w")], {"w": 16})["w"].keys() == {"p1", "p2"}
    jobs = [Job(id="g", current=on({"q1": tuple(range(8))})), Job(id="w")]
    placed = place(machines, jobs, {"g": 16, "w": 24})
    assert placed["g"].keys() == {"q0", "q1"}
    assert placed["w"].keys() == {"p0", "p1", "p2"}


@pytest.mark.parametrize(("core", "expected"), [(1.0, {"x0", "y0"}), (0.5, {"y0", "y1"})])
def test_a_growing_job_leaves_its_node_where_that_would_cost_it_bandwidth(core: float, expected: set[str]) -> None:
    """Pod x has the job's node and one in use, pod y two free ones. It is started anew whatever nodes it gets."""
    full = tuple(range(8))
    nodes = [node("x0", path=("x",)), node("x1", path=("x",), in_use=full)]
    nodes += [node("y0", path=("y",)), node("y1", path=("y",))]
    machines = replace(cluster(*nodes, tiers=("pod",)), core_bandwidth_fraction=core)
    placed = place(machines, [Job(id="grows", current=on({"x0": full})), Job(id="new")], {"grows": 16, "new": 8})
    assert set(placed["grows"]) == expected
    assert len(placed["new"].keys() - expected) == 1


def test_drained_nodes_are_left() -> None:
    machines = cluster(node("x", state=NodeState.DRAINED), node("y"))
    assert place(machines, [Job(id="p", current=on({"x": (0, 1)}))], {"p": 2}) == {"p": {"y": (0, 1)}}


def test_a_choice_that_cannot_be_placed_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be placed"):
        place(cluster(node("x")), [Job(id="p"), Job(id="q")], {"p": 8, "q": 1})


def test_without_time_for_the_fewest_moves_everything_is_still_placed() -> None:
    """x [aabb....]  y [cc......], a whole node is wanted and no search allowed: jobs are repacked one by one."""
    jobs = (
        Job(id="a", current=on({"x": (0, 1)})),
        Job(id="b", current=on({"x": (2, 3)})),
        Job(id="c", current=on({"y": (0, 1)})),
        Job(id="w"),
    )
    snapshot = Snapshot(cluster=cluster(node("x"), node("y")), jobs=jobs)
    configurations = enumerate_configurations(snapshot.cluster)
    choice = {name: configuration(configurations, "a", count) for name, count in zip("abcw", (2, 2, 2, 8), strict=True)}
    taken = occupancy(snapshot)
    placed = assign_gpus(snapshot, configurations, choice, taken, time_limit_s=1e-9)
    scene = Scene(snapshot=snapshot, configurations=configurations, taken=taken, choice=choice)
    assert placed.keys() == set("abcw")
    assert placement_violations(snapshot, allocations_of(scene, placed)) == []


def allocations_of(scene: Scene, placed: dict[str, Slices]) -> list[JobAllocation]:
    running = {name: scene.taken.running[name] for name in sorted(scene.taken.pinned)}
    return [
        JobAllocation(
            job_id=name,
            gpu_type=scene.snapshot.cluster.nodes[slices[0][0]].gpu_type,
            num_gpus=sum(mask.bit_count() for _, mask in slices),
            gpus=node_gpus(slices, scene.snapshot),
            change=Change.STARTED,
        )
        for name, slices in (placed | running).items()
    ]


@settings(max_examples=50, deadline=None)
@given(seed=SEEDS)
def test_every_admitted_choice_is_placed_legally(seed: int) -> None:
    rng = dice(seed)
    scene = random_scene(rng)
    placed = assign_gpus(scene.snapshot, scene.configurations, scene.choice, scene.taken)
    assert placed.keys() == scene.choice.keys()
    assert placement_violations(scene.snapshot, allocations_of(scene, placed)) == []
    for name, slices in placed.items():
        c = scene.choice[name]
        shape = (len(slices), sum(mask.bit_count() for _, mask in slices))
        assert shape == (scene.configurations.num_nodes[c], scene.configurations.num_gpus[c])


def fewest_moves_by_trying(scene: Scene) -> int:
    """Smallest number of jobs that lose their GPUs although they keep their configuration, by trying all subsets."""
    stay = [name for name in scene.choice if may_stay(scene, name)]
    for num_moved in range(len(stay) + 1):
        if any(fits_around(scene, set(stay) - set(moved)) for moved in combinations(stay, num_moved)):
            return num_moved
    raise AssertionError("not even moving every job makes room")


def may_stay(scene: Scene, name: str) -> bool:
    c = scene.choice[name]
    slices = scene.taken.running.get(name, ())
    nodes = scene.snapshot.cluster.nodes
    kind = scene.configurations.gpu_types[scene.configurations.type_index[c]]
    shape = (scene.configurations.num_nodes[c], scene.configurations.num_gpus[c])
    return (
        (len(slices), sum(mask.bit_count() for _, mask in slices)) == shape
        and all(nodes[i].gpu_type == kind and nodes[i].state is NodeState.UP for i, _ in slices)
        and (
            not takes_whole_nodes(scene.configurations)[c]
            or all(mask.bit_count() == nodes[i].num_gpus == whole_size(scene, kind) for i, mask in slices)
        )
    )


def fits_around(scene: Scene, kept: set[str]) -> bool:
    """Whether all other jobs can be packed when the jobs `kept` keep their GPUs."""
    free = scene.num_free.copy()
    for name in kept:
        for i, mask in scene.taken.running[name]:
            free[i] -= mask.bit_count()
    whole = takes_whole_nodes(scene.configurations)
    for t, kind in enumerate(scene.configurations.gpu_types):
        members = [i for i, item in enumerate(scene.snapshot.cluster.nodes) if item.gpu_type == kind]
        new = [c for name, c in scene.choice.items() if name not in kept and scene.configurations.type_index[c] == t]
        items = sorted((int(scene.configurations.num_gpus[c]) for c in new if not whole[c]), reverse=True)
        num_whole = int(sum(scene.configurations.num_nodes[c] for c in new if whole[c]))
        sizes = [scene.snapshot.cluster.nodes[i].num_gpus for i in members]
        if not packable(sizes, free[members].tolist(), whole_size(scene, kind), items, num_whole):
            return False
    return True


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS)
def test_moves_are_as_few_as_possible(seed: int) -> None:
    rng = dice(seed)
    scene = random_scene(rng, num_nodes=3, num_jobs=8)
    placed = assign_gpus(scene.snapshot, scene.configurations, scene.choice, scene.taken)
    moved = sum(may_stay(scene, name) and placed[name] != scene.taken.running[name] for name in placed)
    assert moved == fewest_moves_by_trying(scene)


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_placement_is_deterministic_and_legal_in_any_order(seed: int) -> None:
    rng = dice(seed)
    scene = random_scene(rng)
    names = rng.sample(sorted(scene.choice), k=len(scene.choice))
    shuffled = {name: scene.choice[name] for name in names}
    first, again, other = (
        assign_gpus(scene.snapshot, scene.configurations, choice, scene.taken)
        for choice in (scene.choice, scene.choice, shuffled)
    )
    assert first == again
    assert placement_violations(scene.snapshot, allocations_of(scene, other)) == []


@st.composite
def fabrics(draw: st.DrawFn) -> tuple[list[list[int]], IntMatrix, IntVector]:
    """Free nodes by pod and leaf; (pod, leaf) of every node, and which of them are free, in any order."""
    rooms = draw(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=4))
    leaves = [(pod, room) for pod, own in enumerate(rooms) for room in own]
    # A node in use beside the free ones, so that a leaf without any is there, too.
    rows = [(pod, leaf, k < room) for leaf, (pod, room) in enumerate(leaves) for k in range(room + 1)]
    rows = draw(st.permutations(rows))
    free = np.flatnonzero([is_free for _, _, is_free in rows])
    return rooms, np.array([row[:2] for row in rows], dtype=np.int64), free


def fewest(rooms: list[int], count: int) -> int:
    """Units that `count` nodes need at least."""
    return next(k for k in range(1, len(rooms) + 1) if sum(sorted(rooms)[-k:]) >= count)


@given(fabrics(), st.data())
def test_nearest_nodes_are_on_the_fewest_units_and_break_the_fullest(
    fabric: tuple[list[list[int]], IntMatrix, IntVector], data: st.DataObject
) -> None:
    rooms, units, free = fabric
    if not free.size:
        return
    count = data.draw(st.integers(1, free.size))
    chosen = nearest_nodes(free, count, units, ())
    assert len(set(chosen)) == len(chosen) == count
    assert set(chosen) <= set(free.tolist())
    taken = Counter(units[chosen, 1].tolist())
    pods = set(units[chosen, 0].tolist())
    assert len(pods) == fewest([sum(own) for own in rooms], count)
    left = {leaf: int((units[free, 1] == leaf).sum()) - taken[leaf] for leaf in set(units[:, 1].tolist())}
    broken = [leaf for leaf in taken if left[leaf]]
    assert len(broken) <= 1
    inside = [leaf for leaf in left if units[units[:, 1] == leaf][0, 0] in pods]
    if len(pods) == 1:
        assert len(taken) == fewest([left[leaf] + taken[leaf] for leaf in inside], count)
    # What was left to be placed had no fuller leaf that it fits.
    for leaf in broken:
        pod = units[units[:, 1] == leaf][0, 0]
        others = [k for k in left if units[units[:, 1] == k][0, 0] == pod and not taken[k]]
        assert all(left[k] < taken[leaf] or left[k] >= left[leaf] + taken[leaf] for k in others)


@given(fabrics())
def test_nodes_that_are_taken_one_by_one_leave_the_emptiest_units_alone(
    fabric: tuple[list[list[int]], IntMatrix, IntVector],
) -> None:
    """However many are taken, no choice of as many would leave more room on the one, two, three emptiest leaves."""
    rooms, units, free = fabric
    order = fullest_units_first(free, free, units)
    assert sorted(order.tolist()) == free.tolist()
    of_leaf = sorted((room for own in rooms for room in own), reverse=True)
    for count in range(free.size + 1):
        left = sorted(np.bincount(units[order[count:], 1], minlength=len(of_leaf)).tolist(), reverse=True)
        for num in range(1, len(of_leaf) + 1):
            assert sum(left[:num]) == min(sum(of_leaf[:num]), free.size - count)


def test_parts_of_nodes_break_no_leaf_that_is_whole() -> None:
    """r runs on b1: its leaf is broken already. Nobody moves, and leaf a stays whole for w."""
    machines = cluster(*(node(name, path=(name[0],)) for name in ("a1", "a2", "b1", "b2")), tiers=("leaf",))
    running = Job(id="r", current=on({"b1": tuple(range(8))}))
    assert place(machines, [running, Job(id="p"), Job(id="q")], {"r": 8, "p": 4, "q": 4}) == {
        "r": {"b1": tuple(range(8))},
        "p": {"b2": (0, 1, 2, 3)},
        "q": {"b2": (4, 5, 6, 7)},
    }


def test_nearest_nodes_grow_with_the_nodes() -> None:
    def cost(size: int) -> int:
        """Half of the nodes below leaves of 16, of which every third is in use; leaves are in pods of 8."""
        nodes = np.arange(size)
        units = np.stack([nodes // 128, nodes // 16], axis=1)
        return work(lambda: nearest_nodes(nodes[nodes % 3 > 0], size // 2, units, ()))

    cost(256)
    assert cost(8192) <= 2.3 * cost(4096)
