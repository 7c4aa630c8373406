"""Which nodes and GPUs jobs get: few nodes, close together, with little breakage."""

from dataclasses import replace

from models.allocation.gang.placing import Layout
from tests.models.allocation.gang.scenes import cluster, kind, nodes, plan_of, queue, running, started
from topology.arrays import cluster_arrays
from topology.cluster import Cluster


def test_a_job_of_several_nodes_stays_in_the_rack_that_it_fills_best() -> None:
    """
    rack 0   a0 busy  a1        two nodes fit racks 1 and 2; rack 1 has no third one, which rack 2 keeps
    rack 1   a3  a4   a5 busy
    rack 2   a6  a7   a8
    """
    jobs = (
        running("r0", 9.0, a0=range(8)),
        running("r2", 9.0, a2=range(8)),
        running("r5", 9.0, a5=range(8)),
        *queue(("two", 16, 9.0), ("three", 24, 9.0)),
    )
    plan = plan_of(cluster(*[8] * 9, per_rack=3), *jobs)
    assert started(plan) == {"two": ["a3", "a4"], "three": ["a6", "a7", "a8"]}


def test_single_nodes_come_from_the_fullest_rack() -> None:
    jobs = (running("r", 9.0, a2=range(8)), *queue(("one", 8, 9.0), ("part", 2, 9.0), ("pair", 16, 9.0)))
    plan = plan_of(cluster(*[8] * 5), *jobs)
    # Racks: a0 a1, a2 a3, a4. The pair needs a whole one; a3 and a4 are alone.
    assert started(plan)["pair"] == ["a0", "a1"]
    assert {*started(plan)["one"], *started(plan)["part"]} == {"a3", "a4"}


def test_the_rest_of_a_job_sits_next_to_its_whole_nodes() -> None:
    """Twelve GPUs: a whole node, and four of its neighbour, not of a0 in another rack."""
    jobs = (running("r", 9.0, a0=range(8)), *queue(("twelve", 12, 9.0)))
    assert started(plan_of(cluster(8, 8, 8, 8), *jobs)) == {"twelve": ["a2", "a3"]}


def test_items_take_aligned_blocks_of_the_node_that_they_fill_best() -> None:
    """a0 has GPUs 0, 1, 4 and more free, a1 all: two GPUs go to a0, as a pair of neighbours."""
    jobs = (running("r", 9.0, a0=(2, 3, 5)), *queue(("pair", 2, 9.0), ("four", 4, 9.0)))
    plan = plan_of(cluster(8, 8), *jobs)
    gpus = {item.job_id: [(part.node, part.gpus) for part in item.gpus] for item in plan.allocations}
    assert gpus["pair"][0][1] in ((0, 1), (6, 7))
    assert gpus["four"] == [("a1", (0, 1, 2, 3))]


def test_nodes_need_no_tiers() -> None:
    bare = Cluster(gpu_types=(kind("a"),), nodes=tuple(replace(node, path=()) for node in nodes(8, 8, 8)))
    plan = plan_of(bare, *queue(("pair", 16, None), ("part", 3, None)))
    assert started(plan) == {"pair": ["a0", "a1"], "part": ["a2"]}


def test_whole_nodes_of_a_layout_are_given_once() -> None:
    where = cluster(8, 8, 8, 8)
    layout = Layout(free=[255] * 4, units=cluster_arrays(where).units)
    layout.lay_out(range(4), 8, {(8, 8): 3, (8, 3): 1}, [("one", 1), ("two", 2)], [("part", 3)])
    taken = [node for job in ("one", "two", "part") for node, _ in layout.slices(job)]
    assert sorted(taken) == [0, 1, 2, 3]
    assert sum(mask.bit_count() for mask in layout.free) == 5
