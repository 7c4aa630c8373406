"""Write a problem as free MPS or CPLEX LP, for other solvers and for people.

HiGHS writes both. It replaces all names by numbers when one of them does not suit the format, so names are made
suitable first: `x[job,3]` becomes `x(job.3)` in LP. Numbers have fifteen digits.
"""

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import highspy

from solver.backends.highs import load
from solver.names import column_name, row_name, unique
from solver.preparation import integer_bounds
from solver.problem import MatrixProblem
from stowplan.errors import BackendError

_MAX_NAME_LENGTH = 200
# Words that begin something else in LP files, in any case.
_LP_WORDS = re.compile(
    r"free|inf(inity)?|min(imi[sz]e|imum)?|max(imi[sz]e|imum)?|st|s\.t\.?|subject|such|that|to|bounds?"
    r"|gen(erals?)?|int(egers?)?|bin(ary|aries)?|semi(s|-continuous)?|sos[12]?|end",
    re.IGNORECASE,
)


def write_mps(problem: MatrixProblem) -> str:
    """Return `problem` as a free-format MPS file."""
    return _write(problem, ".mps", _mps_name)


def write_lp(problem: MatrixProblem) -> str:
    """Return `problem` as a CPLEX LP file. Ranged rows become two rows `<name>lo` and `<name>up`."""
    return _write(problem, ".lp", _lp_name)


def _write(problem: MatrixProblem, suffix: str, suitable: Callable[[str], str]) -> str:
    # Readers refuse fractional bounds of integers.
    lower, upper = integer_bounds(problem)
    highs = load(replace(problem, lower=lower, upper=upper))
    columns = _names([column_name(problem, j) for j in range(problem.num_columns)], suitable)
    rows = _names([row_name(problem, i) for i in range(problem.num_rows)], suitable)
    for j, name in enumerate(columns):
        highs.passColName(j, name)
    for i, name in enumerate(rows):
        highs.passRowName(i, name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"model{suffix}")
        if highs.writeModel(str(path)) == highspy.HighsStatus.kError:
            raise BackendError(f"HiGHS could not write {problem.name} as {suffix}")
        return path.read_text()


def _names(names: Sequence[str], suitable: Callable[[str], str]) -> tuple[str, ...]:
    return unique(suitable(name)[:_MAX_NAME_LENGTH] for name in names)


def _mps_name(name: str) -> str:
    return re.sub(r"\s", "_", name) or "_"


def _lp_name(name: str) -> str:
    """LP allows few characters and no name that could be read as a number, an operator or a section."""
    readable = re.sub(r"[^A-Za-z0-9_.()]", "_", name.translate(str.maketrans("[],", "().")))
    begins_well = re.match(r"[A-DF-Za-df-z_]", readable) and not _LP_WORDS.fullmatch(readable)
    return readable if begins_well else f"_{readable}"
