"""Who runs and gets other GPUs is told when it would end without, and what that would cost the others."""

from dataclasses import replace

from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.plan import Change, Plan
from models.workload import Snapshot
from tests.models.allocation.horizon import tiered
from tests.models.allocation.horizon.test_check import PARAMETERS, job, solved
from tests.models.placement.scenes import cluster, node, on

FAST = {1: 1.0, 2: 1.9, 4: 3.0}
# One change is all that such a job is taken to pay for.
OLD_S = 1e6


def reasons(plan: Plan) -> dict[str, tuple[Change, str, dict[str, int]]]:
    return {
        item.job_id: (item.change, item.why.detail, dict(item.why.counts))
        for item in plan.allocations
        if item.why is not None
    }


def test_who_grows_is_told_when_it_ends_and_when_it_would_have() -> None:
    grows = job("grows", 3000.0, FAST, current=on({"n": (0,)}), age_s=OLD_S)
    _, plan, _ = solved(Snapshot(cluster=cluster(node("n", 2)), jobs=(grows,)), PARAMETERS)
    ends_s = 10 + 3000 / 1.9
    assert reasons(plan) == {
        "grows": (
            Change.RESCALED,
            "ends in about 26 minutes, if it stayed on 1 a GPU in about 50 minutes",
            {"ends_s": round(ends_s), "stays_ends_s": 3000, "others_lose_s": 0},
        )
    }


def test_who_makes_room_is_told_what_that_saves_the_others() -> None:
    """A long job has all four GPUs; two short ones take two of them."""
    long = job("long", 30_000.0, FAST, current=on({"n": (0, 1, 2, 3)}), age_s=OLD_S)
    short = [job(name, 200.0, {1: 1.0}) for name in ("x", "y")]
    _, plan, _ = solved(Snapshot(cluster=cluster(node("n", 4)), jobs=(long, *short)), PARAMETERS)
    ((change, detail, counts),) = reasons(plan).values()
    assert change is Change.RESCALED
    assert "if it stayed on 4 a GPUs in about 2.8 h; to stay would cost others" in detail
    assert counts["others_lose_s"] > 60


def test_what_a_job_pays_that_may_wait_no_more_is_no_time_of_others() -> None:
    """Its penalty is in the prices: nobody is told that so much is lost."""
    runs = job("runs", 3000.0, {1: 1.0, 2: 1.9}, current=on({"n": (0, 1)}), age_s=OLD_S)
    old = [job(name, 2000.0, {1: 1.0}, age_s=OLD_S) for name in ("x", "y", "z")]
    _, plan, _ = solved(Snapshot(cluster=cluster(node("n", 2)), jobs=(runs, *old)), PARAMETERS)
    assert plan.unplaced
    assert not any("others_lose_s" in item.counts for item in plan.unplaced)
    assert not any("others_lose_s" in counts for _, _, counts in reasons(plan).values())


def test_who_cannot_go_on_as_it_runs_is_told_so() -> None:
    odd = job("odd", 3000.0, FAST, current=on({"n": (0, 1, 2)}))
    _, plan, _ = solved(Snapshot(cluster=cluster(node("n", 4)), jobs=(odd,)), PARAMETERS)
    assert reasons(plan) == {
        "odd": (Change.RESCALED, "cannot go on as it runs: that is none of what it may have now", {})
    }


def test_who_moves_to_a_nearer_place_is_told_by_its_tier() -> None:
    """On two leaves a step takes 11 s, on one of them 2."""
    apart = tiered.job("apart", 4, 2000.0, current=tiered.whole("l0n0", "l1n0"), age_s=OLD_S)
    _, plan, _ = solved(Snapshot(cluster=tiered.fabric(2, 2), jobs=(apart,)), PARAMETERS)
    ((change, detail, _),) = reasons(plan).values()
    assert change is Change.MOVED
    assert detail.startswith("ends in about 67 minutes, if it stayed on 4 a GPUs across the fabric in about 6.1 h")


def test_who_stays_and_other_objectives_say_nothing() -> None:
    stays = job("stays", 30.0, FAST, current=on({"n": (0,)}), restart_cost_s=60.0)
    snapshot = Snapshot(cluster=cluster(node("n", 2)), jobs=(stays,))
    assert reasons(solved(snapshot, PARAMETERS)[1]) == {}
    of_sia = HorizonParameters(objective=HorizonObjective.GOODPUT, num_intervals=1)
    grows = replace(snapshot, jobs=(replace(stays, restart_cost_s=0.0),))
    assert reasons(solved(grows, of_sia)[1]) == {}
