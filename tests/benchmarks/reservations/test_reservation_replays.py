"""What variants do with the same arrivals around a large job that is told ahead."""

import random

import pytest

from benchmarks.reservations.arrivals import Drawn, Source, source_of
from benchmarks.reservations.day import HOUR_S, Day, Outcome
from benchmarks.reservations.reservation_replays import comparisons, day_of, outcomes, summary
from benchmarks.reservations.variants import VARIANTS, Present, last_moves, nodes_by_topology
from benchmarks.rows import Row
from benchmarks.workloads.ahead_weeks import generated_cluster
from models.workload import NodeGpus
from workloads.trace import Trace, TraceJob

pytest.importorskip("lightgbm")
_NUM_NODES, _LARGE = 64, 32


@pytest.fixture(scope="module")
def source() -> Source:
    """A queue of jobs around ten minutes, and one of jobs around three hours, of one node or four."""
    random_ = random.Random(0)  # noqa: S311 - seeded, not secret
    jobs = []
    for k in range(1500):
        queue, median_s = random_.choice((("short", 600.0), ("long", 10_000.0)))
        duration_s = median_s * random_.uniform(0.7, 1.3)
        jobs.append(
            TraceJob(
                id=str(k), submit_s=60.0 * k, num_gpus=random_.choice((1, 1, 4)), duration_s=duration_s, queue=queue
            )
        )
    return source_of(Trace(name="two queues", jobs=tuple(jobs)), 4 * HOUR_S)


@pytest.fixture(scope="module")
def day(source: Source) -> Day:
    cluster = generated_cluster(_NUM_NODES, 4)
    planned = nodes_by_topology(cluster, _LARGE)
    return day_of(source, cluster, planned, _LARGE, 0, busy=0.9, epsilon=0.05)


@pytest.fixture(scope="module")
def found(day: Day) -> dict[str, Outcome]:
    return dict(outcomes(day, list(VARIANTS)))


def test_forecasts_are_of_jobs_that_nobody_learned_from(source: Source) -> None:
    learned = source.learned
    assert source.jobs == learned.history.jobs[1350:]
    assert len(source.quantiles_s) == len(source.jobs)
    short = [k for k, job in enumerate(source.jobs) if job.queue == "short"]
    assert all(source.classed(k).seconds[0] in (600.0, 1200.0) for k in short)
    # One that has lasted for longer than any of its queue is over within the limit, at least.
    (left,) = source.left(short[:1], [3 * HOUR_S])
    assert left.quantile(1.0) == pytest.approx(HOUR_S)


@pytest.mark.slow
def test_the_same_begin_and_rates_within_bounds(day: Day, found: dict[str, Outcome]) -> None:
    assert len({outcome.allocation[0] for outcome in found.values()}) == 1
    assert len({outcome.num_arrived for outcome in found.values()}) == 1
    for outcome in found.values():
        assert all(0 <= rate <= 1 for rate in (*outcome.allocation, *outcome.retention))
        assert 0 <= outcome.idle_node_h <= 4 * _LARGE
        assert outcome.busy_node_h <= 4 * _NUM_NODES
        assert outcome.evicted_nodes == pytest.approx(outcome.retention[-1] * _LARGE)
        assert outcome.wrong <= outcome.evicted
    assert day.start_s - day.told_s == 4 * HOUR_S


@pytest.mark.slow
def test_a_soft_entry_keeps_nobody_off(found: dict[str, Outcome]) -> None:
    assert found["best-effort"] == found["bin-pack"]
    assert found["bin-pack"].evicted > 0


@pytest.mark.slow
def test_who_says_nothing_or_the_truth_is_in_nobodys_way(found: dict[str, Outcome]) -> None:
    """Nobody who ran at 18:00 may run at 22:00, and who is admitted then ends in time for certain."""
    for name in ("arnold-blind", "ours-sure", "oracle"):
        assert (found[name].wrong, found[name].evicted, found[name].retention[-1]) == (0, 0, 0.0)
    assert found["oracle"].idle_node_h < found["arnold-blind"].idle_node_h
    assert found["oracle"].waited_s < found["arnold-blind"].waited_s


@pytest.mark.slow
def test_quantiles_are_in_the_way_less_than_points(found: dict[str, Outcome]) -> None:
    assert found["ours"].wrong <= found["arnold"].wrong
    assert found["ours"].idle_node_h < found["arnold-blind"].idle_node_h


def test_who_is_there_too_long_is_moved_to_free_nodes(source: Source) -> None:
    """Of sixteen nodes eight are planned; a guest has two or three of them, of the others all but two have jobs."""
    cluster = generated_cluster(16, 2)
    names = [node.id for node in cluster.nodes]
    planned, others = names[:8], names[8:]
    number = next(k for k, job in enumerate(source.jobs) if job.queue == "long")

    def present(name: str, *nodes: str) -> Present:
        drawn = Drawn(id=name, number=number, at_s=0.0, num_nodes=len(nodes), duration_s=10_000.0)
        gpus = tuple(NodeGpus(node=node, gpus=tuple(range(8))) for node in nodes)
        return Present(drawn=drawn, age_s=600.0, gpus=gpus)

    stay = [present(f"other-{k}", node) for k, node in enumerate(others[:6])]
    (move,) = last_moves(cluster, [present("guest", *planned[:2]), *stay], source, planned)
    assert (move.job_id, set(move.from_nodes), set(move.to_nodes)) == ("guest", set(planned[:2]), set(others[6:]))
    assert last_moves(cluster, [present("guest", *planned[:3]), *stay], source, planned) == ()


def test_figures_of_two_seeds_by_hand() -> None:
    """Idle 20 beside 40 hours on average; at its least, half way, allocation is 0.1 below that of the other."""

    def row(variant: str, seed: int, idle_node_h: float, halfway: float) -> Row:
        others = dict.fromkeys(("busy_node_h", "evicted", "wrong", "waited_s", "num_minipods", "moved_nodes"), 1.0)
        rates = {"allocation": [0.9, halfway, 0.5], "retention": [0.9, 0.5, 0.0]}
        return {"trace": "t", "seed": seed, "variant": variant, "idle_node_h": idle_node_h, **others, **rates}

    rows = [
        row("ours", 0, 10.0, 0.6),
        row("ours", 1, 30.0, 0.4),
        row("arnold", 0, 40.0, 0.7),
        row("arnold", 1, 40.0, 0.5),
    ]
    (beside,) = comparisons(rows)
    assert (beside["idle"], beside["least higher allocation"]) == ("-50%", "-0.1000")
    ours, arnold = summary(rows)
    assert (ours["idle h"], arnold["idle h"]) == ("20 ±14", "40 ±0")
    assert ours["alloc 18/20/22"] == "0.900 0.500 0.500"
