"""What is written can be read back, by another solver as well, and has the same optimum."""

from dataclasses import replace
from pathlib import Path

import highspy
import numpy as np
import pyscipopt
import pytest

from solver.export import write_mps
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import TerminationReason
from solver.sense import Sense
from solver.solve import solve
from tests.solver.instances import GOLDEN, INF, problem

OPTIMAL = [
    golden for golden in GOLDEN if golden.termination is TerminationReason.OPTIMAL and golden.problem.num_columns
]
NAMED = replace(
    problem(
        [[1, 1, 0, 0, 0, 0], [1.1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0]],
        [-INF, -1, -5, 2],
        [1, 2, 6, 2],
        [1, 2, 3, 0, 0, 1 / 3],
        lower=[0, 0, -INF, -2, 0, -INF],
        upper=[1, 1, INF, INF, 3, -1],
        integer=[True, True, False, True, True, False],
        sense=Sense.MAXIMIZE,
        offset=7.25,
    ),
    column_names=("x[job 1,(1, 4, 'B')]", "x[job 1,(1, 4, 'A')]", "free", "e1", "3x", "x[é]"),
    row_names=("capacity[A]", "capacity[B]", "capacity B", "capacity_B"),
)


def read_with_highs(path: Path) -> tuple[float, highspy.Highs]:
    highs = highspy.Highs()
    highs.silent()
    assert highs.readModel(str(path)) == highspy.HighsStatus.kOk
    highspy.Highs.resetGlobalScheduler(True)
    highs.run()
    assert highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return highs.getInfo().objective_function_value, highs


def read_with_scip(path: Path) -> float:
    model = pyscipopt.Model()
    model.hideOutput()
    model.readProblem(str(path))
    model.optimize()
    assert model.getStatus() == "optimal"
    return float(model.getObjVal())


@pytest.mark.parametrize("instance", [*(golden.problem for golden in OPTIMAL), NAMED])
def test_round_trip(instance: MatrixProblem, tmp_path: Path) -> None:
    path = tmp_path / "model.mps"
    path.write_text(write_mps(instance))
    optimum = solve(instance, SolveOptions(relative_gap=0.0)).objective
    assert read_with_highs(path)[0] == pytest.approx(optimum)
    assert read_with_scip(path) == pytest.approx(optimum)


def test_names_survive(tmp_path: Path) -> None:
    path = tmp_path / "model.mps"
    text = write_mps(NAMED)
    path.write_text(text)
    lp = read_with_highs(path)[1].getLp()
    assert len(set(lp.col_names_)) == NAMED.num_columns
    assert not any(name.startswith("c0") for name in lp.col_names_)
    for word in ("job", "capacity", "free", "3x"):
        assert word in text


def test_mps_keeps_names_but_for_blanks() -> None:
    text = write_mps(NAMED)
    assert "x[job_1,(1,_4,_'B')]" in text
    assert "capacity_B~2" in text


def test_unnamed_problems_are_numbered() -> None:
    assert "column_1" in write_mps(problem([[1, 1]], [0], [1], np.ones(2), named=False))


def test_an_empty_problem_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "model.mps"
    path.write_text(write_mps(problem([], [], [], [], offset=7)))
    assert highspy.Highs().readModel(str(path)) == highspy.HighsStatus.kOk
