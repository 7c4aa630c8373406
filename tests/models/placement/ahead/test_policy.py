"""Plans ahead: what is best by hand, and what holds on any snapshot."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.clock import PhaseClock
from models.parallelism.training import ALL_ZERO_STAGES, Choices
from models.placement.ahead.extraction import ahead_plan
from models.placement.ahead.formulation import AheadFormulation, formulate_ahead
from models.placement.ahead.instance import placing_cost
from models.placement.ahead.parameters import AheadParameters
from models.placement.ahead.plans import training_plans
from models.placement.ahead.single import place_at_best
from models.placement.ahead.wanted import wanted_jobs
from models.plan import AheadPlacement, PlanOutcome, PlanRequest
from models.planning import plan
from models.transformer import Transformer
from models.workload import Job, Snapshot
from solver.options import SolveOptions
from solver.result import TerminationReason
from stowplan.errors import InputError
from tests.models.placement.ahead.scenes import DAY_S, cluster, on, over, snapshots, wanted
from topology.calendar import CalendarEntry, EntryKind

# Spread alone, one a day late, and nothing else.
_PLAIN = AheadParameters(
    alpha=1.0, eviction_price_per_node=0.0, restart_price_per_gpu_hour=0.0, idle_price_per_node_hour=0.0
)


def planned(snapshot: Snapshot, parameters: AheadParameters = _PLAIN, solver: str = "auto") -> PlanOutcome:
    options = SolveOptions(solver=solver, relative_gap=0.0)
    return plan(PlanRequest(snapshot=snapshot, parameters=parameters, options=options))


def only(outcome: PlanOutcome) -> AheadPlacement:
    assert outcome.plan is not None
    (placed,) = outcome.plan.ahead
    return placed


def test_a_job_waits_for_a_whole_minipod_when_that_is_worth_it() -> None:
    # a: 1 2 [3]     Two nodes: a3 and b2 now, on two minipods at 2.0; a2 and a3 in half a day at 1.0 + 0.5.
    # b: [1] 2
    jobs = (
        Job(id="a", current=on("a1"), preemptible=False),
        Job(id="b", current=on("a2"), preemptible=False, remaining_s=DAY_S / 2),
        Job(id="c", current=on("b1"), preemptible=False),
        wanted("big", rows=2, columns=1),
    )
    snapshot = Snapshot(cluster=cluster(3, 2), jobs=jobs)
    outcome = planned(snapshot)
    placed = only(outcome)
    assert outcome.objective == pytest.approx(1.5)
    assert (placed.start_s, placed.end_s, sorted(placed.placement.hosts)) == (DAY_S / 2, 3.5 * DAY_S, ["a2", "a3"])
    # A day later would be too late; now it costs two minipods.
    hurried = only(planned(snapshot, replace(_PLAIN, lateness_price_per_day=3.0)))
    assert (hurried.start_s, hurried.placement.num_minipods_used) == (0.0, 2)


def test_evictions_and_idle_nodes_are_priced_as_expected() -> None:
    # One node, in use until the second day with probability 0.5, until the fourth with 0.9; between that linearly.
    jobs = (
        Job(id="a", current=on("a1"), lasting=over(p50=2, p90=4), restart_cost_s=7200.0),
        wanted("big", rows=1, columns=1, earliest_start_s=3 * DAY_S, latest_start_s=3 * DAY_S),
    )
    parameters = replace(
        _PLAIN, eviction_price_per_node=10.0, restart_price_per_gpu_hour=1.0, idle_price_per_node_hour=0.5
    )
    placed = only(outcome := planned(Snapshot(cluster=cluster(1), jobs=jobs), parameters))
    # Free with 0.7 then; idle from the second to the third day with 0.5 rising to 0.7.
    assert placed.expected_evictions == pytest.approx(0.3)
    assert placed.idle_s == pytest.approx(0.6 * DAY_S)
    # For certain until the second day, then with 0.5, falling to 0.3 at the start.
    assert [placed.retention[k].at_s / DAY_S for k in (0, 5, -1)] == [0.0, 1.875, 3.0]
    assert [placed.retention[k].num_nodes for k in (0, 5, -1)] == pytest.approx([1.0, 1.0, 0.3])
    assert outcome.plan is not None
    score = {term.term: term.value for term in outcome.plan.score}
    assert score == pytest.approx(
        {"dp_minipods": 1.0, "pp_spread": 0.0, "lateness": 0.0, "training": 0.0, "evictions": 3.0}
        # Two GPUs lose two hours each with 0.3.
        | {"restarts": 0.3 * 2 * 2, "idle_nodes": 0.5 * 0.6 * 24, "moves": 0.0}
    )


def test_nodes_that_have_not_arrived_are_not_idle() -> None:
    arrival = CalendarEntry(name="new", kind=EntryKind.ARRIVAL, from_s=2 * DAY_S, nodes=("a1",))
    job = wanted("big", rows=1, columns=1, earliest_start_s=3 * DAY_S)
    placed = only(planned(Snapshot(cluster=cluster(1), jobs=(job,), calendar=(arrival,))))
    assert (placed.start_s, placed.idle_s) == (3 * DAY_S, DAY_S)


def test_a_start_may_have_to_be_likely() -> None:
    # a1 is free by the second day with 0.5, by the fourth with 0.9, by the eighth for certain.
    jobs = (
        Job(id="a", current=on("a1"), lasting=over(p50=2, p90=4, p100=8)),
        wanted("big", rows=1, columns=1, latest_start_s=9 * DAY_S),
    )
    snapshot = Snapshot(cluster=cluster(1), jobs=jobs)
    parameters = replace(_PLAIN, num_starts=20)
    starts = [
        only(planned(snapshot, replace(parameters, start_probability=p))).start_s / DAY_S for p in (0.4, 0.9, 1.0)
    ]
    assert starts == [2.0, 4.0, 8.0]


def test_a_job_keeps_out_of_what_the_calendar_closes_but_for_its_own() -> None:
    maintenance = CalendarEntry(
        name="m", kind=EntryKind.MAINTENANCE, from_s=2 * DAY_S, until_s=4 * DAY_S, nodes=("a1",)
    )
    own = CalendarEntry(name="own", kind=EntryKind.RESERVATION, from_s=0.0, until_s=5 * DAY_S, nodes=("b1",))
    job = wanted("big", rows=1, columns=1)
    snapshot = Snapshot(cluster=cluster(1, 1), jobs=(job,), calendar=(maintenance, own))
    # a1 is closed before the three days are over, b1 belongs to somebody else until the fifth day.
    assert only(planned(snapshot)).start_s == 4 * DAY_S
    mine = replace(snapshot, jobs=(replace(job, calendar_entry="own"),))
    assert (only(planned(mine)).start_s, only(planned(mine)).placement.hosts) == (0.0, ("b1",))


def test_two_jobs_follow_each_other_on_the_same_nodes() -> None:
    jobs = (wanted("first", rows=2, columns=1, days=2, weight=2.0), wanted("second", rows=2, columns=1, days=2))
    outcome = planned(Snapshot(cluster=cluster(2), jobs=jobs))
    assert outcome.plan is not None
    # Who weighs more goes first: two days late cost 2 instead of 4; one minipod each costs 2 + 1.
    assert {placed.placement.job_id: placed.start_s / DAY_S for placed in outcome.plan.ahead} == {
        "first": 0,
        "second": 2,
    }
    assert outcome.objective == pytest.approx(5.0)


def test_spares_are_kept_in_every_minipod_used() -> None:
    jobs = (wanted("big", rows=2, columns=1),)
    placed = only(planned(Snapshot(cluster=cluster(2, 3), jobs=jobs), replace(_PLAIN, spare_nodes_per_minipod=1)))
    assert {node.node for node in placed.nodes} == {"b1", "b2", "b3"}
    assert len(placed.placement.spares) == 1


@pytest.mark.parametrize(
    ("jobs", "parameters", "says"),
    [
        # It could start on the sixth day.
        (
            (
                Job(id="a", current=on("a1"), preemptible=False, remaining_s=6 * DAY_S),
                wanted("big", rows=1, columns=1, latest_start_s=DAY_S),
            ),
            _PLAIN,
            "let it start by 6.00 days from now",
        ),
        (
            (Job(id="a", current=on("a1"), lasting=over(p50=2)), wanted("big", rows=1, columns=1)),
            replace(_PLAIN, start_probability=0.9),
            "leave start_probability out",
        ),
        (
            (Job(id="a", current=on("a1"), preemptible=False), wanted("big", rows=1, columns=1)),
            _PLAIN,
            "lower dp or pp to at most 0 nodes",
        ),
        (
            tuple(wanted(name, rows=1, columns=1, latest_start_s=DAY_S) for name in ("one", "two")),
            _PLAIN,
            "let one of them start later, or end sooner",
        ),
    ],
)
def test_who_has_no_start_is_told_what_would_help(
    jobs: tuple[Job, ...], parameters: AheadParameters, says: str
) -> None:
    outcome = planned(Snapshot(cluster=cluster(1), jobs=jobs), parameters)
    assert (outcome.termination, outcome.plan) == (TerminationReason.INFEASIBLE, None)
    assert {job.reason for job in outcome.unplaced} == {"no_start"}
    assert says in outcome.unplaced[0].remedy


@pytest.mark.parametrize(
    ("job", "parameters", "pointer", "says"),
    [
        (
            wanted("big", rows=1, columns=1, earliest_start_s=9 * DAY_S),
            replace(_PLAIN, horizon_days=8),
            "/jobs/0/earliest_start_s",
            "horizon_days",
        ),
        (wanted("big", rows=1, columns=1, latest_start_s=4000 * DAY_S), _PLAIN, "/jobs/0/latest_start_s", "ten years"),
        (wanted("big", rows=9, columns=1), _PLAIN, "/jobs/0/parallelism", "needs 9 nodes"),
        (wanted("big", rows=1, columns=1), AheadParameters(), "/jobs/0/transformer", "or the parameter alpha"),
        (
            wanted("big", rows=1, columns=1, choices=Choices(zero_stages=ALL_ZERO_STAGES)),
            _PLAIN,
            "/jobs/0/transformer",
            "zero_stage",
        ),
        (Job(id="small"), _PLAIN, "/jobs", "there is none"),
    ],
)
def test_what_cannot_be_planned_is_refused(job: Job, parameters: AheadParameters, pointer: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        planned(Snapshot(cluster=cluster(2), jobs=(job,)), parameters)
    (issue,) = refused.value.issues
    assert issue.pointer == pointer
    assert says in issue.detail


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 1.0}, {"start_probability": 1.1}, {"spread_price": -1.0}, {"num_starts": 0}]
)
def test_parameters_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(wrong))} is"):
        AheadParameters(alpha=0.5, **wrong)  # type: ignore[arg-type]


def test_nodes_of_a_job_of_which_nobody_knows_how_long_it_lasts_are_kept_for_ever() -> None:
    job = replace(wanted("big", rows=1, columns=1), remaining_s=None)
    outcome = planned(Snapshot(cluster=cluster(1), jobs=(job,)))
    assert only(outcome).end_s is None
    assert [issue.code for issue in outcome.warnings] == ["unknown_duration"]


_GPT = Transformer(
    num_layers=4, hidden_size=1024, vocabulary_size=1000, sequence_length=128, global_batch=16, num_heads=16
)


def test_a_job_without_degrees_gets_the_plan_that_costs_least() -> None:
    job = Job(id="big", min_gpus=4, transformer=_GPT, latest_start_s=DAY_S, remaining_iterations=1e7)
    snapshot = Snapshot(cluster=cluster(2, 1), jobs=(job,))
    plans = training_plans(job, snapshot.cluster.gpu_types[0], 2, None, None)
    assert [plan.step_s for plan in plans] == sorted(plan.step_s for plan in plans)
    assert {plan.parallelism.num_gpus for plan in plans} == {4}
    # All on one minipod; every day that it lasts costs 1.
    placed = only(outcome := planned(snapshot))
    assert placed.parallelism == plans[0].parallelism
    assert placed.training is not None
    assert placed.training.step_s == plans[0].step_s
    assert plans[0].lasting is not None
    days = plans[0].lasting.quantile(0.9) / DAY_S
    assert placed.end_s == pytest.approx(days * DAY_S)
    assert outcome.objective == pytest.approx(1.0 + days)


def test_a_slower_plan_is_chosen_where_it_spreads_less() -> None:
    # Two minipods with one node each: stages of one node keep the pipeline across them, replicas do not; only what a
    # spread costs decides when the days cost nothing.
    job = Job(id="big", min_gpus=4, transformer=_GPT, latest_start_s=DAY_S, remaining_iterations=1e7)
    snapshot = Snapshot(cluster=cluster(1, 1), jobs=(job,))
    parameters = replace(_PLAIN, alpha=0.0, lateness_price_per_day=0.0, num_plans=20)
    placed = only(outcome := planned(snapshot, parameters))
    # With PP groups as units and alpha 0 a PP group inside a node costs 1.
    assert placed.parallelism.pp == 1
    assert outcome.objective == pytest.approx(1.0)


def test_a_plan_that_is_not_the_best_passes_the_check_with_what_it_costs() -> None:
    job = Job(id="big", min_gpus=4, transformer=_GPT, latest_start_s=DAY_S, remaining_iterations=1e7)
    formulation = formulate_ahead(Snapshot(cluster=cluster(2, 2), jobs=(job,)), _PLAIN, PhaseClock())
    assert isinstance(formulation, AheadFormulation)
    instance = formulation.instance
    (wanted_job,) = instance.jobs
    worst = max(range(len(wanted_job.options)), key=lambda o: wanted_job.options[o].cost)
    placing = place_at_best(instance, wanted_job, worst, instance.class_size).placing
    assert placing is not None
    found = ahead_plan(formulation.ahead, (placing,))
    assert formulation.violations(found, placing_cost(wanted_job, placing)) == []
    costs = [start.cost for start in found.ahead[0].other_starts]
    assert min(cost for cost in costs if cost is not None) < placing_cost(wanted_job, placing)


def test_failures_make_a_training_last_longer() -> None:
    job = replace(wanted("big", rows=2, columns=1), remaining_s=None, transformer=_GPT, remaining_iterations=1e7)
    snapshot = Snapshot(cluster=cluster(2), jobs=(job,))
    calm = only(planned(snapshot)).end_s
    parameters = replace(_PLAIN, node_mtbf_hours=1000.0, failure_restart_s=3600.0)
    placed = only(planned(snapshot, parameters))
    assert placed.training is not None
    assert placed.training.goodput < 1.0
    assert calm is not None
    assert placed.end_s is not None
    assert placed.end_s > calm


def test_a_job_that_fits_by_no_plan_is_refused() -> None:
    huge = replace(_GPT, hidden_size=65_536, num_heads=512)
    job = Job(id="big", min_gpus=2, transformer=huge, latest_start_s=DAY_S)
    with pytest.raises(InputError, match="no plan on 2 GPUs"):
        planned(Snapshot(cluster=cluster(2), jobs=(job,)))


_PRICES = AheadParameters(alpha=0.3, num_starts=8, eviction_price_per_node=0.4, idle_price_per_node_hour=0.01)


@given(snapshot=snapshots(), chance=st.sampled_from([None, 0.5, 1.0]), spares=st.integers(0, 1))
@settings(deadline=None, max_examples=100)
def test_every_plan_passes_the_check(snapshot: Snapshot, chance: float | None, spares: int) -> None:
    parameters = replace(_PRICES, start_probability=chance, spare_nodes_per_minipod=spares)
    try:
        jobs = wanted_jobs(snapshot, parameters)
    except InputError:
        return
    outcome = planned(snapshot, parameters)
    if outcome.plan is not None:
        assert len(outcome.plan.ahead) == len(jobs)
        assert outcome.objective == pytest.approx(math.fsum(term.value for term in outcome.plan.score))


@pytest.mark.slow
@given(snapshot=snapshots())
@settings(deadline=None, max_examples=40)
def test_search_and_declared_program_agree(snapshot: Snapshot) -> None:
    try:
        wanted_jobs(snapshot, _PRICES)
    except InputError:
        return
    searched, declared = planned(snapshot, _PRICES), planned(snapshot, _PRICES, solver="highs")
    if declared.objective is None:
        assert searched.plan is None
        return
    assert searched.objective is not None
    assert searched.bound is not None
    assert searched.bound <= declared.objective + 1e-6 <= searched.objective + 2e-6
    if len(wanted_jobs(snapshot, _PRICES)) == 1:
        assert searched.objective == pytest.approx(declared.objective)
