"""Cost of a whole placement, from snapshot to checked plan, grows with the nodes and the jobs that run, not with their
product.
"""

import pytest

from models.placement.ahead.parameters import AheadParameters
from models.placement.arnold.parameters import ArnoldParameters
from models.plan import PlanRequest
from models.planning import plan
from models.policy import Parameters
from models.workload import Job, Snapshot
from solver.options import SolveOptions
from solver.registry import EXACT
from tests.growth import work
from tests.models.placement.ahead.scenes import DAY_S, cluster, on, over, wanted
from topology.calendar import CalendarEntry, EntryKind


@pytest.mark.parametrize(
    "parameters",
    [ArnoldParameters(alpha=0.3), AheadParameters(alpha=0.3, num_starts=3, horizon_days=3)],
    ids=["arnold", "ahead"],
)
def test_a_plan_grows_with_the_cluster(parameters: Parameters) -> None:
    def cost(size: int) -> int:
        """One job of four nodes; of all nodes three of four are in use, each by a job of its own."""
        kind = cluster(*[size // 4] * 4)
        running = tuple(
            Job(id=f"j{k}", current=on(node.id), lasting=over(p50=1 + k % 3, p90=5))
            for k, node in enumerate(kind.nodes)
            if k % 4
        )
        job = wanted("big", rows=2, columns=2, latest_start_s=3 * DAY_S)
        request = PlanRequest(
            snapshot=Snapshot(cluster=kind, jobs=(job, *running)),
            parameters=parameters,
            options=SolveOptions(solver=EXACT, relative_gap=0.05),
        )
        return work(lambda: plan(request))

    # Once before: what is loaded for it counts, too.
    cost(16)
    assert cost(240) <= 2.3 * cost(120)


def test_a_placement_grows_with_groups_and_minipods() -> None:
    """Both at once, every third minipod smaller than a group: with their product it would be four times the work."""

    def cost(size: int) -> int:
        kind = cluster(*[(7, 5, 3)[k % 3] for k in range(size)])
        request = PlanRequest(
            snapshot=Snapshot(cluster=kind, jobs=(wanted("big", rows=size, columns=4, latest_start_s=DAY_S),)),
            parameters=ArnoldParameters(alpha=0.3),
            options=SolveOptions(solver=EXACT, relative_gap=0.0),
        )
        return work(lambda: plan(request))

    cost(12)
    assert cost(120) <= 2.3 * cost(60)


def test_moving_jobs_grows_with_the_cluster() -> None:
    def cost(size: int) -> int:
        """One job of three of four minipods; of their nodes every fourth is in use, by a job that may be moved."""
        kind = cluster(*[size // 4] * 4)
        running = tuple(
            Job(id=f"j{k}", current=on(node.id), restart_cost_s=60.0, remaining_s=DAY_S)
            for k, node in enumerate(kind.nodes)
            if k % 4 == 0 and node.path != ("d",)
        )
        nodes = tuple(node.id for node in kind.nodes)
        late = CalendarEntry(name="late", kind=EntryKind.MAINTENANCE, from_s=300 * DAY_S, nodes=nodes)
        job = wanted("big", rows=3 * size // 8, columns=2, latest_start_s=0.0)
        request = PlanRequest(
            snapshot=Snapshot(cluster=kind, jobs=(job, *running), calendar=(late,)),
            parameters=AheadParameters(alpha=0.3, eviction_price_per_node=5.0, moved_nodes=1),
            options=SolveOptions(solver=EXACT, relative_gap=0.05),
        )

        def moved() -> None:
            found = plan(request).plan
            assert found is not None
            assert len(found.ahead[0].moves) > size // 16

        return work(moved)

    cost(32)
    assert cost(320) <= 2.3 * cost(160)


def test_planning_again_grows_with_the_cluster() -> None:
    def cost(size: int) -> int:
        """One job of three of four nodes, of which half were promised."""
        kind = cluster(*[size // 4] * 4)
        promised = tuple(node.id for node in kind.nodes[::2])
        own = CalendarEntry(name="big", kind=EntryKind.RESERVATION, from_s=DAY_S, nodes=promised)
        job = wanted("big", rows=3 * size // 8, columns=2, latest_start_s=3 * DAY_S)
        request = PlanRequest(
            snapshot=Snapshot(cluster=kind, jobs=(job,), calendar=(own,)),
            parameters=AheadParameters(alpha=0.3, num_starts=3),
            options=SolveOptions(solver=EXACT, relative_gap=0.05),
        )

        def planned() -> None:
            found = plan(request).plan
            assert found is not None
            assert found.ahead[0].promise is not None
            assert len(found.ahead[0].promise.new_nodes) == size // 4

        return work(planned)

    cost(32)
    assert cost(320) <= 2.3 * cost(160)
