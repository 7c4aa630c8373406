"""The packaged examples: as generated, legal, and solved to what can be worked out by hand."""

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.cli.files import load_request
from api.cli.pretty import pretty_json
from api.common.examples import examples
from benchmarks.examples.make_examples import FOLDER
from benchmarks.examples.make_examples import examples as generated
from models.allocation.arena.parameters import ArenaMethod, ArenaParameters
from models.plan import JobAllocation, Plan, PlanOutcome, PlanRequest
from models.planning import plan
from solver.result import TerminationReason

# One README line each; a POST of the largest one must stay cheap.
MAX_BYTES = 300_000


def request_of(name: str) -> PlanRequest:
    return load_request(FOLDER / f"{name}.json").request


def solved(name: str) -> tuple[PlanOutcome, Plan]:
    outcome = plan(request_of(name))
    assert outcome.termination is TerminationReason.OPTIMAL
    assert outcome.plan is not None
    return outcome, outcome.plan


def test_files_are_what_the_generator_writes() -> None:
    written = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.json"))}
    expected = {name: pretty_json(document) + "\n" for name, document in sorted(generated().items())}
    assert written == expected


def test_service_and_files_know_the_same_examples() -> None:
    assert [example.id for example in examples()] == sorted(generated())


@pytest.mark.parametrize("name", sorted(generated()))
def test_example_is_legal_and_small(name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.json"
    assert path.stat().st_size < MAX_BYTES
    asked = load_request(path)
    assert {issue.code for issue in asked.warnings} <= {"runs_on_drained_node"}
    # What `stowplan examples ID` prints is the same request.
    copy = tmp_path / "request.json"
    copy.write_text(pretty_json(next(example.request for example in examples() if example.id == name)))
    assert load_request(copy).request.snapshot == asked.request.snapshot


def test_quickstart_is_optimal() -> None:
    """Every combination of (type, count) per job within four GPUs of each type, by Eq. 4 with p = -0.5."""
    document = json.loads((FOLDER / "quickstart.json").read_text())
    rows: list[list[tuple[tuple[str, int], float]]] = []
    for job in document["snapshot"]["jobs"]:
        entries = job["performance"]["entries"]
        least = min(entry["value"] for entry in entries)
        costs = [((entry["gpu_type"], entry["num_gpus"]), (entry["value"] / least) ** -0.5) for entry in entries]
        rows.append([*costs, (("none", 0), 1.1)])
    best = min(
        sum(cost for _, cost in choice) for choice in itertools.product(*rows) if _fits([where for where, _ in choice])
    )
    outcome, answer = solved("quickstart")
    assert outcome.objective == pytest.approx(best, rel=1e-6)
    assert len(answer.allocations) == 3


def _fits(choice: list[tuple[str, int]]) -> bool:
    used: Counter[str] = Counter()
    for kind, count in choice:
        used[kind] += count
    return max(used["t4"], used["a100"]) <= 4


def test_table_1_gives_the_answer_of_the_paper() -> None:
    outcome, answer = solved("sia-paper-table1")
    assert outcome.objective == pytest.approx(8.0)
    assert {(job.job_id, job.num_gpus, job.gpu_type) for job in answer.allocations} == {("J1", 4, "B"), ("J2", 2, "A")}


def test_heterogeneous_shows_what_it_promises() -> None:
    outcome, answer = solved("sia-heterogeneous-64")
    placed = {job.job_id: job for job in answer.allocations}
    assert [issue.code for issue in outcome.warnings] == ["runs_on_drained_node"]
    assert (placed["release-candidate"].gpu_type, placed["release-candidate"].num_gpus) == ("a100", 8)
    assert {part.node: part.gpus for part in placed["evaluation"].gpus} == {"rtx-1": (4, 5, 6, 7)}
    assert all(part.node != "rtx-3" for job in answer.allocations for part in job.gpus)
    assert placed["rigid-vision"].num_gpus == 4
    assert answer.unplaced
    assert all(job.remedy for job in answer.unplaced)


def test_heterogeneous_has_one_optimum_whoever_solves_it() -> None:
    request = request_of("sia-heterogeneous-64")
    document: dict[str, Any] = {"solver": "scip"}
    other = load_request(FOLDER / "sia-heterogeneous-64.json", options=document).request
    assert plan(other).objective == pytest.approx(plan(request).objective, rel=1e-6)


def test_fig12_takes_two_minipods_and_splits_no_pipeline() -> None:
    """No minipod has 12 free nodes, so at least two are used; 6 + 6 keeps every pipeline of two nodes together."""
    outcome, answer = solved("arnold-fig12")
    assert outcome.objective == pytest.approx(0.3 * 2 + 0.7 * 1)
    assert answer.pretraining is not None
    assert (answer.pretraining.num_minipods_used, answer.pretraining.max_unit_spread) == (2, 1)
    assert len(answer.pretraining.hosts) == 12


def test_368_nodes_reach_the_bound_that_counting_gives() -> None:
    """Pipelines of 8 nodes kept whole need the fewest minipods with 46 places; splitting them costs 0.7 more than
    the minipods saved by it, counted by free nodes alone."""
    request = request_of("arnold-368-of-1019-nodes")
    cluster = request.snapshot.cluster
    assert (len(cluster.nodes), len({node.path for node in cluster.nodes})) == (1019, 11)
    free = Counter(node.path for node in cluster.nodes if not node.gpus_in_use).values()
    whole = _fewest([count // 8 for count in free], 46)
    split = _fewest(list(free), 368)
    best = min(0.3 * whole + 0.7 * 1, 0.3 * split + 0.7 * 2)
    assert best == pytest.approx(0.3 * whole + 0.7)
    outcome, answer = solved("arnold-368-of-1019-nodes")
    assert outcome.objective == pytest.approx(best)
    assert answer.pretraining is not None
    assert len(set(answer.pretraining.hosts)) == 368


def _fewest(places: list[int], needed: int) -> int:
    totals = itertools.accumulate(sorted(places, reverse=True))
    return next(k for k, total in enumerate(totals, start=1) if total >= needed)


def test_infeasible_names_what_conflicts() -> None:
    outcome = plan(request_of("infeasible-reservations"))
    assert outcome.termination is TerminationReason.INFEASIBLE
    assert {"reserved[reserved-8]", "reserved[reserved-4]", "capacity[a100]"} <= set(outcome.conflicts)


def _on_their_gpus(answer: Plan) -> dict[str, JobAllocation]:
    """Allocations by job; every plan is on exactly the GPUs of its job."""
    for job in answer.allocations:
        held = {(part.node, gpu) for part in job.gpus for gpu in part.gpus}
        assert job.parallel_plan is None or set(job.parallel_plan.gpus) == held
    return {job.job_id: job for job in answer.allocations}


@pytest.mark.slow
def test_arena_places_every_job_with_its_plan_and_says_how_good_that_is() -> None:
    request = request_of("arena-two-types")
    outcome = plan(request)
    assert outcome.plan is not None
    placed = _on_their_gpus(outcome.plan)
    assert {name for name, job in placed.items() if job.parallel_plan is None} == {"measured"}
    assert not outcome.plan.unplaced
    exact = plan(replace(request, parameters=ArenaParameters(method=ArenaMethod.ILP)))
    assert exact.termination is TerminationReason.OPTIMAL
    assert outcome.objective is not None
    assert exact.objective is not None
    assert outcome.bound is not None
    assert outcome.objective <= exact.objective + 1e-9 <= outcome.bound + 1e-6


def test_suika_starts_who_waits_and_grows_who_runs() -> None:
    outcome = plan(request_of("suika-growing"))
    assert outcome.plan is not None
    placed = _on_their_gpus(outcome.plan)
    assert {placed[name].change.value for name in ("qwen2-1.5b", "llama2-7b")} == {"started"}
    grown = placed["llama2-13b"]
    assert grown.num_gpus > 8
    added = {(part.node, gpu) for grown_by in grown.expansions for part in grown_by.gpus for gpu in part.gpus}
    assert added == {(part.node, gpu) for part in grown.gpus for gpu in part.gpus if part.node != "node-1"}
    assert sum(job.num_gpus for job in placed.values()) == 32


def test_gang_keeps_its_promise_and_says_who_waits_for_what() -> None:
    """pretrain needs four whole nodes: those of finetune and agents are free in an hour, with node-5 and node-6."""
    _, answer = solved("gang-queue")
    started = {job.job_id: [part.node for part in job.gpus] for job in answer.allocations if job.change == "started"}
    assert (len(started["sweep-1"]), started["notebook"]) == (1, ["node-3"])
    waiting = {job.job_id: job for job in answer.unplaced}
    assert {name: job.reason for name, job in waiting.items()} == {
        "pretrain": "next",
        "train": "would_delay",
        "ablation": "quota",
    }
    assert waiting["pretrain"].counts["starts_in_s"] == 3600


def test_gavel_gives_the_v100_to_who_is_due_next() -> None:
    """j0 and j1 are due 5/11 of the V100 each, j2 10/11 of the K80. A priority is the share and a thousandth, times the
    three half rounds that count as its age, over those that count as received: three of a type that it had, else one.
    """
    outcome, answer = solved("gavel-paper")
    assert {job.job_id: (job.gpu_type, job.change.value) for job in answer.allocations} == {
        "j1": ("V100", "started"),
        "j2": ("K80", "kept"),
    }
    assert outcome.objective == pytest.approx(3 * (5 / 11 + 0.001) + (10 / 11 + 0.001))
    (waits,) = answer.unplaced
    assert (waits.job_id, waits.reason, waits.preempted) == ("j0", "outcompeted", True)


def test_elasticflow_keeps_its_promise_and_says_whom_it_refuses() -> None:
    """`promised` does 28 samples/s where it has to, 4 GPUs; `admitted` 15, 2 GPUs, and its reserve of a slot; on what
    is left, 2 GPUs, nobody does the 42 of `too-much`."""
    outcome = plan(request_of("elasticflow-deadlines"))
    answer = outcome.plan
    assert answer is not None
    assert {job.job_id: (job.num_gpus, job.change.value) for job in answer.allocations} == {
        "promised": (4, "kept"),
        "admitted": (2, "started"),
        "no-deadline": (2, "started"),
    }
    (waits,) = answer.unplaced
    assert (waits.job_id, waits.reason, waits.preempted) == ("too-much", "not_admitted", False)
    assert [issue.code for issue in outcome.warnings] == ["deadline_not_guaranteed"]
