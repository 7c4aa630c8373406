"""Listing schedules, solving, placing and checking cost as much as there are jobs and nodes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.allocation.horizon.assembly import assemble, relaxation
from models.allocation.horizon.formulation import formulate_horizon
from models.allocation.horizon.instance import horizon_instance
from models.allocation.horizon.openings import openings
from models.allocation.horizon.openings_check import LaterGpus
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.sia.instance import sia_instance
from models.allocation.sia.parameters import SiaParameters
from models.clock import PhaseClock
from models.formulation import Formulation
from models.windows import availability
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from stowplan.arrays import FloatVector
from tests.growth import work
from tests.models.allocation.horizon import tiered
from tests.models.allocation.horizon.test_check import job
from tests.models.placement.scenes import cluster, node, on
from topology.calendar import CalendarEntry, EntryKind


def busy(num_nodes: int) -> Snapshot:
    """A job runs on every second node, and twice as many wait as there are nodes, two in a queue."""
    speeds = {1: 1.0, 2: 1.8, 4: 3.0, 8: 5.0}
    running = [
        job(f"r{k}", 900.0 + 7 * k, speeds, current=on({f"n{k}": tuple(range(8))})) for k in range(0, num_nodes, 2)
    ]
    waiting = [job(f"w{k}", 90.0 + 5 * k, speeds, queue=f"q{k // 2}") for k in range(2 * num_nodes)]
    return Snapshot(cluster=cluster(*(node(f"n{k}", 8) for k in range(num_nodes))), jobs=(*running, *waiting))


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"fairness": 1.0, "lateness": 1.0, "throughput": 1.0, "arrivals_per_h": 9.0},
        {"backlog_efficiency": None},
        {"quotas": {f"q{k}": 4 for k in range(30)}},
    ],
)
def test_a_plan_grows_with_the_size(asked: Mapping[str, Any]) -> None:
    parameters = HorizonParameters(num_intervals=3, horizon_s=3000.0, **asked)

    def plan(snapshot: Snapshot) -> None:
        formulation = formulate_horizon(snapshot, parameters, PhaseClock())
        result = formulation.solve(SolveOptions(solver="auto", relative_gap=0.05), SolveMonitor())
        assert result.incumbent is not None
        assert result.objective is not None
        made = formulation.extract(result.incumbent, PhaseClock())
        assert formulation.violations(made, result.objective) == []

    small, large = busy(15), busy(30)
    plan(small)
    assert work(lambda: plan(large)) <= 2.3 * work(lambda: plan(small))


def test_the_tail_grows_with_the_size() -> None:
    """Its rows, its columns and its extraction: how long HiGHS branches over them is counted by its callbacks."""
    parameters = HorizonParameters(num_intervals=3, horizon_s=3000.0, tail=0.3)

    def build(snapshot: Snapshot) -> None:
        instance = horizon_instance(snapshot, parameters, PhaseClock())
        assert relaxation(instance).cost.size == len(instance.schedules) + instance.num_tail
        instance.tail_columns(np.zeros(len(instance.schedules)))

    small, large = busy(15), busy(30)
    build(small)
    assert work(lambda: build(large)) <= 2.3 * work(lambda: build(small))


def test_reading_the_calendar_grows_with_nodes_and_jobs() -> None:
    """Every third node has an entry of its own; counted once for the program, and again for its check."""

    def read(snapshot: Snapshot) -> None:
        parameters = HorizonParameters()
        base = sia_instance(snapshot, SiaParameters(), PhaseClock())
        windows = availability(snapshot, parameters.epsilon)

        def both() -> None:
            openings(base, windows, snapshot)
            LaterGpus(snapshot, snapshot, parameters.epsilon, base.taken.pinned).mean(60.0, 600.0)

        costs.append(work(both))

    costs: list[int] = []
    for num_nodes in (60, 120):
        entries = tuple(
            CalendarEntry(name=f"m{k}", kind=EntryKind.MAINTENANCE, from_s=50.0 + k, until_s=500.0, nodes=(f"n{k}",))
            for k in range(0, num_nodes, 3)
        )
        read(replace(busy(num_nodes), calendar=entries))
    assert costs[1] <= 2.3 * costs[0]


def crowded(num_leaves: int) -> Snapshot:
    """Leaves of four nodes, on each of which a job has one node and another one two that are apart; two jobs wait,
    and an elastic one that may have one to eight."""
    names = [f"l{k}n{i}" for k in range(num_leaves) for i in range(4)]
    jobs = []
    for k in range(num_leaves):
        apart = names[4 * k + 1], names[(4 * k + 6) % len(names)]
        jobs += [
            tiered.job(f"one{k}", 8, 900.0 + 7 * k, current=tiered.whole(names[4 * k], num_gpus=8)),
            tiered.job(f"two{k}", 16, 700.0 + 3 * k, current=tiered.whole(*apart, num_gpus=8)),
            tiered.job(f"w{k}", 16, 300.0 + 5 * k),
            tiered.job(f"v{k}", 24, 200.0 + 5 * k),
            replace(tiered.job(f"e{k}", 8, 400.0 + 3 * k), max_gpus=64, performance=tiered.synchronised(8, 64)),
        ]
    return Snapshot(cluster=tiered.fabric(*[4] * num_leaves, num_gpus=8, core=0.25), jobs=tuple(jobs))


def test_placement_classes_grow_with_the_size() -> None:
    """Rows of units, the relaxation, placing in units and the check; how long HiGHS branches is not counted."""
    parameters = HorizonParameters(num_intervals=3, horizon_s=3000.0)
    costs = []
    for num_leaves in (8, 16):
        snapshot = crowded(num_leaves)
        formulation = formulate_horizon(snapshot, parameters, PhaseClock())
        result = formulation.solve(SolveOptions(solver="auto", relative_gap=0.05), SolveMonitor())
        assert result.incumbent is not None
        assert result.objective is not None
        point, objective = result.incumbent, result.objective

        def around(
            snapshot: Snapshot = snapshot,
            formulation: Formulation = formulation,
            point: FloatVector = point,
            objective: float = objective,
        ) -> None:
            instance = horizon_instance(snapshot, parameters, PhaseClock())
            assert instance.num_packing > 0
            assemble(instance)
            relaxation(instance)
            assert formulation.violations(formulation.extract(point, PhaseClock()), objective) == []

        costs.append(work(around))
    assert costs[1] <= 2.3 * costs[0]
