"""The exact algorithms through the policy: options, lazy models, results, plans, spare nodes, tiers, Eq. 2."""

import threading
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.clock import PhaseClock
from models.placement.arnold.check import plan_violations
from models.placement.arnold.parameters import ArnoldParameters, SchedulingUnit, SpreadObjective
from models.placement.arnold.placement_formulation import PlacementFormulation
from models.placement.arnold.policy import ArnoldFormulation, formulate_arnold
from models.placement.arnold.tiers.policy import TierFormulation
from models.placement.arnold.true_spread.policy import TrueSpreadFormulation
from models.placement.arnold.validation import policy_issues
from models.plan import Plan, PretrainingPlacement
from models.workload import Snapshot
from solver.feasibility import violations
from solver.infeasibility import conflicting_rows
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.result import Limit, SolveResult, TerminationReason
from stowplan.errors import InputError
from tests.models.placement.arnold.scenes import fabric, pretraining
from topology.cluster import Cluster, NodeState

EQ2 = ArnoldParameters(alpha=0.5, spread_objective=SpreadObjective.EQ2)
TIERS = ArnoldParameters(alpha=0.3, tier_weights=MappingProxyType({"minipod": 1.0, "leaf": 0.5}))
KINDS = (
    (ArnoldParameters(alpha=0.3), ArnoldFormulation),
    (replace(EQ2, alpha=0.3), TrueSpreadFormulation),
    (TIERS, TierFormulation),
)


def formulated(
    cluster: Cluster, rows: int, columns: int, parameters: ArnoldParameters
) -> tuple[Snapshot, PlacementFormulation]:
    snapshot = Snapshot(cluster=cluster, jobs=(pretraining(rows, columns),))
    formulation = formulate_arnold(snapshot, parameters, PhaseClock())
    assert isinstance(formulation, PlacementFormulation)
    return snapshot, formulation


def planned(formulation: PlacementFormulation, solver: str = "exact") -> tuple[SolveResult, Plan, PretrainingPlacement]:
    """Solve to the end, extract, check."""
    options = SolveOptions(solver=solver, time_limit_s=120, relative_gap=0.0)
    result = formulation.solve(options, SolveMonitor())
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    assert plan.pretraining is not None
    return result, plan, plan.pretraining


@pytest.mark.slow
@pytest.mark.parametrize(("parameters", "kind"), KINDS)
@given(
    free=st.lists(st.integers(1, 6), min_size=2, max_size=4),
    rows=st.integers(1, 3),
    columns=st.integers(1, 3),
    unit=st.sampled_from(SchedulingUnit),
)
@settings(max_examples=4, deadline=None)
def test_every_solver_finds_the_same_optimum(
    parameters: ArnoldParameters,
    kind: type[PlacementFormulation],
    free: list[int],
    rows: int,
    columns: int,
    unit: SchedulingUnit,
) -> None:
    cluster = fabric([*free, max(1, rows * columns - sum(free))], nodes_per_leaf=2)
    chosen = replace(parameters, scheduling_unit=unit)
    values = []
    for solver in ("exact", "auto", "highs", "scip"):
        _, formulation = formulated(cluster, rows, columns, chosen)
        assert isinstance(formulation, kind)
        result, _, _ = planned(formulation, solver)
        assert result.termination is TerminationReason.OPTIMAL
        assert result.solver == ("exact" if solver == "auto" else solver)
        assert result.incumbent is not None
        assert violations(formulation.problem, result.incumbent) == ()
        assert formulation.problem.value(result.incumbent) == pytest.approx(result.objective)
        values.append(result.objective)
    assert values == pytest.approx([values[0]] * 4, abs=1e-6)


@pytest.mark.parametrize(("parameters", "kind"), KINDS)
def test_the_model_is_declared_only_for_those_who_ask(
    parameters: ArnoldParameters, kind: type[PlacementFormulation]
) -> None:
    _, formulation = formulated(fabric((6, 6, 6)), 4, 3, parameters)
    assert isinstance(formulation, kind)
    result, _, _ = planned(formulation)
    assert not {"model", "compiled", "problem"} & set(vars(formulation))
    assert result.message
    assert result.bound == result.objective
    assert result.statistics.first_incumbent_s is not None
    assert formulation.named().num_columns == result.statistics.num_columns
    assert "model" in vars(formulation)


