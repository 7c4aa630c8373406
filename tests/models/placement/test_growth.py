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
