from dataclasses import replace

import pytest

from executor.connected.nearness import NearNodesFirst
from models.allocation.gang.parameters import GangParameters, QueueOrder
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from models.workload import Job, NodeGpus
from solver.result import TerminationReason
from stowplan.errors import UnverifiedPlanError
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


def test_nobody_makes_way_for_a_job_that_then_waits() -> None:
    """`low` loses n11 for `wide`, which gets it with n01: both or neither."""
    low = Job(id="low", min_gpus=8, current=(NodeGpus(node="n11", gpus=WHOLE),), priority=3)
    evicting = request(*runs("n00", "n10", "n20", "n21"), low, replace(WIDE, priority=1))
    evicting = replace(evicting, parameters=GangParameters(order=QueueOrder.PRIORITY, preemption=True))
    waiting = Waiting(2.0)
    assert waiting.starts(APART) == {}
    outcome = waiting.planner(evicting)
    whole = plan(evicting)
    assert outcome.plan is not None
    assert outcome.plan == whole.plan
    assert outcome.plan.allocations[-1].job_id == "wide"
    assert [item.job_id for item in outcome.plan.unplaced if item.preempted] == ["low"]
    assert (outcome.termination, outcome.certificate) == (whole.termination, whole.certificate)
    assert waiting.planner.due_s is None


def test_a_plan_that_was_cut_claims_no_proof() -> None:
    of = request(*runs("n00", "n10", "n20"), WIDE, SMALL)
    whole, cut = plan(of), Waiting(2.0).planner(of)
    assert whole.objective is not None
    assert whole.bound is not None
    assert cut.objective is not None
    assert (whole.termination, cut.termination) == (TerminationReason.OPTIMAL, TerminationReason.FEASIBLE)
    assert cut.objective < whole.objective
    assert cut.bound == whole.bound
    assert cut.relative_gap == pytest.approx((whole.bound - cut.objective) / cut.objective)
    assert cut.certificate.startswith("1 job held back for nearer nodes, of a plan that was: ")


def test_a_plan_that_was_cut_is_checked_again() -> None:
    """The job that waits was planned twice: what is left of the plan has it among the unplaced ones twice."""

    def twice(of: PlanRequest) -> PlanOutcome:
        outcome = plan(of)
        assert outcome.plan is not None
        *others, wide = outcome.plan.allocations
        assert wide.job_id == "wide"
        return replace(outcome, plan=replace(outcome.plan, allocations=(*others, wide, wide)))

    with pytest.raises(UnverifiedPlanError, match="held back for nearer nodes"):
        NearNodesFirst(twice, 2.0, lambda: 0.0)(APART)


def test_the_cost_grows_with_jobs_and_nodes() -> None:
    def cost(num_nodes: int) -> int:
        jobs = tuple(Job(id=f"j{k}", min_gpus=16) for k in range(num_nodes // 2))
        of = request(*jobs, on=cluster(*[8] * num_nodes, per_rack=3))
        outcome = plan(of)
        return work(lambda: NearNodesFirst(lambda _: outcome, 2.0, lambda: 0.0)(of))

    assert cost(128) < 2.3 * cost(64)
