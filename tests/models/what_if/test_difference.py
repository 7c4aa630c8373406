"""What differs between plans: of a plan from itself nothing, taken the other way round the same exchanged."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.allocation.gang.parameters import GangMethod, GangParameters
from models.allocation.sia.parameters import SiaParameters
from models.plan import AheadPlacement, JobAllocation, Plan, PretrainingPlacement, ScoreTerm, SpreadPair
from models.plan import Change as Against
from models.what_if.difference import (
    JobChange,
    ObjectiveDifference,
    PlanDifference,
    Planned,
    ValueDifference,
    difference,
    price,
)
from models.what_if.variant import Variant, applied
from models.workload import Job, Parallelism
from solver.result import TerminationReason
from tests.growth import work
from tests.models.what_if.scenes import gang_request, on, planned

REQUEST = gang_request(Job(id="x", min_gpus=8, current=on(n1=(0, 1, 2, 3), n2=(0, 1, 2, 3))), Job(id="y", min_gpus=8))
BASE = planned(REQUEST)
# What an allocation may be in a plan of the property test.
PLACES = (None, on(n1=(0, 1)), on(n1=(2, 3)), on(n2=(0, 1)), on(n3=(0,)))
EXCHANGED = {
    JobChange.STARTED: JobChange.STOPPED,
    JobChange.STOPPED: JobChange.STARTED,
    JobChange.LATER: JobChange.EARLIER,
    JobChange.EARLIER: JobChange.LATER,
}


def found(base: Planned, other: Planned) -> PlanDifference:
    difference_ = difference(base, other)
    assert difference_ is not None
    return difference_


def allocation(name: str, place: int, goodput: float | None = None, kind: str = "a") -> JobAllocation:
    gpus = PLACES[place] or ()
    return JobAllocation(
        job_id=name,
        gpu_type=kind,
        num_gpus=sum(len(part.gpus) for part in gpus),
        gpus=gpus,
        change=Against.STARTED,
        expected_goodput=goodput,
    )


def with_plan(plan: Plan | None, **fields: Any) -> Planned:
    return replace(BASE, outcome=replace(BASE.outcome, plan=plan, **fields))


def test_a_drained_rack_stops_the_job_that_needs_both() -> None:
    # x has rack 1 and y would start on rack 2. Without rack 2 there is no room for y: its 8 GPUs, which are its term.
    other = planned(applied(Variant(name="v", drain=("r2",)), REQUEST))
    changed = found(BASE, other)
    (job,) = changed.jobs
    assert (job.job_id, job.change, job.other) == ("y", JobChange.STOPPED, None)
    assert job.base is not None
    assert job.base.nodes == {"n3": 4, "n4": 4}
    assert changed.terms == (ValueDifference(name="started", base=8.0, other=0.0),)
    assert changed.gpus == (ValueDifference(name="a", base=16.0, other=8.0),)
    assert changed.objective == ObjectiveDifference(base=16, other=8, difference=-8, least=-8, most=-8, notes=())
    assert changed.num_by_change == {JobChange.STOPPED: 1}
    # Gang maximises.
    assert price(BASE, other, None) == 8.0
    assert price(BASE, other, "y") == 0.0


def test_a_plan_does_not_differ_from_itself() -> None:
    assert found(BASE, planned(applied(Variant(name="none"), REQUEST))).is_empty


def test_objectives_of_other_policies_and_parameters_are_not_subtracted() -> None:
    other = replace(BASE, request=replace(REQUEST, parameters=SiaParameters()))
    objective = found(BASE, other).objective
    assert (objective.base, objective.other, objective.difference) == (16.0, 16.0, None)
    assert objective.notes == ("the objectives of gang-ilp and sia measure different things: they are not subtracted",)
    other = replace(BASE, request=replace(REQUEST, parameters=GangParameters(method=GangMethod.ILP, quotas={"q": 8})))
    objective = found(BASE, other).objective
    assert objective.difference is None
    assert "(quotas)" in objective.notes[0]
    assert price(BASE, other, None) is None


def test_a_heuristic_and_its_program_have_one_objective() -> None:
    other = replace(BASE, request=replace(REQUEST, parameters=GangParameters(method=GangMethod.HEURISTIC)))
    assert found(BASE, other).objective.difference == 0.0


def test_notes_say_what_the_difference_is_not_of() -> None:
    variant = Variant(name="v", jobs={"y": {"weight": 2.0}}, add_jobs=(Job(id="z"),))
    other = replace(BASE, request=applied(variant, REQUEST))
    assert found(BASE, other).objective.notes == (
        "terms are weighted differently of: y",
        "only one of the two counts: z",
    )


def test_bounds_say_between_what_the_difference_of_the_best_plans_lies() -> None:
    # The best of the base is in [16, 20], that of the other in [8, 9]: they differ by 9 - 16 at most, 8 - 20 at least.
    base = with_plan(BASE.outcome.plan, bound=20.0)
    other = with_plan(BASE.outcome.plan, objective=8.0, bound=9.0)
    objective = found(base, other).objective
    assert (objective.least, objective.difference, objective.most) == (-12.0, -8.0, -7.0)
    assert found(with_plan(BASE.outcome.plan, bound=None), other).objective.least is None


@pytest.mark.parametrize(
    ("one", "two", "change"),
    [
        # x runs, y waits.
        (allocation("x", 1), allocation("x", 3), JobChange.MOVED),
        (allocation("y", 1), allocation("y", 3), JobChange.ELSEWHERE),
        (allocation("x", 1), allocation("x", 4), JobChange.RESCALED),
        (allocation("x", 1), allocation("x", 1, kind="b"), JobChange.RETYPED),
        (allocation("x", 1, 5.0), allocation("x", 1, 6.0), JobChange.SAME),
    ],
)
def test_how_a_job_is_treated(one: JobAllocation, two: JobAllocation, change: JobChange) -> None:
    plans = [Plan(allocations=(each,), unplaced=(), score=()) for each in (one, two)]
    (job,) = found(with_plan(plans[0]), with_plan(plans[1])).jobs
    assert job.change is change


def test_other_gpus_of_the_same_node_are_no_difference() -> None:
    plans = [Plan(allocations=(allocation("x", place),), unplaced=(), score=()) for place in (1, 2)]
    assert found(with_plan(plans[0]), with_plan(plans[1])).is_empty


def test_a_start_that_is_planned_ahead_comes_later_and_spreads_wider() -> None:
    placement = PretrainingPlacement(
        job_id="y",
        scheduling_unit="pp",
        alpha=0.5,
        beta=0.5,
        affinity_source="given",
        cells=(("n3",), ("n4",)),
        minipods=(("r2",), ("r2",)),
        hosts=("n3", "n4"),
        minipod_spread=SpreadPair(dp=1, pp=1),
        distance=SpreadPair(dp=0, pp=0),
        num_minipods_used=1,
        max_unit_spread=1,
        objective_eq4=1.0,
        objective_eq2=0.0,
    )
    wide = replace(placement, cells=(("n1",), ("n3",)), hosts=("n1", "n3"), minipod_spread=SpreadPair(dp=2, pp=1))
    ahead = AheadPlacement(
        placement=placement,
        parallelism=Parallelism(tp=4, pp=1, dp=2),
        gpu_type="a",
        start_s=3600.0,
        end_s=None,
        nodes=(),
        expected_evictions=0.0,
        idle_s=0.0,
        other_starts=(),
    )
    plans = [
        Plan(allocations=(), unplaced=(), score=(), ahead=(placed,))
        for placed in (ahead, replace(ahead, start_s=7200.0, placement=wide))
    ]
    changed = found(with_plan(plans[0]), with_plan(plans[1]))
    (job,), (spread,) = changed.jobs, changed.spreads
    assert job.change is JobChange.LATER
    assert job.base is not None
    assert (job.base.num_gpus, job.base.start_s) == (8, 3600.0)
    assert (spread.job_id, spread.base, spread.other) == ("y", placement, wide)


def test_without_a_plan_there_is_no_difference() -> None:
    outcome = replace(BASE.outcome, plan=None, objective=None, termination=TerminationReason.INFEASIBLE)
    without = replace(BASE, outcome=outcome)
    assert difference(BASE, without) is None
    assert price(without, BASE, None) is None


_JOBS = st.lists(
    st.tuples(st.sampled_from(range(len(PLACES))), st.sampled_from((None, 1.0, 4.0))), min_size=3, max_size=3
)
_SCORES = st.lists(st.tuples(st.sampled_from("uvw"), st.integers(-5, 5)), max_size=4)


@st.composite
def plans(draw: st.DrawFn) -> Planned:
    jobs = [allocation(f"j{k}", place, goodput) for k, (place, goodput) in enumerate(draw(_JOBS)) if place]
    score = tuple(ScoreTerm(term=name, job_id="j0", value=float(value)) for name, value in draw(_SCORES))
    total = sum(term.value for term in score)
    plan = Plan(allocations=tuple(jobs), unplaced=(), score=score)
    return with_plan(plan, objective=total, bound=total + draw(st.integers(0, 3)))


@settings(deadline=None)
@given(plans(), plans())
def test_the_other_way_round_it_is_the_same_exchanged(one: Planned, two: Planned) -> None:
    there, back = found(one, two), found(two, one)
    assert there.is_empty == back.is_empty
    for rows, others in ((there.terms, back.terms), (there.gpus, back.gpus)):
        assert [(row.name, row.base, row.other) for row in rows] == [(row.name, row.other, row.base) for row in others]
        assert [row.difference for row in rows] == [-row.difference for row in others]
    assert [(job.job_id, EXCHANGED.get(job.change, job.change), job.base, job.other) for job in there.jobs] == [
        (job.job_id, job.change, job.other, job.base) for job in back.jobs
    ]
    ahead, behind = there.objective, back.objective
    assert ahead.difference == pytest.approx(-(behind.difference or 0.0))
    assert ahead.least == pytest.approx(-(behind.most or 0.0))
    assert price(one, two, None) == pytest.approx(-(price(two, one, None) or 0.0))
    assert (there.goodput_ratio is None) == (back.goodput_ratio is None)
    if there.goodput_ratio is not None and back.goodput_ratio is not None:
        assert there.goodput_ratio * back.goodput_ratio == pytest.approx(1.0)
    assert sum(row.difference for row in there.terms) == pytest.approx(ahead.difference)


def test_the_cost_grows_with_the_plans() -> None:
    def cost(size: int) -> int:
        plans_ = [
            Plan(allocations=tuple(allocation(f"j{k}", place) for k in range(size)), unplaced=(), score=())
            for place in (1, 3)
        ]
        one, two = map(with_plan, plans_)
        return work(lambda: difference(one, two))

    assert cost(400) <= 2.3 * cost(200)
