from executor.connected.nearness import NearNodesFirst
from models.plan import PlanRequest
from models.planning import plan
from models.workload import Job, NodeGpus
from tests.executor.connected.test_planning import WHOLE, request
from tests.growth import work
from tests.models.allocation.gang.scenes import cluster


def runs(*nodes: str) -> tuple[Job, ...]:
    """A job on each node, that nobody may stop."""
    places = (NodeGpus(node=node, gpus=WHOLE) for node in nodes)
    return tuple(Job(id=f"r{part.node}", min_gpus=8, current=(part,), preemptible=False) for part in places)


class Waiting:
    """A planner under a clock that is set."""

    def __init__(self, wait_s: float) -> None:
        self.now_s = 100.0
        self.planner = NearNodesFirst(plan, wait_s, lambda: self.now_s)

    def starts(self, of: PlanRequest) -> dict[str, list[str]]:
        outcome = self.planner(of)
        assert outcome.plan is not None
        assert outcome.objective == sum(term.value for term in outcome.plan.score)
        assert {item.job_id for item in outcome.plan.allocations} | {item.job_id for item in outcome.plan.unplaced} == {
            job.id for job in of.snapshot.jobs
        }
        new = (item for item in outcome.plan.allocations if item.job_id in ("wide", "small"))
        return {item.job_id: [part.node for part in item.gpus] for item in new}


WIDE, SMALL = Job(id="wide", min_gpus=16, age_s=10.0), Job(id="small", min_gpus=8)
APART = request(*runs("n00", "n10", "n20"), WIDE)


def test_a_job_waits_for_closer_nodes_and_no_longer_than_it_is_let() -> None:
    waiting = Waiting(2.0)
    assert waiting.starts(APART) == {}
    assert waiting.planner.due_s == 102.0
    waiting.now_s = 101.9
    assert waiting.starts(APART) == {}
    waiting.now_s = 102.0
    assert waiting.starts(APART) == {"wide": ["n01", "n11"]}
    assert waiting.planner.due_s is None


def test_it_starts_as_soon_as_close_nodes_are_free() -> None:
    waiting = Waiting(2.0)
    assert waiting.starts(APART) == {}
    waiting.now_s = 101.0
    assert waiting.starts(request(*runs("n00", "n20"), WIDE)) == {"wide": ["n10", "n11"]}
    # Whoever had to wait again begins anew.
    assert waiting.starts(APART) == {}
    assert waiting.planner.due_s == 103.0


def test_others_start_meanwhile_elsewhere() -> None:
    assert Waiting(2.0).starts(request(*runs("n00", "n10", "n20"), WIDE, SMALL)) == {"small": ["n21"]}


def test_what_cannot_be_closer_does_not_wait() -> None:
    large = Job(id="wide", min_gpus=24)
    assert Waiting(2.0).starts(request(*runs("n00", "n01", "n20"), large)) == {"wide": ["n10", "n11", "n21"]}
    assert Waiting(0.0).starts(APART) == {"wide": ["n01", "n11"]}


def test_the_cost_grows_with_jobs_and_nodes() -> None:
    def cost(num_nodes: int) -> int:
        jobs = tuple(Job(id=f"j{k}", min_gpus=16) for k in range(num_nodes // 2))
        of = request(*jobs, on=cluster(*[8] * num_nodes, per_rack=3))
        outcome = plan(of)
        return work(lambda: NearNodesFirst(lambda _: outcome, 2.0, lambda: 0.0)(of))

    assert cost(128) < 2.3 * cost(64)
