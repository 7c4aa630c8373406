"""Checks that a round takes over from the one before let nothing pass that they would find if they were made anew."""

import pickle
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.workloads.generators import SiaSize, sia_snapshot
from models.allocation.sia import extraction
from models.allocation.sia.extraction import _allocations, extract_plan
from models.allocation.sia.formulation import SiaFormulation, formulate_sia
from models.allocation.sia.goodput_check import goodput_violations
from models.allocation.sia.instance import sia_instance
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.spread_check import SpreadAudit
from models.clock import PhaseClock
from models.parallel_plan import symmetric_plan
from models.performance.goodput import rounds
from models.performance.goodput.spec import GoodputTable, Performance, TableEntry, ThroughputTable
from models.placement.units import Homes
from models.plan import Change, Plan, PlanRequest
from models.planning import plan as made_plan
from models.workload import Job, NodeGpus, Snapshot
from solver.options import SolveOptions
from stowplan.errors import UnverifiedPlanError
from tests.models.allocation.sia.instances import solve
from tests.models.performance.goodput.test_rounds import goodput_model
from tests.models.placement.scenes import cluster, node

PARAMETERS = SiaParameters()


def planned(snapshot: Snapshot) -> tuple[SiaFormulation, Plan, float]:
    model = formulate_sia(snapshot, PARAMETERS, PhaseClock())
    result = solve(model)
    assert result.incumbent is not None
    assert result.objective is not None
    return model, model.extract(result.incumbent, PhaseClock()), result.objective


def later(snapshot: Snapshot, plan: Plan, rng: random.Random) -> Snapshot:
    """Jobs run where the plan has them, and two of them are older; of the others the objects are the same."""
    given = {each.job_id: each.gpus for each in plan.allocations}
    older = rng.sample(snapshot.jobs, 2)

    def job(before: Job) -> Job:
        if before in older:
            return replace(before, age_s=before.age_s + 60.0, current=given.get(before.id))
        now = given.get(before.id)
        return before if now == before.current else replace(before, current=now)

    return Snapshot(cluster=snapshot.cluster, jobs=tuple(job(each) for each in snapshot.jobs))


def spoiled(plan: Plan, objective: float, rng: random.Random) -> Iterator[tuple[Plan, float]]:
    """The plan with one fault each: of one allocation, of several together, of the score, or of who is named."""
    # What a table says is taken as it is.
    one = rng.choice([k for k, each in enumerate(plan.allocations) if each.local_batch_size])
    other = rng.choice([k for k in range(len(plan.allocations)) if k != one])
    here, there = plan.allocations[one], plan.allocations[other]
    part = here.gpus[0]
    changes: list[dict[str, Any]] = [
        {"gpus": there.gpus, "gpu_type": there.gpu_type, "num_gpus": there.num_gpus},
        {"gpus": (NodeGpus(node="nowhere", gpus=part.gpus), *here.gpus[1:])},
        {"gpus": (NodeGpus(node=part.node, gpus=(*part.gpus[:-1], 99)), *here.gpus[1:])},
        {"num_gpus": here.num_gpus + 1},
        {"gpu_type": "another"},
        {"expected_goodput": 1.01 * (here.expected_goodput or 0.0)},
        {"batch_size": 3 * (here.batch_size or 1)},
        {"job_id": "a stranger"},
        {"job_id": there.job_id},
    ]

    def with_(k: int, **fields: Any) -> Plan:
        allocations = list(plan.allocations)
        allocations[k] = replace(allocations[k], **fields)
        return replace(plan, allocations=tuple(allocations))

    yield from ((with_(one, **fields), objective) for fields in changes)
    yield replace(plan, allocations=plan.allocations[1:]), objective
    yield replace(plan, allocations=(*plan.allocations, here)), objective
    yield replace(plan, unplaced=(*plan.unplaced, *plan.unplaced[:1])), objective
    yield replace(plan, unplaced=plan.unplaced[1:]), objective
    term = rng.randrange(len(plan.score))
    wrong = replace(plan.score[term], value=plan.score[term].value * 1.001 + 1e-3)
    yield replace(plan, score=(*plan.score[:term], wrong, *plan.score[term + 1 :])), objective
    yield replace(plan, score=plan.score[1:]), objective
    yield plan, objective * 1.001


