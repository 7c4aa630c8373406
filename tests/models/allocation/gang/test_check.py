"""Each rule of the check, broken one at a time; and the promise, kept when its time has come."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.allocation.gang.check import gang_violations
from models.allocation.gang.parameters import Backfill, GangMethod, GangParameters, QueueOrder
from models.plan import Change, JobAllocation, Plan, ScoreTerm, UnplacedJob
from models.workload import Job, NodeGpus, Snapshot
from tests.models.allocation.gang.scenes import cluster, made_up, planned, queue, running, started
from tests.models.placement.scenes import SEEDS

EIGHT = tuple(range(8))
# r and s run; `big` needs all three nodes, in 60 s; short and tiny end by then, long does not.
JOBS = (
    running("r", 60.0, a0=range(8)),
    running("s", 30.0, a1=range(4)),
    *queue(("big", 24, 100.0), ("long", 4, 61.0), ("short", 4, 60.0), ("tiny", 1, 5.0)),
)
SNAPSHOT = Snapshot(cluster=cluster(8, 8, 8), jobs=JOBS)


def codes(plan: Plan, snapshot: Snapshot = SNAPSHOT, **parameters: object) -> set[str]:
    """What the check says of a plan whose score is brought up to date."""
    objective = float(sum(item.num_gpus for item in plan.allocations))
    score = tuple(ScoreTerm(term="x", job_id=item.job_id, value=item.num_gpus) for item in plan.allocations)
    given_ = GangParameters(**parameters)  # type: ignore[arg-type]
    return {issue.code for issue in gang_violations(snapshot, given_, replace(plan, score=score), objective)}


def right() -> Plan:
    return planned(SNAPSHOT)[2]


def on(job_id: str, **gpus: tuple[int, ...]) -> JobAllocation:
    """An allocation of GPUs given as `a0=(0, 1)`."""
    parts = tuple(NodeGpus(node=node, gpus=own) for node, own in gpus.items())
    total = sum(len(own) for own in gpus.values())
    return JobAllocation(job_id=job_id, gpu_type="a", num_gpus=total, gpus=parts, change=Change.STARTED)


def waits(job_id: str) -> UnplacedJob:
    return UnplacedJob(job_id=job_id, reason="no_room", detail="", counts={}, remedy="", preempted=False)


def plan_with(*allocations: JobAllocation, snapshot: Snapshot = SNAPSHOT) -> Plan:
    """A plan of these allocations; all other jobs wait."""
    given_ = {item.job_id for item in allocations}
    unplaced = tuple(waits(job.id) for job in snapshot.jobs if job.id not in given_)
    return Plan(allocations=allocations, unplaced=unplaced, score=())


def kept(*names: str) -> list[JobAllocation]:
    """Running jobs of JOBS as they are."""
    current = {job.id: job.current or () for job in JOBS}
    return [
        replace(on(name), gpus=current[name], num_gpus=sum(len(part.gpus) for part in current[name])) for name in names
    ]


def test_the_plan_itself_is_right() -> None:
    plan = right()
    assert set(started(plan)) == {"short", "tiny"}
    assert codes(plan) == set()
    assert codes(plan_with(*kept("r", "s"))) == set()


BROKEN: list[tuple[str, Callable[[], list[JobAllocation]], str]] = [
    ("a running job loses its GPUs", lambda: kept("r"), "pinned_job_missing"),
    ("a running job moves", lambda: [*kept("r"), on("s", a2=(0, 1, 2, 3))], "pinned_job_moved"),
    ("GPUs are given twice", lambda: [*kept("r", "s"), on("short", a1=(0, 1, 2, 3))], "gpu_taken_twice"),
    ("another size", lambda: [*kept("r", "s"), on("short", a1=(4, 5, 6))], "below_min_gpus"),
    ("more than its size", lambda: [*kept("r", "s"), on("tiny", a1=(4, 5))], "wrong_size"),
    ("in pieces", lambda: [*kept("r", "s"), on("short", a1=(4, 5), a2=(0, 1))], "not_compact"),
    ("in the way of big", lambda: [*kept("r", "s"), on("long", a2=(0, 1, 2, 3))], "next_job_delayed"),
]


@pytest.mark.parametrize(("allocations", "code"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_each_rule_is_told_by_its_code(allocations: Callable[[], list[JobAllocation]], code: str) -> None:
    assert code in codes(plan_with(*allocations()))


def test_without_backfill_nobody_may_pass() -> None:
    assert codes(right(), backfill=Backfill.NONE) == {"out_of_order"}


def test_the_next_job_may_not_be_left_out() -> None:
    """Both nodes are free: the older job could start, and the younger one alone is out of order or in its way."""
    snapshot = Snapshot(cluster=cluster(8, 8), jobs=queue(("first", 8, 9.0), ("second", 8, 9.0)))
    plan = plan_with(on("second", a0=EIGHT), snapshot=snapshot)
    assert codes(plan, snapshot) == {"next_job_left_out"}
    assert codes(plan, snapshot, backfill=Backfill.NONE) == {"next_job_left_out", "out_of_order"}


def test_quotas_are_counted_again() -> None:
    jobs = queue(("first", 8, 9.0), ("second", 4, 9.0), ("third", 4, 9.0), queue="p")
    snapshot = Snapshot(cluster=cluster(8, 8), jobs=jobs)
    both = plan_with(on("first", a0=EIGHT), on("second", a1=(0, 1, 2, 3)), snapshot=snapshot)
    assert codes(both, snapshot, quotas={"p": 12}) == set()
    assert "quota_exceeded" in codes(both, snapshot, quotas={"p": 11})
    late = plan_with(on("second", a1=(0, 1, 2, 3)), snapshot=snapshot)
    assert codes(late, snapshot, quotas={"p": 7}) == {"out_of_order"}


def test_preemption_must_serve_somebody_more_urgent() -> None:
    bold = {"order": QueueOrder.PRIORITY, "preemption": True}
    old = replace(running("r", 60.0, a0=range(8)), priority=2)
    jobs = (old, Job(id="same", min_gpus=8, priority=2), Job(id="small", min_gpus=1, priority=1))
    snapshot = Snapshot(cluster=cluster(8), jobs=jobs)
    assert codes(plan_with(snapshot=snapshot), snapshot, **bold) >= {"preempted_for_nobody"}
    taken = plan_with(replace(on("same", a0=EIGHT)), snapshot=snapshot)
    assert "preempted_for_nobody" in codes(taken, snapshot, **bold)
    wide = Snapshot(cluster=cluster(8, 8), jobs=(*jobs, replace(old, id="other", current=None, age_s=1.0, min_gpus=16)))
    idle = plan_with(on("small", a1=(0,)), snapshot=wide)
    assert "preempted_for_nothing" in codes(idle, wide, **bold)


def test_preemption_goes_by_the_order() -> None:
    """Against a job with 60 s left one with 50 s is first, one with 60 s is not; likewise by service."""
    runs = replace(running("r", 60.0, a0=range(8)), attained_gpu_s=100.0)
    waits = Job(id="w", min_gpus=8, remaining_s=60.0, attained_gpu_s=100.0)
    for order, first in (
        (QueueOrder.SRTF, replace(waits, remaining_s=50.0)),
        (QueueOrder.LAS, replace(waits, attained_gpu_s=99.0)),
    ):
        bold = {"order": order, "preemption": True, "service_thresholds": (100.0,)}
        for other, expected in ((first, set[str]()), (waits, {"preempted_for_nobody"})):
            snapshot = Snapshot(cluster=cluster(8), jobs=(runs, other))
            taken = plan_with(on("w", a0=EIGHT), snapshot=snapshot)
            assert codes(taken, snapshot, **bold) & {"preempted_for_nobody"} == expected


def test_score_and_objective_are_added_up_again() -> None:
    _, result, plan = planned(SNAPSHOT)
    assert result.objective is not None
    wrong = gang_violations(SNAPSHOT, GangParameters(), plan, result.objective + 1)
    assert [issue.code for issue in wrong] == ["wrong_objective"]
    first, *others = plan.score
    changed = replace(plan, score=(replace(first, value=first.value + 1), *others))
    assert "wrong_score" in {
        issue.code for issue in gang_violations(SNAPSHOT, GangParameters(), changed, result.objective)
    }


PARAMETERS = st.builds(GangParameters, method=st.sampled_from(GangMethod), default_remaining_s=st.just(4.0))


@pytest.mark.slow
@settings(max_examples=80)
@given(seed=SEEDS, parameters=PARAMETERS)
def test_the_next_job_starts_when_its_time_has_come(seed: int, parameters: GangParameters) -> None:
    """Let the time pass for which it has to wait, with all that started behind it: a new plan starts it.

    Of several GPU types a job that comes first could have taken them; so there is one.
    """
    snapshot = made_up(seed)
    types = snapshot.cluster.gpu_types[:1]
    members = tuple(node for node in snapshot.cluster.nodes if node.gpu_type == "a")
    jobs = tuple(
        replace(job, gpu_types=None, queue=None, remaining_s=4.0 if job.remaining_s is None else job.remaining_s)
        for job in snapshot.jobs
        if all(part.node.startswith("a") for part in job.current or ())
    )
    snapshot = Snapshot(cluster=replace(snapshot.cluster, gpu_types=types, nodes=members), jobs=jobs)
    _, _, plan = planned(snapshot, parameters)
    for told in plan.unplaced:
        if told.reason == "next":
            later = planned(passed(snapshot, plan, float(told.counts["starts_in_s"])), parameters)[2]
            assert told.job_id in started(later)


def passed(snapshot: Snapshot, plan: Plan, seconds: float) -> Snapshot:
    """The snapshot after that time, if the plan was carried out."""
    given_ = {item.job_id: item.gpus for item in plan.allocations}
    jobs = []
    for job in snapshot.jobs:
        left_s = job.remaining_s or 0.0
        if job.id not in given_:
            jobs.append(replace(job, age_s=job.age_s + seconds, current=None))
        elif left_s > seconds:
            jobs.append(replace(job, age_s=job.age_s + seconds, current=given_[job.id], remaining_s=left_s - seconds))
    return replace(snapshot, jobs=tuple(jobs))
