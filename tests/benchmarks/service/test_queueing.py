"""The simulation of queues against what theory knows of them."""

import math

import pytest

from benchmarks.service.plans_per_second import Costs, sizes
from benchmarks.service.queueing import Load, Machine, Station, Visit, simulate

ONE = [Station(name="a", num_servers=1)]


def test_one_server_with_exponential_times_is_as_full_and_slow_as_theory_says() -> None:
    # M/M/1: busy = rate x mean; the time in there is exponential with mean 1 / (1 / mean - rate), here 25 ms.
    flow = simulate(
        ONE, [Visit(station="a", mean_s=0.01)], Load(plans_per_s=60.0), seconds=400.0, variation=1.0, seed=1
    )
    assert flow.plans_per_s == pytest.approx(60.0, rel=0.03)
    assert flow.busy["a"] == pytest.approx(0.6, rel=0.03)
    assert flow.median_s == pytest.approx(0.025 * math.log(2), rel=0.1)
    assert flow.p95_s == pytest.approx(0.025 * math.log(20), rel=0.1)


def test_clients_that_post_again_get_what_the_slowest_station_gives() -> None:
    stations = [*ONE, Station(name="b", num_servers=2)]
    way = [Visit(station="a", mean_s=0.01), Visit(station="b", mean_s=0.04)]
    # Two servers of 40 ms: 50 a second; Little: 8 clients are served in 8 / 50 s.
    flow = simulate(stations, way, Load(num_clients=8), seconds=60.0)
    assert flow.plans_per_s == pytest.approx(50.0, rel=0.02)
    assert flow.busy["b"] == pytest.approx(1.0, abs=0.02)
    assert flow.median_s == pytest.approx(8 / 50, rel=0.05)
    assert flow.num_left == 8


def test_cores_are_shared_with_what_runs_beside_and_commits_need_none() -> None:
    stations = [Station(name="a", num_servers=4), Station(name="db", num_servers=1, uses_cpu=False)]
    cpu, commit = Visit(station="a", mean_s=0.02), Visit(station="db", mean_s=0.001)
    machine = Machine(cores=2.0, num_beside=4.0)
    # Four that run beside four others on two cores get a quarter each: 4 x 0.25 / 20 ms.
    flow = simulate(stations, [cpu], Load(num_clients=4), machine=machine, seconds=60.0)
    assert flow.plans_per_s == pytest.approx(50.0, rel=0.02)
    alone = simulate(stations, [commit], Load(num_clients=4), machine=machine, seconds=10.0)
    assert alone.plans_per_s == pytest.approx(1000.0, rel=0.02)


def test_sizes_are_two_thirds_busy() -> None:
    costs = Costs(service_s=0.01, worker_s=0.03, client_s=0.002, commit_s=0.001)
    assert sizes(costs, 1000.0) == [(1, 5), (7, 45), (15, 22), (15, 45)]
