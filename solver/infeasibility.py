"""Why is there no solution: rows and bounds of an irreducible infeasible subset.

Bounds that a caller sets (a column fixed at 1, x >= 3) take part like rows. Natural domains do not: [0, 1] of a
binary column and the lower bound 0 belong to the variable.
"""

import time
from dataclasses import replace

import numpy as np
from scipy import sparse

from solver.backends import scip
from solver.names import column_name, row_name
from solver.preparation import prepare
from solver.problem import MatrixProblem


def conflicting_rows(problem: MatrixProblem, time_limit_s: float) -> tuple[str, ...]:
    """Name rows and bounds that cannot hold together, none of which can be left out.

    Rows come in their order, then bounds as `x = 1`, `x >= 3`, `x <= 7`, or `bounds of x` where they exclude each
    other. One of possibly many subsets. Empty when none is found in time or the problem is feasible.
    """
    started = time.monotonic()
    conflicts = prepare(problem).conflicts
    if conflicts:
        return conflicts[:1]
    widened, names = _bounds_as_rows(replace(problem, objective=np.zeros(problem.num_columns), offset=0.0))
    # Rows are scaled after the bounds became rows, so that positions stay those of `names`.
    model, _ = scip.load(prepare(widened).problem)
    remaining_s = max(0.0, time_limit_s - (time.monotonic() - started))
    settings = {
        "limits/time": remaining_s,
        "iis/time": remaining_s,
        "iis/silent": True,
        "iis/irreducible": True,
        "iis/stopafterone": False,
    }
    for name, value in settings.items():
        model.setParam(name, value)
    subset = model.generateIIS()
    if not (subset.isSubscipInfeasible() and subset.isSubscipIrreducible()):
        return ()
    members = {constraint.name for constraint in subset.getSubscip().getConss()}
    return tuple(name for i, name in enumerate(names) if f"r{i}" in members)


def _bounds_as_rows(problem: MatrixProblem) -> tuple[MatrixProblem, tuple[str, ...]]:
    """Move bounds that are no natural domain into rows; returns the names of all rows as well."""
    lower, upper = problem.lower, problem.upper
    binary = problem.integrality & (lower >= 0.0) & (upper <= 1.0)
    free_lower = np.where(binary | (lower >= 0.0), 0.0, -np.inf)
    free_upper = np.where(binary, 1.0, np.inf)
    moved_lower = np.isfinite(lower) & (lower != free_lower)
    moved_upper = np.isfinite(upper) & (upper != free_upper)
    names = [row_name(problem, i) for i in range(problem.num_rows)]
    columns, row_lower, row_upper = [], [], []
    for j in np.flatnonzero(moved_lower | moved_upper).tolist():
        name = column_name(problem, j)
        if lower[j] == upper[j]:
            sides = [(f"{name} = {lower[j]:g}", lower[j], upper[j])]
        else:
            sides = [(f"{name} >= {lower[j]:g}", lower[j], np.inf)] if moved_lower[j] else []
            sides += [(f"{name} <= {upper[j]:g}", -np.inf, upper[j])] if moved_upper[j] else []
        for text, low, high in sides:
            names.append(text)
            columns.append(j)
            row_lower.append(low)
            row_upper.append(high)
    added = sparse.csr_array(
        (np.ones(len(columns)), (np.arange(len(columns)), np.array(columns, dtype=np.int64))),
        shape=(len(columns), problem.num_columns),
    )
    widened = replace(
        problem,
        matrix=sparse.csc_array(sparse.vstack([problem.matrix, added])),
        row_lower=np.concatenate([problem.row_lower, row_lower]),
        row_upper=np.concatenate([problem.row_upper, row_upper]),
        lower=free_lower,
        upper=free_upper,
        row_names=tuple(names),
    )
    return widened, tuple(names)
