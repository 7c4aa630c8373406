"""Stage partition and GPU assignment of a pipeline as a mixed-integer program, to bound the grid's heuristic.

Sets
  i         operators 0..O-1, in order
  (a,b,g)   stages: operators a..b-1 on g GPUs, 0 <= a < b <= O, g a size that a stage may have (`partition`)
Data
  L_ab      load of operators a..b-1 in seconds (Arena Eq. 2)
  s, n      stages and GPUs
Variables
  x_abg     the pipeline has this stage, binary
  T         time of the slowest stage in seconds per sample, >= 0

  minimise    T
  s.t.        start:      sum_{b,g} x_0bg = 1
              chain[k]:   sum_{a,g} x_akg = sum_{b,g} x_kbg                  for all 0 < k < O
              stages:     sum x_abg = s
              gpus:       sum g x_abg = n
              slowest[i]: sum_{a <= i < b, g} (L_ab / g) x_abg <= T          for all i

The stages are a path from 0 to O, so that exactly one covers an operator: `slowest` sums over all that could, which is
as strong as a row for each and closer to the hull. Communication and memory are not part of it: it bounds how even the
loads can be, which is what the computation bias (Eq. 3) stands for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyomo.environ as pyo

from models.parallelism.grid.partition import stage_sizes
from solver.compilers.pyomo import compile_pyomo
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.solve import solve
from stowplan.arrays import FloatArray
from stowplan.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOptimum:
    """What the solver proved. `bounds` (s + 1 operators), `sizes` (GPUs) and `bottleneck_s` None without a solution;
    `bound_s`: no partition has a faster slowest stage, None when nothing is proven."""

    termination: TerminationReason
    bounds: tuple[int, ...] | None
    sizes: tuple[int, ...] | None
    bottleneck_s: float | None
    bound_s: float | None

    def gap(self, bottleneck_s: float) -> float | None:
        """Relative gap of a partition with this slowest stage, (bottleneck - bound) / bottleneck."""
        return None if self.bound_s is None else max(0.0, 1.0 - self.bound_s / bottleneck_s)


def partition_model(loads: FloatArray, num_gpus: int, num_stages: int) -> pyo.ConcreteModel:
    """Declare the model for operators of `loads` (O,)."""
    count = len(loads)
    running = np.concatenate([[0.0], np.cumsum(loads)]).tolist()
    stages = [
        (a, b, g)
        for a in range(count)
        for b in range(a + 1, count + 1)
        for g in stage_sizes(num_gpus)
        if g <= num_gpus - num_stages + 1
    ]
    model = pyo.ConcreteModel("partition")
    model.stage = pyo.Set(initialize=stages, dimen=3, doc="(first, end, GPUs)")
    model.x = pyo.Var(model.stage, domain=pyo.Binary)
    model.T = pyo.Var(domain=pyo.NonNegativeReals)
    model.objective = pyo.Objective(expr=model.T)

    model.start = pyo.Constraint(expr=pyo.quicksum(model.x[key] for key in stages if key[0] == 0) == 1)
    model.chain = pyo.Constraint(
        range(1, count),
        rule=lambda m, k: (
            pyo.quicksum(m.x[key] for key in stages if key[1] == k)
            == pyo.quicksum(m.x[key] for key in stages if key[0] == k)
        ),
    )
    model.stages = pyo.Constraint(expr=pyo.quicksum(model.x.values()) == num_stages)
    model.gpus = pyo.Constraint(expr=pyo.quicksum(key[2] * model.x[key] for key in stages) == num_gpus)
    model.slowest = pyo.Constraint(
        range(count),
        rule=lambda m, i: (
            pyo.quicksum((running[b] - running[a]) / g * m.x[a, b, g] for a, b, g in stages if a <= i < b) <= m.T
        ),
    )
    return model


def best_partition(
    loads: FloatArray, num_gpus: int, num_stages: int, options: SolveOptions | None = None
) -> PartitionOptimum:
    """The partition and assignment with the fastest slowest stage.

    Raises
    ------
    InputError
        When there are more stages than operators or GPUs.
    """
    if num_stages > min(len(loads), num_gpus):
        raise InputError(f"{num_stages} stages need as many operators and GPUs; there are {len(loads)} and {num_gpus}")
    # In units of the mean load per GPU: solvers' tolerances are absolute.
    unit_s = float(np.sum(loads)) / num_gpus
    model = partition_model(np.asarray(loads) / unit_s, num_gpus, num_stages)
    compiled = compile_pyomo(model)
    result = solve(compiled.problem, options or SolveOptions())
    bound_s = None if result.bound is None else result.bound * unit_s
    if result.incumbent is None:
        return PartitionOptimum(
            termination=result.termination, bounds=None, sizes=None, bottleneck_s=None, bound_s=bound_s
        )
    compiled.load(result.incumbent)
    chosen = sorted(key for key in model.stage if round(pyo.value(model.x[key])) == 1)
    bounds, sizes = (0, *(b for _, b, _ in chosen)), tuple(g for _, _, g in chosen)
    return PartitionOptimum(
        termination=result.termination,
        bounds=bounds,
        sizes=sizes,
        bottleneck_s=bottleneck_s(loads, bounds, sizes),
        bound_s=bound_s,
    )


def bottleneck_s(loads: FloatArray, bounds: Sequence[int], sizes: Sequence[int]) -> float:
    """Time of the slowest stage in seconds per sample: load over GPUs."""
    return max(float(np.sum(loads[a:b])) / g for (a, b), g in zip(pairwise(bounds), sizes, strict=True))
