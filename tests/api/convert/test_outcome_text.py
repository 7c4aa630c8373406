"""The quick way to write an outcome gives the text that the documents give."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.convert import outcome_text as writing
from api.convert.outcome import outcome_to_document
from api.convert.outcome_text import outcome_text
from models.plan import Change, ChangeReason, JobAllocation, Plan, PlanOutcome, ScoreTerm, UnplacedJob
from models.workload import Job, NodeGpus, Snapshot
from solver.result import TerminationReason
from tests.api.convert.test_convert import outcome_with_everything
from tests.models.placement.scenes import cluster, node

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.sampled_from(["j0", "läuft", '"', "a b\\", '"score":[]', '"allocations":[],'])
REASONS = st.builds(
    ChangeReason,
    detail=st.text(max_size=4),
    counts=st.dictionaries(st.text(max_size=4), st.integers(-9, 9), max_size=2),
)
COUNTS = st.none() | st.integers(min_value=1, max_value=2**53)


@st.composite
def plans(draw: st.DrawFn) -> tuple[PlanOutcome, Snapshot]:
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    jobs = [
        Job(id=name, current=(NodeGpus(node=f"n{k}", gpus=(0, 2)),) if draw(st.booleans()) else None)
        for k, name in enumerate(names)
    ]
    allocations = [
        JobAllocation(
            job_id=name,
            gpu_type="a",
            num_gpus=2,
            gpus=tuple(NodeGpus(node=f"n{j}", gpus=(j, 3)) for j in range(draw(st.integers(1, 2)))),
            change=draw(st.sampled_from(Change)),
            batch_size=draw(COUNTS),
            local_batch_size=draw(COUNTS),
            accumulation_steps=draw(COUNTS),
            expected_goodput=draw(st.none() | FLOATS),
            why=draw(st.none() | REASONS),
        )
        for name in names
    ]
    score = [ScoreTerm(term="utility", job_id=draw(st.none() | NAMES), value=draw(FLOATS)) for _ in names]
    unplaced = [
        UnplacedJob(
            job_id=draw(NAMES),
            reason="capacity",
            detail=draw(st.text(max_size=4)),
            counts={"free_gpus.a": draw(st.integers(0, 9))},
            remedy="wait",
            preempted=draw(st.booleans()),
        )
        for _ in range(draw(st.integers(0, 2)))
    ]
    plan = Plan(allocations=tuple(allocations), unplaced=tuple(unplaced), score=tuple(score))
    outcome = replace(
        outcome_with_everything(),
        termination=draw(st.sampled_from([TerminationReason.OPTIMAL, TerminationReason.FEASIBLE])),
        plan=plan,
        objective=draw(FLOATS | st.integers(-3, 3)),
        bound=draw(st.none() | FLOATS),
        conflicts=("row[x]",),
        prices=draw(st.dictionaries(NAMES, FLOATS, max_size=2)),
    )
    nodes = (node(f"n{k}") for k in range(4))
    return outcome, Snapshot(cluster=cluster(*nodes), jobs=tuple(jobs))


@given(plans())
def test_plain_plans_are_written_as_the_documents_write_them(told: tuple[PlanOutcome, Snapshot]) -> None:
    for exclude in (set[str](), {"termination", "warnings"}):
        assert outcome_text(*told, exclude) == outcome_to_document(*told).model_dump_json(exclude=exclude)


@pytest.mark.parametrize("has_plan", [True, False])
def test_all_others_are_left_to_the_documents(has_plan: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "written", None)
    outcome = outcome_with_everything()
    if not has_plan:
        outcome = replace(outcome, termination=TerminationReason.INFEASIBLE, plan=None)
    snapshot = Snapshot(cluster=cluster(node("n0"), node("n1")), jobs=(Job(id="llm"),))
    assert outcome_text(outcome, snapshot, set()) == outcome_to_document(outcome, snapshot).model_dump_json()
