"""The linear relaxation of a small choice problem by simplex: the same prices as the dual's maximum, and sooner.

Few columns are a matter of a few hundred pivots; the smoothed dual takes as many steps for few classes as for many. Of
many columns a core is enough: its prices are those of the whole where no column beside it pays at them, and what they
prove of the whole is computed over all columns in any case.
"""

from dataclasses import replace

import highspy
import numpy as np

from solver.backends.highs import load
from solver.decomposition.core import Core, whole_core
from solver.decomposition.dual import DualPoint, reduced_costs
from solver.decomposition.structure import ChoiceProblem


def solve_relaxation(problem: ChoiceProblem, time_limit_s: float, core: Core | None = None) -> DualPoint | None:
    """Prices and fractions at the optimum of the relaxation, of a core where one is given; None where there is none, or
    not in time.

    The bound is L at these prices, computed here, of the whole problem.
    """
    core = core or whole_core(problem)
    columns = core.columns.size
    if not columns:
        return None
    highs = load(replace(core.mip(), integrality=np.zeros(columns, dtype=np.bool_)))
    # Presolving takes longer than it saves.
    for name, value in (("threads", 1), ("time_limit", time_limit_s), ("presolve", "off"), ("solver", "simplex")):
        highs.setOptionValue(name, value)
    highspy.Highs.resetGlobalScheduler(True)
    highs.run()
    if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    solution = highs.getSolution()
    multipliers = np.maximum(0.0, -np.array(solution.row_dual[-problem.limit.size :]))
    counts = core.fixed.astype(np.float64)
    counts[core.columns] += np.array(solution.col_value)
    return DualPoint(
        multipliers=multipliers,
        bound=reduced_costs(problem, multipliers).bound,
        fraction=np.clip(counts / problem.copies[problem.class_of], 0.0, 1.0),
        temperature=0.0,
        num_evaluations=1,
    )
