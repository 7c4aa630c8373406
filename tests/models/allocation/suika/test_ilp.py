"""Problem 1 over scale-outs: hand-made optima, brute force, and the heuristic inside it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from models.allocation.suika.declaration import compiled
from models.allocation.suika.extraction import extract_plan, scaled_out
from models.allocation.suika.heuristic import Decision, decide
from models.allocation.suika.ilp import ScaleOutProgram, assemble, scale_out_program
from models.allocation.suika.parameters import SuikaParameters
from models.allocation.suika.scale_out import first_offers
from models.plan import Change, Plan
from models.workload import Job
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult
from solver.solve import solve
from tests.models.allocation.suika.scenes import SEEDS, FakePlanner, random_event, running, snapshot, stepped


def program_of(decision: Decision, planner: FakePlanner) -> ScaleOutProgram:
    offered = first_offers(decision.settled, planner, decision.tau)
    return scale_out_program(decision.settled, offered, decision.scale_outs)


def solved(program: ScaleOutProgram) -> SolveResult:
    options = SolveOptions(relative_gap=0.0, time_limit_s=20.0, warm_start=program.heuristic_point)
    return solve(assemble(program), options, SolveMonitor())


def brute_force(program: ScaleOutProgram) -> float:
    """Best objective over every choice of at most one column per job."""
    own: dict[str, list[int]] = {}
    for c, column in enumerate(program.columns):
        own.setdefault(column.job_id, []).append(c)
    free = {node: len(gpus) for node, gpus in program.state.free["a"].items()}
    best = program.constant
    for chosen in product(*([None, *columns] for columns in own.values())):
        taken = [c for c in chosen if c is not None]
        used = Counter(node for c in taken for node, _ in program.columns[c].added)
        if all(count <= free[node] for node, count in used.items()):
            best = max(best, program.constant + sum(program.gain[c] for c in taken))
    return best


def test_the_program_finds_what_the_greedy_choice_misses() -> None:
    """AA.. BB: one more GPU is worth B = 1 to A (gain 2 x 0.5), a second nothing. B needs two for B = 0.9 (2 x 0.9).

    Greedy gives one to A, and one stays free. At most two GPUs are given: to B both, to A and nobody, or none. Optimum
    4 + 1.8.
    """
    drawing = "AA.. BB"
    planner = FakePlanner(curves={"A": stepped({2: 10.0, 3: 15.0}), "B": stepped({2: 10.0, 4: 19.0})})
    jobs = [running(name, drawing) for name in "AB"]
    decision = decide(snapshot(drawing, *jobs), SuikaParameters(), planner)
    program = program_of(decision, planner)
    assert {job_id: len(column.added) for job_id, column in decision.scale_outs.applied.items()} == {"A": 1}
    assert assemble(program).value(program.heuristic_point) == pytest.approx(4 + 1.0)
    assert solved(program).objective == pytest.approx(4 + 1.8)


def test_jobs_that_name_the_same_gpus_of_a_node_get_different_ones() -> None:
    """A.. and B are offered GPU 1 of n0 first, both; there are two, and each gets one."""
    drawing = "A.. B"
    planner = FakePlanner(curves={"A": stepped({1: 1.0, 2: 2.0, 3: 2.0}), "B": stepped({1: 1.0, 2: 2.0})})
    decision = decide(snapshot(drawing, *(running(name, drawing) for name in "AB")), SuikaParameters(), planner)
    program = program_of(decision, planner)
    first = {name: next(k for k, column in enumerate(program.columns) if column.job_id == name) for name in "AB"}
    assert program.columns[first["A"]].added == program.columns[first["B"]].added == {("n0", 1)}
    placed = scaled_out(program, [program.columns[c] for c in first.values()])
    assert set(placed["A"].plan.gpus) == {("n0", 0), ("n0", 1)}
    assert set(placed["B"].plan.gpus) == {("n1", 0), ("n0", 2)}
    assert [part.gpus for grown in placed["B"].expansions for part in grown.gpus] == [(2,)]


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_the_program_is_as_good_as_brute_force_and_the_heuristic_is_inside(seed: int) -> None:
    drawing, parameters, planner, jobs = random_event(seed)
    decision = decide(snapshot(drawing, *jobs), parameters, planner)
    program = program_of(decision, planner)
    result = solved(program)
    assert result.objective == pytest.approx(brute_force(program))
    heuristic = assemble(program).value(program.heuristic_point)
    assert result.bound is not None
    assert result.objective is not None
    assert heuristic <= result.objective + 1e-9 <= result.bound + 1e-6
    assert result.bound <= program.simple_bound + 1e-6


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_what_algorithm_2_met_is_a_part_of_the_program(seed: int) -> None:
    drawing, parameters, planner, jobs = random_event(seed)
    decision = decide(snapshot(drawing, *jobs), parameters, planner)
    met, everything = scale_out_program(decision.settled, (), decision.scale_outs), program_of(decision, planner)
    assert {column.key for column in met.columns} <= {column.key for column in everything.columns}
    heuristic = assemble(met).value(met.heuristic_point)
    assert heuristic == pytest.approx(assemble(everything).value(everything.heuristic_point))
    assert heuristic - 1e-9 <= brute_force(met) <= brute_force(everything) + 1e-9


@settings(max_examples=15, deadline=None)
@given(SEEDS)
def test_the_declared_program_is_the_assembled_one(seed: int) -> None:
    drawing, parameters, planner, jobs = random_event(seed)
    program = program_of(decide(snapshot(drawing, *jobs), parameters, planner), planner)
    direct, declared = assemble(program), compiled(program)
    assert declared.sense is direct.sense
    assert declared.offset == pytest.approx(direct.offset)
    np.testing.assert_allclose(declared.objective, direct.objective)
    np.testing.assert_allclose(declared.matrix.toarray(), direct.matrix.toarray())
    np.testing.assert_allclose(declared.row_upper, direct.row_upper)
    np.testing.assert_array_equal(declared.integrality, direct.integrality)
    np.testing.assert_array_equal(declared.lower, direct.lower)
    np.testing.assert_array_equal(declared.upper, direct.upper)
    assert len(set(declared.row_names) | set(declared.column_names)) == sum(direct.matrix.shape)


def test_without_released_gpus_there_is_nothing_to_choose() -> None:
    drawing = "AA BB"
    jobs = [running(name, drawing) for name in "AB"]
    planner = FakePlanner(curves={name: stepped({2: 1.0}) for name in "AB"})
    program = program_of(decide(snapshot(drawing, *jobs), SuikaParameters(), planner), planner)
    assert assemble(program).num_columns == compiled(program).num_columns == 0
    assert solved(program).objective == pytest.approx(4.0)


def posted_back(plan: Plan, jobs: Sequence[Job]) -> list[Job]:
    """The jobs as the next snapshot has them when the plan has been carried out."""
    given_to = {item.job_id: item for item in plan.allocations}
    return [
        replace(
            job,
            current=given_to[job.id].gpus,
            parallel_plan=given_to[job.id].parallel_plan,
            expansions=given_to[job.id].expansions,
        )
        if job.id in given_to
        else job
        for job in jobs
    ]


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_an_answer_that_is_posted_back_changes_nothing(seed: int) -> None:
    """For the heuristic. What the program chooses at once may leave GPUs that are worth something afterwards."""
    drawing, parameters, planner, jobs = random_event(seed)
    event = snapshot(drawing, *jobs)
    decision = decide(event, parameters, planner)
    plan = extract_plan(event, program_of(decision, planner), list(decision.scale_outs.applied.values()), (), planner)
    then = snapshot(drawing, *posted_back(plan, jobs))
    again = decide(then, parameters, planner)
    assert again.tau == decision.tau
    assert again.scale_outs.applied == {}
    assert [entry.job.id for entry in again.refused] == [entry.job.id for entry in decision.refused]
    second = extract_plan(then, program_of(again, planner), [], (), planner)
    assert [replace(item, change=Change.KEPT) for item in plan.allocations] == list(second.allocations)