@pytest.mark.parametrize(("parameters", "kind"), KINDS)
def test_progress_carries_points_of_the_problem(parameters: ArnoldParameters, kind: type[PlacementFormulation]) -> None:
    told: list[Progress] = []
    _, formulation = formulated(fabric((5, 4, 4)), 4, 3, parameters)
    assert isinstance(formulation, kind)
    result = formulation.solve(SolveOptions(solver="exact"), SolveMonitor(on_progress=told.append))
    assert told
    for progress in told:
        assert progress.incumbent is not None
        assert violations(formulation.problem, progress.incumbent) == ()
        assert progress.bound is not None
        assert result.objective is not None
        assert progress.bound <= result.objective + 1e-9
    assert told[-1].objective == result.objective


@pytest.mark.parametrize(("parameters", "kind"), KINDS)
def test_too_few_nodes_are_infeasible_and_the_names_say_why(
    parameters: ArnoldParameters, kind: type[PlacementFormulation]
) -> None:
    _, formulation = formulated(fabric((3, 2)), 3, 2, parameters)
    assert isinstance(formulation, kind)
    result = formulation.solve(SolveOptions(solver="exact"), SolveMonitor())
    assert result.termination is TerminationReason.INFEASIBLE
    assert formulation.warm_start is None
    conflicts = formulation.conflicts(5.0)
    assert conflicts
    assert len(conflicts) == len(conflicting_rows(formulation.named(), 5.0))
    assert set(conflicts) <= set(formulation.named().row_names)
    _, roomy = formulated(fabric((3, 3)), 3, 2, parameters)
    assert roomy.conflicts(5.0) == ()


def test_a_cancelled_search_returns_what_it_has() -> None:
    canceled = threading.Event()
    canceled.set()
    _, formulation = formulated(fabric((31, 30, 24, 22, 12)), 12, 8, EQ2)
    result = formulation.solve(SolveOptions(solver="exact"), SolveMonitor(canceled=canceled))
    assert (result.termination, result.limit) == (TerminationReason.FEASIBLE, Limit.INTERRUPTED)
    assert result.bound is not None
    assert result.objective is not None
    assert result.bound < result.objective


def test_a_gap_that_is_wide_enough_counts_as_optimal() -> None:
    canceled = threading.Event()
    canceled.set()
    _, formulation = formulated(fabric((31, 30, 24, 22, 12)), 12, 8, EQ2)
    options = SolveOptions(solver="exact", relative_gap=1.0)
    assert formulation.solve(options, SolveMonitor(canceled=canceled)).termination is TerminationReason.OPTIMAL


@pytest.mark.parametrize("solver", ["exact", "auto", "highs"])
def test_no_jobs_are_an_empty_plan(solver: str) -> None:
    snapshot = Snapshot(cluster=fabric((4,)), jobs=())
    formulation = formulate_arnold(snapshot, ArnoldParameters(), PhaseClock())
    result = formulation.solve(SolveOptions(solver=solver), SolveMonitor())
    assert (result.termination, result.objective) == (TerminationReason.OPTIMAL, 0)


def test_eq_2_rearranges_what_eq_4_leaves_to_chance() -> None:
    """Six minipods of 4 nodes, 4 rows of 6: columns on 2 and rows on 3 (drawn in `test_true_spread`)."""
    cluster = fabric((4,) * 6)
    _, eq4 = formulated(cluster, 4, 6, ArnoldParameters(alpha=0.5))
    _, _, before = planned(eq4)
    _, eq2 = formulated(cluster, 4, 6, EQ2)
    result, plan, after = planned(eq2)
    assert result.objective == pytest.approx(2.5)
    assert after.objective_eq2 == pytest.approx(2.5)
    assert after.objective_eq2 < before.objective_eq2
    assert {term.term: term.value for term in plan.score} == pytest.approx(
        {"dp_distance": 0.5 * after.distance.dp, "pp_distance": 0.5 * after.distance.pp}
    )