@pytest.mark.parametrize("seed", range(4))
def test_a_fault_is_found_beside_all_that_was_right_the_round_before(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    snapshot = sia_snapshot(SiaSize(num_gpus=48, num_jobs=40, num_types=2, running=0.7), seed)
    for _ in range(3):
        model, plan, objective = planned(snapshot)
        assert plan.unplaced
        assert model.violations(plan, objective) == []
        anew = formulate_sia(pickle.loads(pickle.dumps(snapshot)), PARAMETERS, PhaseClock())  # noqa: S301 - our own
        for wrong, claimed in spoiled(plan, objective, rng):
            found = model.violations(wrong, claimed)
            assert found
            assert found == anew.violations(wrong, claimed)
            # What was found wrong leaves nothing behind.
            assert model.violations(plan, objective) == []
        snapshot = later(snapshot, plan, rng)


def test_promised_shares_without_any_are_not_what_none_are() -> None:
    snapshot = sia_snapshot(SiaSize(num_gpus=16, num_jobs=8, num_types=1), 0)
    model, plan, _ = planned(snapshot)
    audit, it = SpreadAudit(snapshot.cluster), model.instance
    k = next(k for k, each in enumerate(plan.allocations) if each.local_batch_size)
    more = replace(plan.allocations[k], expected_goodput=1e9)
    wrong = replace(plan, allocations=(*plan.allocations[:k], more, *plan.allocations[k + 1 :]))
    for promised, is_told in ((None, True), ({}, False), (None, True)):
        found = [*goodput_violations(snapshot, it.configurations, it.matrix, wrong, audit, promised)]
        assert bool(found) is is_told


def test_what_a_job_goes_on_with_is_told_anew_where_that_was_all_that_changed() -> None:
    """It was chosen in another configuration, and keeps its GPUs: it reaches what it had reached."""
    cold = sia_snapshot(SiaSize(num_gpus=16, num_jobs=8, num_types=1), 0)
    _, plan, _ = planned(cold)
    given = {each.job_id: each for each in plan.allocations}

    def running(job: Job) -> Job:
        n, gpus = given[job.id].num_gpus, given[job.id].gpus
        whole = symmetric_plan(
            num_layers=1,
            pp=1,
            dp=n,
            tp=1,
            global_batch=n,
            num_micro_batches=1,
            gpu_type=given[job.id].gpu_type,
            gpus=tuple((part.node, gpu) for part in gpus for gpu in part.gpus),
        )
        return replace(job, current=gpus, parallel_plan=whole)

    jobs = tuple(running(job) for job in cold.jobs if job.id in given)
    snapshot = Snapshot(cluster=cold.cluster, jobs=jobs)
    it = sia_instance(snapshot, PARAMETERS, PhaseClock())
    current = it.utility.current
    chosen = (current + 1) % len(it.configurations)
    slices = it.taken.running
    for factor in (1.0, 2.0):
        goodput = it.matrix.goodput.copy()
        goodput[np.arange(len(jobs)), current] *= factor
        reached = _allocations(replace(it, matrix=replace(it.matrix, goodput=goodput)), chosen, slices)
        expected = goodput[np.arange(len(jobs)), current].tolist()
        assert [each.expected_goodput for each in reached] == expected
        assert min(expected) > 0


@pytest.mark.parametrize("seed", range(4))
def test_jobs_that_keep_their_configurations_keep_their_gpus(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they had been placed."""
    rng = random.Random(seed)  # noqa: S311 - reproducible instances
    cold = sia_snapshot(SiaSize(num_gpus=32, num_jobs=12, num_types=2), seed)
    _, plan, _ = planned(cold)
    snapshot = later(cold, plan, rng)
    it = sia_instance(snapshot, PARAMETERS, PhaseClock())
    current = it.utility.current
    assert (current >= 0).any()
    placed = extract_plan(it, current, Homes())
    with monkeypatch.context() as patched:
        patched.setattr(extraction, "assign_gpus", None)
        assert extract_plan(it, current) == placed
    assert {each.change for each in placed.allocations} == {Change.KEPT}


def entries(*values: float) -> tuple[TableEntry, ...]:
    return tuple(TableEntry(gpu_type="a", num_gpus=n, value=v) for n, v in zip((1, 2, 4), values, strict=True))


STEEP, FLAT = entries(1.0, 10.0, 11.0), entries(1.0, 1.01, 1.02)
COSTS = SiaParameters(objective=SiaObjective.GIVEN_COSTS, queue_penalty=100.0)


@pytest.mark.parametrize(
    ("performances", "parameters"),
    [
        ((GoodputTable(entries=STEEP), GoodputTable(entries=FLAT)), PARAMETERS),
        ((ThroughputTable(entries=STEEP), ThroughputTable(entries=FLAT)), PARAMETERS),
        ((GoodputTable(entries=STEEP), GoodputTable(entries=entries(7.0, 8.0, 9.0))), COSTS),
        ((goodput_model(5.0), goodput_model(0.2)), PARAMETERS),
    ],
)
def test_rows_carried_over_to_the_wrong_jobs_are_noticed(
    performances: tuple[Performance, ...], parameters: SiaParameters
) -> None:
    jobs = tuple(Job(id=f"j{k}", performance=performance) for k, performance in enumerate(performances))
    ground = cluster(*(node(f"n{k}") for k in range(2)))

    def planned_at(age_s: float) -> None:
        older = tuple(replace(job, age_s=age_s) for job in jobs)
        snapshot = Snapshot(cluster=ground, jobs=older)
        made_plan(PlanRequest(snapshot=snapshot, parameters=parameters, options=SolveOptions()))

    rounds.forget_rounds()
    planned_at(0.0)
    planned_at(1.0)
    matrix = rounds._kept[0].matrix
    for name in (*rounds._ARRAYS, "models"):
        rows = getattr(matrix, name)
        rows.setflags(write=True)
        rows[:] = rows[::-1].copy()
    with pytest.raises(UnverifiedPlanError, match="withheld") as told:
        planned_at(2.0)
    rounds.forget_rounds()
    assert {issue.code for issue in told.value.issues} == {"wrong_goodput"}
