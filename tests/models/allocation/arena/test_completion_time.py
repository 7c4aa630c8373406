"""The objective of completion times: who can end soon counts more, and nobody waits behind throughput for ever."""

from dataclasses import replace

import numpy as np
import pytest

from models.allocation.arena.parameters import ArenaMethod, ArenaObjective, ArenaParameters
from models.allocation.arena.validation import policy_issues
from models.clock import PhaseClock
from models.workload import Job, Snapshot
from stowplan.errors import InputError
from tests.models.allocation.arena.scenes import formulation_of, given, plan_of, table
from tests.models.placement.scenes import cluster, node

SOON = ArenaParameters(objective=ArenaObjective.COMPLETION_TIME, method=ArenaMethod.ILP, urgency=1.0)
METHODS = [replace(SOON, method=method) for method in ArenaMethod]


def job(name: str, iterations: float, **rest: object) -> Job:
    """Needs 4 GPUs, on which an iteration takes a second."""
    given = {"min_gpus": 4, "max_gpus": 4, "performance": table({("a", 4): 100.0}), **rest}
    return Job(id=name, remaining_iterations=iterations, **given)  # type: ignore[arg-type]


def snapshot_of(*jobs: Job) -> Snapshot:
    return Snapshot(cluster=cluster(node("n0", 4)), jobs=jobs)


def test_a_job_counts_by_the_time_that_it_needs_yet() -> None:
    """Against a horizon of an hour; less than a hundredth of it counts as that."""
    jobs = (job("hour", 3600), job("quarter", 900), job("moment", 1))
    for urgency, weights in ((1.0, [1, 4, 100]), (0.5, [1, 2, 10]), (0.0, [1, 1, 1])):
        utility = formulation_of(snapshot_of(*jobs), replace(SOON, urgency=urgency)).instance.utility
        assert utility.value.max(axis=1).tolist() == pytest.approx(weights)
        assert not utility.reward.any()


def test_the_time_left_is_that_on_the_fastest_gpus() -> None:
    fast = job("x", 7200, min_gpus=2, performance=table({("a", 2): 100.0, ("a", 4): 200.0}))
    utility = formulation_of(snapshot_of(fast), SOON).instance.utility
    assert sorted(utility.value[utility.runnable].tolist()) == pytest.approx([0.5, 1.0])


@pytest.mark.parametrize("parameters", METHODS, ids=list(ArenaMethod))
def test_idle_gpus_go_to_whom_they_bring_to_the_end_first(parameters: ArenaParameters) -> None:
    """Two run on 2 GPUs each of 8; what is left makes one of them faster."""
    speeds = {("a", 2): 100.0, ("a", 4): 180.0, ("a", 6): 240.0}
    long, short = (
        job(name, iterations, min_gpus=2, max_gpus=4, performance=table(speeds))
        for name, iterations in (("long", 36_000), ("short", 3600))
    )
    snapshot = Snapshot(cluster=cluster(node("n0", 4), node("n1", 2)), jobs=(long, short))
    plan, _ = plan_of(snapshot, parameters)
    assert given(plan) == {"long": ("a", 2), "short": ("a", 4)}


def test_who_can_end_soon_comes_first_in_the_program() -> None:
    plan, _ = plan_of(snapshot_of(job("long", 36_000), job("short", 3600)), SOON)
    assert given(plan) == {"short": ("a", 4)}


@pytest.mark.parametrize("parameters", METHODS, ids=list(ArenaMethod))
def test_who_has_waited_too_long_comes_first(parameters: ArenaParameters) -> None:
    snapshot = snapshot_of(job("long", 36_000, age_s=21_600), job("short", 60, age_s=21_599))
    plan, result = plan_of(snapshot, parameters)
    assert given(plan) == {"long": ("a", 4)}
    # The short one is worth 60 at most, and its term is in what a point is worth.
    terms = {term.term: term.value for term in plan.score if term.job_id == "long"}
    assert terms == pytest.approx({"throughput": 0.1, "wait_ended": 1 + 0.1 + 60})
    assert result.objective == pytest.approx(61.2)
    patient = replace(parameters, longest_wait_s=None)
    if parameters.method is ArenaMethod.ILP:
        assert given(plan_of(snapshot, patient)[0]) == {"short": ("a", 4)}


def test_who_waits_on_is_named() -> None:
    formulation = formulation_of(snapshot_of(job("first", 60, age_s=30_000), job("second", 60, age_s=30_000)), SOON)
    formulation.extract(np.array([1.0, 0.0]), PhaseClock())
    (warning,) = formulation.warnings
    assert (warning.code, warning.pointer) == ("waits_too_long", "/jobs/1/age_s")
    assert warning.detail == "job 'second' was submitted 30000 s ago and waits on; longest_wait_s is 21600"


def test_what_the_objective_needs() -> None:
    vague = replace(job("x", 1.0), remaining_iterations=None)
    assert [issue.code for issue in policy_issues(snapshot_of(vague), SOON)] == ["missing_remaining_iterations"]
    apart = snapshot_of(job("x", 60, age_s=30_000, weight=5000.0), job("y", 60, age_s=30_000))
    assert [issue.detail[:25] for issue in policy_issues(apart, SOON)] == ["the wait of job 'x' weigh"]
    with pytest.raises(InputError, match="urgency is 3"):
        replace(SOON, urgency=3.0)
    with pytest.raises(InputError, match="longest_wait_s is 0"):
        replace(SOON, longest_wait_s=0.0)
