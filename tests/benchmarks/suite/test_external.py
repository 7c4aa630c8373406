"""GLPK and CBC: what they print is read right. They need not be installed; the outputs are theirs, shortened."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.suite.external import EXTERNAL_SOLVERS, for_export, plan_externally, read_cbc, read_glpk
from benchmarks.suite.registry import find_case
from models.allocation.sia.formulation import formulate_sia
from models.allocation.sia.parameters import SiaParameters
from models.clock import PhaseClock
from models.plan import PlanRequest
from models.planning import plan
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.solve import solve
from stowplan.errors import UnverifiedPlanError

GLPK_OPTIMAL = """c Problem:
s mip 2 3 o -13.5
i 1 1
i 2 1
j 1 1
j 2 0
j 3 2.5
e o f
"""
CBC_OPTIMAL = """Result - Optimal solution found

Objective value:                -13.50000000
Enumerated nodes:               0
"""
CBC_WITHIN_GAP = """Result - Optimal solution found (within gap tolerance)

Objective value:                -833.94367569
Lower bound:                    -833.947
Gap:                            0.00
"""
CBC_STOPPED = """Result - Stopped on time limit

Objective value:                25.00000000
Lower bound:                    20.000
Gap:                            0.25
"""
CBC_SOLUTION = """Optimal - objective value -13.50000000
      0 column_0                 1             -0.59853167
**    2 column_2               2.5              -1.5030884
"""


def request(solver: str) -> PlanRequest:
    made = find_case("sia/waiting/64x20x3").request(0)
    return replace(made, options=SolveOptions(solver=solver, relative_gap=0.0, time_limit_s=20.0))


def test_glpk_optimal() -> None:
    answer = read_glpk("+ 126: mip = -1.35e+01 >=     tree is empty   0.0% (0; 21)", GLPK_OPTIMAL, 3)
    assert answer.x is not None
    assert answer.x.tolist() == [1.0, 0.0, 2.5]
    assert answer.bound == -13.5


def test_glpk_within_the_gap_keeps_the_printed_bound() -> None:
    output = (
        "+  2800: mip =     not found yet >=              -inf        (1; 0)\n"
        "+  2812: >>>>>  -8.339465588e+02 >=  -8.339485552e+02 < 0.1% (4; 0)\n"
        "+  2812: mip =  -8.339465588e+02 >=  -8.339485552e+02 < 0.1% (1; 5)\n"
    )
    answer = read_glpk(output, GLPK_OPTIMAL.replace(" o ", " f "), 3)
    assert answer.x is not None
    assert answer.bound == -833.9485552


def test_glpk_without_a_solution() -> None:
    output = (
        "+   300: mip =     not found yet >=   2.000000000e+00        (3; 0)\nTIME LIMIT EXCEEDED; SEARCH TERMINATED"
    )
    answer = read_glpk(output, "s mip 2 3 u 0", 3)
    assert (answer.x, answer.bound, answer.is_infeasible) == (None, 2.0, False)
    assert read_glpk("PROBLEM HAS NO PRIMAL FEASIBLE SOLUTION", "", 3).is_infeasible
    killed = read_glpk("", "", 3)
    assert (killed.x, killed.bound, killed.is_infeasible) == (None, None, False)


def test_cbc() -> None:
    answer = read_cbc(CBC_OPTIMAL, CBC_SOLUTION, 3)
    assert answer.x is not None
    assert answer.x.tolist() == [1.0, 0.0, 2.5]
    assert answer.bound == pytest.approx(-13.5, rel=2e-6)
    within = read_cbc(CBC_WITHIN_GAP, CBC_SOLUTION, 3)
    assert within.bound == pytest.approx(-833.947, rel=2e-6)
    assert within.bound is not None
    assert within.bound < -833.947
    stopped = read_cbc(CBC_STOPPED, CBC_SOLUTION.replace("Optimal", "Stopped on time"), 3)
    assert stopped.bound == pytest.approx(20.0, rel=2e-6)


def test_cbc_without_a_solution() -> None:
    assert read_cbc("Result - Problem proven infeasible\n", "Infeasible - objective value 0\n", 3).is_infeasible
    nothing = read_cbc("Result - Stopped on time limit\n\nNo feasible solution found\nLower bound: 3.5\n", "", 3)
    assert nothing.x is None
    assert nothing.bound == pytest.approx(3.5, rel=2e-6)


@pytest.mark.parametrize("power", [-0.5, 0.5])
def test_the_exported_problem_has_the_same_optimum_minimised(power: float) -> None:
    """Also where the original maximises: the constant is the cost of a column that is fixed to 1."""
    made = request("highs")
    problem = formulate_sia(made.snapshot, SiaParameters(fairness_power=power), PhaseClock()).problem
    exported = for_export(problem)
    assert exported.offset == 0
    one, other = (solve(p, made.options) for p in (problem, exported))
    assert one.objective is not None
    assert other.objective == pytest.approx(problem.sense.sign * one.objective)
    assert other.incumbent is not None
    assert problem.value(other.incumbent[:-1]) == pytest.approx(one.objective)


@pytest.mark.parametrize("name", sorted(EXTERNAL_SOLVERS))
def test_external_solvers_agree_or_say_that_they_are_missing(name: str) -> None:
    run = plan_externally(request(name), SolveMonitor())
    if shutil.which(EXTERNAL_SOLVERS[name].program) is None:
        assert run.outcome is None
        assert run.failure is not None
        assert run.failure.code == "not_installed"
        return
    ours = plan(request("highs"))
    assert run.outcome is not None
    assert run.outcome.termination == "optimal"
    assert run.outcome.objective == pytest.approx(ours.objective)
    assert list(run.outcome.times.phase_cpu_s)[-3:] == ["solve", "place", "verify"]


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Put a shell script in the place of glpsol; `$solution` is the file that it should write."""

    def pretend(script: str) -> None:
        program = tmp_path / "glpsol"
        program.write_text(f"#!/bin/sh\nfor solution; do :; done\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return pretend


def test_an_infeasible_point_is_not_believed(pretended: Callable[[str], None]) -> None:
    """Every job in all its configurations."""
    pretended('(echo s mip 21 150 o 0; seq 150 | sed "s/.*/j & 1/") > "$solution"')
    with pytest.raises(UnverifiedPlanError, match="infeasible point"):
        plan_externally(request("glpk"), SolveMonitor())


def test_an_external_solver_that_does_not_stop_is_killed(
    pretended: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended("exec sleep 60")
    monkeypatch.setattr("benchmarks.suite.external._GRACE_S", 0.0)
    made = request("glpk")
    run = plan_externally(replace(made, options=replace(made.options, time_limit_s=0.2)), SolveMonitor())
    assert run.outcome is not None
    assert (run.outcome.termination, run.outcome.limit) == ("no_solution_found", "deadline")
    assert 0.2 <= run.outcome.times.wall_s["solve"] < 10
