"""The direct way to the matrix form against the declared model compiled by CVXPY."""

from dataclasses import fields, replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings

from benchmarks.workloads.published.sia_instances import instance_names, load_instance
from models.allocation.constraint_group import stacked
from models.allocation.sia.assembly import MERGING_PAYS, assemble, constraint_groups, tell_choice
from models.allocation.sia.formulation import SiaFormulation, formulate_sia
from models.allocation.sia.instance import SiaInstance, sia_instance
from models.allocation.sia.merging import merged, offer_of
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.clock import PhaseClock
from models.workload import Job, NodeGpus, Snapshot
from solver.decomposition.structure import find_structure
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.preparation import prepare
from solver.problem import MatrixProblem
from solver.solve import solve
from tests.models.allocation.sia.instances import random_parameters, random_snapshot, table
from tests.models.placement.scenes import SEEDS, cluster, dice, node

NAMES = instance_names()


def assert_same(formulation: SiaFormulation) -> None:
    """Same columns in the same order; same rows, which CVXPY sorts by kind."""
    direct, declared = formulation.problem, formulation.named()
    assert direct.sense is declared.sense
    assert direct.offset == pytest.approx(declared.offset)
    np.testing.assert_allclose(direct.objective, declared.objective)
    if not direct.num_columns:
        return
    np.testing.assert_array_equal(direct.integrality, declared.integrality)
    np.testing.assert_array_equal(direct.lower, declared.lower)
    np.testing.assert_array_equal(direct.upper, declared.upper)
    names = [name for group in constraint_groups(formulation.instance) for name in group.row_names]
    order = [declared.row_names.index(name) for name in names]
    assert sorted(order) == list(range(declared.num_rows))
    assert abs(direct.matrix.tocsr() - declared.matrix.tocsr()[order]).sum() == 0
    np.testing.assert_array_equal(direct.row_lower, declared.row_lower[order])
    np.testing.assert_array_equal(direct.row_upper, declared.row_upper[order])


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS)
def test_assembled_and_declared_are_the_same_program(seed: int) -> None:
    rng = dice(seed)
    assert_same(formulate_sia(random_snapshot(rng), random_parameters(rng), PhaseClock()))


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS)
def test_columns_are_those_of_the_groups_of_rows(seed: int) -> None:
    rng = dice(seed)
    instance = sia_instance(random_snapshot(rng), random_parameters(rng), PhaseClock())
    matrix, row_lower, row_upper = stacked(constraint_groups(instance), instance.pair_jobs.size)
    problem = assemble(instance)
    assert problem.matrix.shape == matrix.shape
    for part in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(problem.matrix, part), getattr(matrix, part))
    np.testing.assert_array_equal(problem.row_lower, row_lower)
    np.testing.assert_array_equal(problem.row_upper, row_upper)


@pytest.mark.skipif(not NAMES, reason="the recorded inputs (shared/data/sia/instances) are not beside the checkout")
def test_on_a_recorded_input() -> None:
    recorded = load_instance("sia512_r180")
    assert_same(formulate_sia(recorded.snapshot, recorded.parameters, PhaseClock()))


def told(instance: SiaInstance) -> MatrixProblem:
    """The program with its choice form."""
    problem = assemble(instance)
    tell_choice(instance, problem)
    return problem


def assert_told_is_found(problem: MatrixProblem, *, may_be_untold: bool) -> None:
    """The choice form that comes with the program is the one that is found in its columns."""
    told, found = problem.choice, find_structure(replace(problem))
    if told is None:
        assert found is None or may_be_untold
        return
    assert found is not None
    assert told.is_of(problem)
    np.testing.assert_array_equal(told.coupling.toarray(), found.coupling.toarray())
    for field in fields(found):
        if field.init and field.name != "coupling":
            np.testing.assert_array_equal(getattr(told, field.name), getattr(found, field.name), err_msg=field.name)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
@patch("models.allocation.sia.assembly.MERGING_PAYS", 0)
def test_jobs_are_merged_as_their_columns_are(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng), random_parameters(rng)
    clones = tuple(replace(job, id=f"{job.id}-{k}", current=None) for k in range(3) for job in snapshot.jobs)
    for jobs in (snapshot.jobs, snapshot.jobs + clones):
        instance = sia_instance(replace(snapshot, jobs=jobs), parameters, PhaseClock())
        problem, has_single_unit = told(instance), bool((instance.rows.limits == 1).any())
        if not prepare(problem).conflicts:
            assert_told_is_found(problem, may_be_untold=has_single_unit)
            assert_told_is_found(prepare(problem).problem, may_be_untold=has_single_unit)


