import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.placement.arnold.instance import ArnoldInstance
from models.placement.arnold.paper.formulation import arnold_model
from models.placement.arnold.parameters import SchedulingUnit
from solver.compilers.pyomo import compile_pyomo
from solver.options import SolveOptions
from solver.result import SolveResult, TerminationReason
from solver.solve import solve
from tests.models.placement.arnold.scenes import best_by_search, instance, tiny_instances

SOLVERS = ("highs", "scip")


def optimum(data: ArnoldInstance, solver: str, *, strengthen: bool = False) -> SolveResult:
    problem = compile_pyomo(arnold_model(data, strengthen=strengthen)).problem
    return solve(problem, SolveOptions(solver=solver, time_limit_s=20, relative_gap=0.0))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("strengthen", [False, True])
@given(data=tiny_instances())
@settings(max_examples=8, deadline=None)
def test_the_mip_finds_the_best_split(solver: str, strengthen: bool, data: ArnoldInstance) -> None:
    """Fractional shares do not beat whole nodes, and the rows of ours change no optimum."""
    result = optimum(data, solver, strengthen=strengthen)
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective == pytest.approx(best_by_search(data), abs=1e-6)
    assert result.bound == pytest.approx(result.objective, abs=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("strengthen", [False, True])
@given(data=tiny_instances(feasible=False))
@settings(max_examples=6, deadline=None)
def test_infeasible_exactly_when_nodes_are_missing(solver: str, strengthen: bool, data: ArnoldInstance) -> None:
    result = optimum(data, solver, strengthen=strengthen)
    assert (result.termination is TerminationReason.INFEASIBLE) == (not data.has_room)
    assert (best_by_search(data) is None) == (not data.has_room)


@given(data=tiny_instances(), extra=st.integers(1, 3), where=st.integers(0, 2))
@settings(max_examples=10, deadline=None)
def test_more_free_nodes_never_hurt(data: ArnoldInstance, extra: int, where: int) -> None:
    free = data.free_nodes.tolist()
    free[where % len(free)] += extra
    more = ArnoldInstance(
        num_groups=data.num_groups,
        group_size=data.group_size,
        minipods=data.minipods,
        free_nodes=np.array(free),
        minipod_weight=data.minipod_weight,
        spread_weight=data.spread_weight,
    )
    before, after = optimum(data, "highs").objective, optimum(more, "highs").objective
    assert before is not None
    assert after is not None
    assert after <= before + 1e-6


def test_the_default_is_the_papers_form_and_nothing_else() -> None:
    problem = compile_pyomo(arnold_model(instance(2, 3, (4, 5), 0.3))).problem
    assert problem.row_names == (
        *("max_spread[0]", "max_spread[1]"),
        *("capacity[m0]", "capacity[m1]"),
        *("allocation[0]", "allocation[1]"),
        *("selection[0,m0]", "selection[0,m1]", "selection[1,m0]", "selection[1,m1]"),
    )
    columns = dict(zip(problem.column_names, range(problem.num_columns), strict=True))
    assert problem.objective[columns["y[m1]"]] == 0.3
    assert problem.objective[columns["T"]] == 0.7
    # Eq. 6 in nodes: 3 p_0j + 3 p_1j <= 4 y_j.
    row = problem.matrix.toarray()[problem.row_names.index("capacity[m0]")]
    assert {name: row[k] for name, k in columns.items() if row[k]} == {"y[m0]": -4, "p[0,m0]": 3, "p[1,m0]": 3}
    integral = {name for name, k in columns.items() if problem.integrality[k]}
    assert integral == {name for name in columns if not name.startswith("p")}


def test_rows_of_ours_come_only_on_request() -> None:
    problem = compile_pyomo(arnold_model(instance(2, 6, (4, 5, 5), 0.3), strengthen=True)).problem
    assert problem.row_names[-3:] == ("cover", "least_spread", "large_pieces")
    columns = dict(zip(problem.column_names, range(problem.num_columns), strict=True))
    # t = ceil(6/5) = 2; pieces of ceil(6/2) = 3: one in each minipod. 2 (T - 2) + y_0 + y_1 + y_2 >= 2.
    row = problem.matrix.toarray()[-1]
    assert {name: row[k] for name, k in columns.items() if row[k]} == {"y[m0]": 1, "y[m1]": 1, "y[m2]": 1, "T": 2}
    assert problem.row_lower[-1] == 2 + 2 * 2


def test_dp_groups_as_units_swap_the_weights() -> None:
    # Four nodes are free in m0, two each in m1 and m2; two groups of three.
    rows = instance(2, 3, (4, 2, 2), 0.2, SchedulingUnit.PP)
    columns = instance(2, 3, (4, 2, 2), 0.2, SchedulingUnit.DP)
    assert (rows.minipod_weight, rows.spread_weight) == (0.2, 0.8)
    assert (columns.minipod_weight, columns.spread_weight) == (0.8, 0.2)
    # Y = 2, T = 2 (m0 takes one group and one node, m1 two nodes) is optimal for both.
    assert optimum(rows, "highs").objective == pytest.approx(0.2 * 2 + 0.8 * 2)
    assert optimum(columns, "highs").objective == pytest.approx(0.8 * 2 + 0.2 * 2)
