"""Write a problem as free MPS, for other solvers and for people.

HiGHS writes it. It replaces all names by numbers when one of them does not suit the format, so names are made
suitable first: no blanks. Numbers have fifteen digits.
"""

import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import highspy

from solver.backends.highs import load
from solver.names import column_name, row_name, unique
from solver.preparation import integer_bounds
from solver.problem import MatrixProblem
from stowplan.errors import BackendError

_MAX_NAME_LENGTH = 200


def write_mps(problem: MatrixProblem) -> str:
    """Return `problem` as a free-format MPS file."""
    # Readers refuse fractional bounds of integers.
    lower, upper = integer_bounds(problem)
    highs = load(replace(problem, lower=lower, upper=upper))
    columns = _names([column_name(problem, j) for j in range(problem.num_columns)])
    rows = _names([row_name(problem, i) for i in range(problem.num_rows)])
    for j, name in enumerate(columns):
        highs.passColName(j, name)
    for i, name in enumerate(rows):
        highs.passRowName(i, name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.mps")
        if highs.writeModel(str(path)) == highspy.HighsStatus.kError:
            raise BackendError(f"HiGHS could not write {problem.name} as MPS")
        return path.read_text()


def _names(names: Sequence[str]) -> tuple[str, ...]:
    return unique((re.sub(r"\s", "_", name) or "_")[:_MAX_NAME_LENGTH] for name in names)