def test_jobs_that_differ_are_not_merged_whatever_their_sums() -> None:
    rng = dice(0)
    instance = sia_instance(random_snapshot(rng), random_parameters(rng), PhaseClock())
    problem, order = assemble(instance), np.flatnonzero(instance.utility.offered.any(axis=1))
    offer = offer_of(instance, order, np.arange(instance.rows.limits.size), problem.num_rows)
    assert merged(problem, offer) is not None
    assert merged(problem, replace(offer, weight=np.zeros_like(offer.weight))) is None


@patch("models.allocation.sia.assembly.MERGING_PAYS", 0)
def test_what_is_offered_is_told_with_other_costs() -> None:
    """Of rows that are those of an earlier program the choice form is that of the costs now."""
    on = cluster(node("n0", num_gpus=2), node("n1", num_gpus=2))
    jobs = tuple(Job(id=f"j{k}", performance=table({("a", 1): 3.0, ("a", 2): 5.0})) for k in range(3))
    heavier = (replace(jobs[0], weight=2.0), *jobs[1:])
    first, second = (
        told(sia_instance(Snapshot(cluster=on, jobs=each), SiaParameters(queue_penalty=8.0), PhaseClock()))
        for each in (jobs, heavier)
    )
    assert second.matrix is first.matrix
    assert first.choice is not None
    assert second.choice is not None
    assert first.choice.copies.tolist() == [3]
    assert second.choice.copies.tolist() == [1, 2]
    assert not second.choice.is_of(first)
    for problem in (first, second):
        assert_told_is_found(problem, may_be_untold=False)


def test_jobs_whose_costs_are_whole_numbers_are_told_apart() -> None:
    rng, sizes = np.random.default_rng(0), (1, 2, 4, 8, 16, 32)
    costs = rng.integers(1, 101, size=(1000, len(sizes))).astype(float).tolist()
    jobs = tuple(
        Job(id=f"j{k}", performance=table({("a", n): cost for n, cost in zip(sizes, row, strict=True)}))
        for k, row in enumerate(costs)
    )
    snapshot = Snapshot(cluster=cluster(*(node(f"n{k}", num_gpus=8) for k in range(4))), jobs=jobs)
    parameters = SiaParameters(objective=SiaObjective.GIVEN_COSTS, queue_penalty=128.0)
    problem = told(sia_instance(snapshot, parameters, PhaseClock()))
    assert_told_is_found(problem, may_be_untold=False)


def test_small_programs_are_not_merged_beforehand() -> None:
    instance = sia_instance(random_snapshot(dice(0)), random_parameters(dice(0)), PhaseClock())
    assert assemble(instance).num_columns < MERGING_PAYS
    assert told(instance).choice is None


@patch("models.allocation.sia.assembly.MERGING_PAYS", 0)
def test_what_is_solved_in_place_of_the_program_comes_with_its_own_choice_form() -> None:
    """Costs of whole numbers have ties, for which keeping a job where it is is made a little better."""
    shapes = {("a", 1): 3.0, ("a", 2): 2.0}
    on = cluster(node("n0", num_gpus=2), node("n1", num_gpus=2), node("n2", num_gpus=2))
    jobs = tuple(
        Job(id=f"j{k}", performance=table(shapes), current=(NodeGpus(node="n0", gpus=(0,)),) if k == 0 else None)
        for k in range(4)
    )
    parameters = SiaParameters(objective=SiaObjective.GIVEN_COSTS, queue_penalty=8.0)
    formulation = formulate_sia(Snapshot(cluster=on, jobs=jobs), parameters, PhaseClock())
    with patch("models.allocation.sia.formulation.solve", wraps=solve) as asked:
        formulation.solve(SolveOptions(), SolveMonitor())
    (solved, *_), _ = asked.call_args
    assert solved.objective.tolist() != formulation.problem.objective.tolist()
    assert solved.choice is not None
    assert_told_is_found(solved, may_be_untold=False)


def test_rows_and_bounds_are_the_very_same_as_long_as_pairs_and_limits_are() -> None:
    jobs = tuple(Job(id=f"j{k}", performance=table({("a", 1): 3.0, ("a", 2): 5.0 + k}), age_s=100.0) for k in range(3))

    def assembled(jobs: tuple[Job, ...], num_gpus: int) -> MatrixProblem:
        snapshot = Snapshot(cluster=cluster(node("n0", num_gpus=2), node("n1", num_gpus=num_gpus)), jobs=jobs)
        return assemble(sia_instance(snapshot, SiaParameters(), PhaseClock()))

    before = assembled(jobs, 2)
    heavier = assembled((replace(jobs[0], weight=2.0), *jobs[1:]), 2)
    assert heavier.matrix is before.matrix
    assert heavier.row_upper is before.row_upper
    assert heavier.objective.tolist() != before.objective.tolist()
    scarce, fewer = assembled(jobs, 1), assembled(jobs[1:], 2)
    assert scarce.row_upper.tolist() != before.row_upper.tolist()
    assert fewer.num_columns < before.num_columns
