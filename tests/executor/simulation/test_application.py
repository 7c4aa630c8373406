"""What is true of an application that was measured, by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from executor.simulation.application import MeasuredApplication, ring
from models.configurations import enumerate_configurations
from tests.models.allocation.gang.scenes import cluster
from tests.workloads.profiles import profiles


@pytest.fixture
def application(tmp_path: Path) -> MeasuredApplication:
    return MeasuredApplication(profiles(tmp_path)[0])


def test_steps_are_linear_in_the_local_batch(application: MeasuredApplication) -> None:
    """And stay what they were at the ends of what was measured."""
    step_s, sync_s = application.steps["a"].times_s((2,), np.array([1.0, 10.0, 15.0, 40.0]))
    assert step_s == pytest.approx([0.6, 1.1, 1.6, 2.1])
    assert sync_s == pytest.approx([0.1] * 4)


def test_placements_that_were_not_measured_lie_between_those_that_were(application: MeasuredApplication) -> None:
    """8 GPUs of two nodes take 0.5 s, 12 of three 0.6 s; beyond them the nearest counts."""
    between, beyond = (float(application.steps["a"].times_s(gpus, np.array([10.0]))[1, 0]) for gpus in ((3,), (8,) * 6))
    assert between == pytest.approx(0.15)
    assert beyond == pytest.approx(0.6)


def test_measurements_of_one_node_alone_span_no_volume(tmp_path: Path) -> None:
    (profile,) = profiles(tmp_path)
    (kind,) = profile.types
    inside = replace(kind, steps=tuple(step for step in kind.steps if step.num_nodes == 1))
    application = MeasuredApplication(replace(profile, types=(inside,)))
    assert application.steps["a"].times_s((4, 4), np.array([10.0]))[:, 0] == pytest.approx([1.2, 0.2])


def test_a_share_of_the_bandwidth_makes_the_wait_for_synchronisation_longer(application: MeasuredApplication) -> None:
    """4 GPUs of two nodes wait 0.5 s of 1.5 s; with a quarter of the bandwidth 2 s of 3 s."""
    batch = np.array([10.0])
    assert application.steps["a"].times_s((4, 4), batch, 0.25)[:, 0] == pytest.approx([3.0, 2.0])
    full = application.steps["a"].times_s((4, 4), batch)
    assert full.tolist() == application.steps["a"].times_s((4, 4), batch, 1.0).tolist() == [[1.5], [0.5]]
    # 80 samples a step count as 40, the largest batch tried.
    assert application.speed("a", (4, 4), 10, 0, 0, 0.25) == application.speed("a", (4, 4), 10, 0, 0) / 2


def test_alone_a_job_has_the_bandwidth_of_the_least_spread(application: MeasuredApplication) -> None:
    made = enumerate_configurations(replace(cluster(4, 4, per_rack=1), core_bandwidth_fraction=0.01))
    two_nodes = made.subset(made.num_nodes == 2)
    full = replace(two_nodes, bandwidth_fraction=np.ones(1))
    assert application.fastest_s(two_nodes, 64)[0] > 10 * application.fastest_s(full, 64)[0]


def test_the_ring_of_nodes_begins_anywhere() -> None:
    assert ring((4, 4, 1)) == ring((4, 1, 4)) == (1, 4, 4)


def test_an_epoch_ends_where_it_ends_first(application: MeasuredApplication) -> None:
    assert application.work == 198
    assert [application.epoch(done) for done in (0, 99.9, 100, 198)] == [0, 0, 1, 1]


def test_speed_by_hand(application: MeasuredApplication) -> None:
    """Twice the batch is worth 2 / (1/2 + 1) steps in the first epoch, 4 / (3/2 + 1) in the second."""
    assert application.speed("a", (2,), 10, 0, 0) == pytest.approx(4 / 3 / 1.1)
    assert application.speed("a", (2,), 10, 0, 1) == pytest.approx(1.6 / 1.1)
    # Two steps, of which one synchronises; and a batch that was never tried counts as the largest that was.
    assert application.speed("a", (2,), 10, 1, 1) == pytest.approx(4 / (0.75 + 1) / 2.1)
    assert application.speed("a", (4,), 20, 0, 1) == pytest.approx(4 / (0.75 + 1) / 2.2)


@pytest.mark.parametrize(
    ("gpus", "batch", "expected"), [((1,), 10, (10, 0)), ((1,), 20, (10, 1)), ((2,), 40, (20, 0)), ((4, 4), 12, (2, 0))]
)
def test_a_batch_that_stays(
    application: MeasuredApplication, gpus: tuple[int, ...], batch: int, expected: tuple[int, int]
) -> None:
    """One replica accumulates above the initial batch: it could not tell the noise of its gradient."""
    assert application.fixed_batch("a", gpus, batch) == expected


def test_the_fastest_configuration_by_trying_all(application: MeasuredApplication) -> None:
    seconds, num_gpus = application.fastest_s(enumerate_configurations(cluster(4, 4)), 64)
    # 5 samples on each of 4 GPUs take 0.7 s, and are worth 2 / (1/2 + 1) steps, then 4 / (3/2 + 1); all 8 GPUs take 1 s
    # for 40 samples, which are worth 2 / (1/4 + 1) and 4 / (3/4 + 1).
    assert num_gpus == 4
    assert seconds == pytest.approx(100 / (4 / 3 / 0.7) + 98 / (1.6 / 0.7))