def test_leaves_are_respected_when_they_weigh() -> None:
    """Minipod A has leaves of 3 nodes, B of 4. Rows of 4 are cut in A, whole in B; without weights A comes first."""
    nodes = [
        replace(node, path=(node.path[0], f"leaf{int(node.id[2:]) // (3 if node.id[0] == 'A' else 4)}"))
        for node in fabric({"A": 9, "B": 8}).nodes
    ]
    cluster = replace(fabric({"A": 9, "B": 8}), nodes=tuple(nodes))
    _, plain = formulated(cluster, 2, 4, ArnoldParameters(alpha=0.3))
    assert {label for row in planned(plain)[2].minipods for label in row} == {"A"}
    _, weighted = formulated(cluster, 2, 4, TIERS)
    result, plan, placement = planned(weighted)
    assert {label for row in placement.minipods for label in row} == {"B"}
    assert [len({int(node[2:]) // 4 for node in row}) for row in placement.cells] == [1, 1]
    assert result.objective == pytest.approx(0.3 + 0.7 + 0.5 * (0.3 * 2 + 0.7))
    assert [term.term for term in plan.score] == ["dp_minipod", "pp_spread_minipod", "dp_leaf", "pp_spread_leaf"]


def test_the_weight_of_one_tier_is_eq_4_there() -> None:
    cluster = fabric((5, 4, 4), nodes_per_leaf=2)
    for tier in ("minipod", "leaf"):
        _, plain = formulated(cluster, 4, 3, ArnoldParameters(alpha=0.3, minipod_tier=tier))
        weighted = ArnoldParameters(alpha=0.3, tier_weights=MappingProxyType({tier: 1.0}))
        _, other = formulated(cluster, 4, 3, weighted)
        assert planned(other)[0].objective == pytest.approx(planned(plain)[0].objective)


@pytest.mark.parametrize("solver", ["exact", "highs"])
@pytest.mark.parametrize("objective", SpreadObjective)
def test_spare_nodes_are_kept_in_every_minipod_used(solver: str, objective: SpreadObjective) -> None:
    """Six nodes on A with 7 and B with 6: with one spare A still holds the job, with two both are needed."""
    chosen = []
    for num in (0, 1, 2):
        parameters = ArnoldParameters(alpha=0.3, spare_nodes_per_minipod=num, spread_objective=objective)
        _, formulation = formulated(fabric({"A": 7, "B": 6, "C": 2}), 3, 2, parameters)
        _, _, placement = planned(formulation, solver)
        used = sorted({label for row in placement.minipods for label in row})
        assert sorted(node[0] for node in placement.spares) == sorted(used * num)
        assert not set(placement.spares) & set(placement.hosts)
        chosen.append(used)
    assert chosen[1:] == [["A"], ["A", "B"]]


def test_spare_nodes_that_are_missing_are_counted() -> None:
    parameters = ArnoldParameters(alpha=0.3, spare_nodes_per_minipod=3)
    snapshot, formulation = formulated(fabric({"A": 7, "B": 6}), 4, 2, parameters)
    result = formulation.solve(SolveOptions(solver="exact"), SolveMonitor())
    assert result.termination is TerminationReason.INFEASIBLE
    (issue,) = policy_issues(snapshot, parameters)
    assert issue.code == "not_enough_nodes"
    assert "7 are free beyond 3 spare ones per minipod (A: 4, B: 3)" in issue.detail
    (job,) = formulation.unplaced()
    assert f"{job.detail}; {job.remedy}" == issue.detail
    assert job.counts == {"needed_nodes": 8, "free_nodes": 7}


def spoiled(change: Callable[[PretrainingPlacement], PretrainingPlacement]) -> set[str]:
    """Codes that the check finds in a plan with one spare node in A and in B, after `change`."""
    parameters = ArnoldParameters(alpha=0.3, spare_nodes_per_minipod=1)
    cluster = fabric({"A": 5, "B": 4}, busy={"B": 1})
    snapshot, formulation = formulated(cluster, 3, 2, parameters)
    result, plan, placement = planned(formulation)
    assert result.objective is not None
    assert placement.spares == ("A-4", "B-2")
    assert plan_violations(snapshot, plan, "minipod", result.objective, parameters) == []
    other = replace(plan, pretraining=change(placement))
    return {issue.code for issue in plan_violations(snapshot, other, "minipod", result.objective, parameters)}


@pytest.mark.parametrize(
    ("spares", "code"),
    [
        (("A-4",), "wrong_spares"),
        (("A-4", "B-2", "B-3"), "wrong_spares"),
        (("A-4", "A-4"), "wrong_spare"),
        (("A-0", "B-2"), "wrong_spare"),
        (("A-4", "B-4"), "wrong_spare"),
        (("A-4", "Z-9"), "unknown_node"),
    ],
)
def test_wrong_spares_are_found(spares: tuple[str, ...], code: str) -> None:
    assert code in spoiled(lambda placement: replace(placement, spares=spares))


def test_spares_that_nobody_asked_for_are_found() -> None:
    _, formulation = formulated(fabric({"A": 7}), 3, 2, ArnoldParameters(alpha=0.3))
    result, plan, placement = planned(formulation)
    assert result.objective is not None
    other = replace(plan, pretraining=replace(placement, spares=("A-6",)))
    assert [issue.code for issue in formulation.violations(other, result.objective)] == ["wrong_spares"]


@pytest.mark.parametrize("parameters", [EQ2, TIERS])
def test_a_score_of_another_objective_is_found(parameters: ArnoldParameters) -> None:
    cluster = fabric((4,) * 6, nodes_per_leaf=2)
    snapshot, formulation = formulated(cluster, 4, 6, parameters)
    result, plan, _ = planned(formulation)
    assert result.objective is not None
    eq4 = ArnoldParameters(alpha=parameters.alpha)
    assert "wrong_score" in {issue.code for issue in plan_violations(snapshot, plan, "minipod", 9.0, eq4)}
    found = formulation.violations(plan, result.objective - 0.1)
    assert [issue.code for issue in found] == ["objective_mismatch"]


def test_tier_names_must_exist() -> None:
    parameters = ArnoldParameters(alpha=0.3, tier_weights=MappingProxyType({"minipod": 1.0, "rail/x": 1.0}))
    snapshot = Snapshot(cluster=fabric((4,)), jobs=(pretraining(2, 2),))
    (issue,) = policy_issues(snapshot, parameters)
    assert (issue.code, issue.pointer) == ("unknown_tier", "/parameters/tier_weights/rail~1x")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"spare_nodes_per_minipod": -1}, "must be at least 0"),
        ({"tier_weights": {"leaf": -1.0}}, "finite and at least 0"),
        ({"tier_weights": {"leaf": float("nan")}}, "finite and at least 0"),
        ({"tier_weights": {"leaf": 0.0}}, "no weight above 0"),
        ({"tier_weights": {}}, "no weight above 0"),
        ({"tier_weights": {"leaf": 1.0}, "spread_objective": SpreadObjective.EQ2}, "belong to spread_objective eq4"),
        ({"tier_weights": {"leaf": 1.0}, "spare_nodes_per_minipod": 1}, "cannot be combined"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(wrong: dict[str, object], text: str) -> None:
    with pytest.raises(InputError, match=text):
        ArnoldParameters(**wrong)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.slow
@given(
    free=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    drained=st.integers(0, 3),
    rows=st.integers(1, 5),
    columns=st.integers(1, 5),
    spares=st.integers(0, 2),
    seed=st.integers(0, 100),
)
@settings(max_examples=12, deadline=None)
def test_plans_pass_the_check_and_seeds_repeat(
    free: list[int], drained: int, rows: int, columns: int, spares: int, seed: int
) -> None:
    cluster = fabric(free, nodes_per_leaf=3, busy={"m0": drained})
    rng = np.random.default_rng(seed)
    nodes = [replace(node, state=NodeState.UP if rng.random() < 0.9 else NodeState.DRAINED) for node in cluster.nodes]
    cluster = replace(cluster, nodes=tuple(nodes))
    for parameters in (
        ArnoldParameters(alpha=0.3, spare_nodes_per_minipod=spares),
        ArnoldParameters(alpha=0.5, spare_nodes_per_minipod=spares, spread_objective=SpreadObjective.EQ2),
        TIERS,
    ):
        plans = []
        for _ in range(2):
            _, formulation = formulated(cluster, rows, columns, parameters)
            result = formulation.solve(SolveOptions(solver="exact", seed=seed, time_limit_s=20), SolveMonitor())
            if result.incumbent is None:
                assert result.termination is TerminationReason.INFEASIBLE
                continue
            assert result.objective is not None
            plan = formulation.extract(result.incumbent, PhaseClock())
            assert formulation.violations(plan, result.objective) == []
            plans.append(plan)
        assert not plans or plans[0] == plans[1]
