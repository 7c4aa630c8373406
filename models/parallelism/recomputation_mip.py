r"""Layers of stages and what they recompute together, as a mixed-integer program: a bound of what is chosen one after
the other (`even` spreads layers evenly, then every stage recomputes what is cheapest of what fits), and a proof of what
`joint` chooses together.

Sets
  i            stages 0..p-1 of equal degrees, in order
  (i,a,b,r)    stage i has the layers a..b-1 and recomputes r (`recomputation`), which fits beside the micro-batches
               that it has in flight; of rows alike but for r, those that are not slower in all parts than another
Data
  f, b, e      of a row in seconds: forward and backward pass of a micro-batch, and what is left behind the last one
  N            micro-batches
Variables
  x_iabr       the plan has this row, binary
  M            time of the slowest stage per micro-batch, >= 0
  E            what the last gradients leave to be done, >= 0

  minimise     sum (f + b) x + (N - 1) M + E                                         `formulas.pipeline_s`
  s.t.         start:       sum_{b,r} x_00br = 1
               chain[i,k]:  sum_{a,r} x_iakr = sum_{b,r} x_(i+1)kbr                    for all i < p - 1, 0 < k < L
               slowest[i]:  sum_{a,b,r} (f + b) x_iabr <= M                            for all i
               extra[i]:    sum_{a,b,r} e x_iabr - sum_{j<i} sum_{a,b,r} b x_jabr <= E  for all i

Rows of the last stage end with layer L - 1. Sends are not part of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyomo.environ as pyo

from models.parallel_plan import ParallelPlan
from models.parallelism.grid.degrees import compact_degrees
from models.parallelism.grid.stage_table import Recomputation, StageTable
from models.parallelism.recomputation import recomputations
from models.performance.iteration.formulas import pipeline_s, scaling
from models.performance.iteration.model import PerformanceModel
from models.pipeline_schedule import in_flight
from solver.compilers.pyomo import compile_pyomo
from solver.options import SolveOptions
from solver.result import TerminationReason
from solver.solve import solve
from stowplan.arrays import FloatArray, Mask
from stowplan.errors import InputError

# Stage, first layer, end, number of what is recomputed.
Key = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class JointOptimum:
    """What the solver proved. `layers` and `recomputation` of every stage and `seconds` are None without a solution;
    `bound_s`: no other choice takes less, None when nothing is proven."""

    termination: TerminationReason
    layers: tuple[int, ...] | None
    recomputation: tuple[Recomputation, ...] | None
    seconds: float | None
    bound_s: float | None

    def gap(self, seconds: float) -> float | None:
        """Relative gap of a plan that takes so long, (seconds - bound) / seconds."""
        return None if self.bound_s is None else max(0.0, 1.0 - self.bound_s / seconds)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JointRows:
    """Rows of the program: key -> (f, b, e) in seconds; `choices`: what may be recomputed, by number."""

    num_stages: int
    num_layers: int
    num_micro_batches: int
    choices: tuple[Recomputation, ...]
    times_s: dict[Key, tuple[float, float, float]]

    @classmethod
    def of(cls, plan: ParallelPlan, model: PerformanceModel, gpus_per_node: int, most_layers: int) -> "JointRows":
        """Rows for the degrees and micro-batches of a symmetric plan on nodes `0`, `1`, ..., with at most so many
        layers a stage.

        Raises
        ------
        InputError
            When the plan is interleaved.
        """
        if plan.virtual_stages > 1:
            raise InputError("stages of several parts have no such program; give a plan of whole stages")
        first, num_layers = plan.stages[0], plan.num_layers
        choices = tuple(recomputations(min(most_layers, num_layers)))
        rows = [
            (a, b, r)
            for a in range(num_layers)
            for b in range(a + 1, min(a + most_layers, num_layers) + 1)
            for r, (_, count) in enumerate(choices)
            if count is None or count < b - a
        ]
        table = StageTable(
            model=model,
            gpu_type=first.replicas[0].gpu_type,
            intervals=tuple((a, b) for a, b, _ in rows),
            degrees=compact_degrees(model.profile, (first.num_gpus,), gpus_per_node),
            recomputation=tuple(choices[r] for _, _, r in rows),
        )
        column, count = table.degrees.tp.tolist().index(first.tp), plan.num_micro_batches
        costs = table.costs(count)
        parts = np.stack([*costs.computing_s[:2], costs.once_s + costs.optimizer_s])[:, :, 0, column]
        parts = parts * scaling(plan.num_gpus, model.coefficients.scale_loss)
        memory = table.memory_bytes(count, [in_flight(plan.pp, i, 1) for i in range(plan.pp)])[:, :, 0, column]
        times_s: dict[Key, tuple[float, float, float]] = {}
        for i, fits in enumerate(table.fits(memory)):
            # Stages before and behind have a layer at least, and the outer stages the outer layers.
            inside = np.array(
                [
                    (a == 0 if i == 0 else a >= i)
                    and (b == num_layers if i == plan.pp - 1 else b <= num_layers - plan.pp + 1 + i)
                    for a, b, _ in rows
                ]
            )
            for k in np.flatnonzero(_undominated(rows, parts, fits & inside)).tolist():
                forward, backward, extra = parts[:, k].tolist()
                times_s[i, *rows[k]] = forward, backward, extra
        return cls(num_stages=plan.pp, num_layers=num_layers, num_micro_batches=count, choices=choices, times_s=times_s)

    def seconds(self, keys: Sequence[Key]) -> float:
        """Time of the plan of these rows, stage by stage."""
        forward, backward, extra = np.array([self.times_s[key] for key in keys]).T
        return float(sum(pipeline_s(forward, backward, extra, self.num_micro_batches)))


def _undominated(rows: Sequence[tuple[int, int, int]], parts: FloatArray, possible: Mask) -> Mask:
    """Rows that no other row of the same layers is as good as in all parts; of equal ones the first."""
    kept = possible.copy()
    groups: dict[tuple[int, int], list[int]] = {}
    for k in np.flatnonzero(possible).tolist():
        groups.setdefault(rows[k][:2], []).append(k)
    for group in groups.values():
        order = sorted(group, key=lambda k: (tuple(parts[:, k]), k))
        for n, k in enumerate(order):
            kept[k] = not any(kept[other] and (parts[:, other] <= parts[:, k]).all() for other in order[:n])
    return kept


def joint_model(rows: JointRows, unit_s: float = 1.0) -> pyo.ConcreteModel:
    """Declare the program, with times in units."""
    keys, times = list(rows.times_s), {key: np.array(found) / unit_s for key, found in rows.times_s.items()}
    stages = range(rows.num_stages)
    of_stage = {i: [key for key in keys if key[0] == i] for i in stages}
    model = pyo.ConcreteModel("recomputation")
    model.rows = pyo.Set(initialize=keys, dimen=4, doc="(stage, first, end, recomputation)")
    model.x = pyo.Var(model.rows, domain=pyo.Binary)
    model.M = pyo.Var(domain=pyo.NonNegativeReals)
    model.E = pyo.Var(domain=pyo.NonNegativeReals)

    def total(chosen: Sequence[Key], *parts: int) -> pyo.Expression:
        return pyo.quicksum(float(sum(times[key][part] for part in parts)) * model.x[key] for key in chosen)

    model.objective = pyo.Objective(expr=total(keys, 0, 1) + (rows.num_micro_batches - 1) * model.M + model.E)
    model.start = pyo.Constraint(expr=pyo.quicksum(model.x[key] for key in of_stage[0]) == 1)
    model.chain = pyo.Constraint(
        range(rows.num_stages - 1),
        range(1, rows.num_layers),
        rule=lambda m, i, k: (
            pyo.quicksum([m.x[key] for key in of_stage[i] if key[2] == k])
            - pyo.quicksum([m.x[key] for key in of_stage[i + 1] if key[1] == k])
            == 0
            if any(key[2] == k for key in of_stage[i]) or any(key[1] == k for key in of_stage[i + 1])
            else pyo.Constraint.Skip
        ),
    )
    model.slowest = pyo.Constraint(stages, rule=lambda m, i: total(of_stage[i], 0, 1) <= m.M)
    before = {i: [key for key in keys if key[0] < i] for i in stages}
    model.extra = pyo.Constraint(stages, rule=lambda m, i: total(of_stage[i], 2) - total(before[i], 1) <= m.E)
    return model


def joint_optimum(rows: JointRows, options: SolveOptions | None = None) -> JointOptimum:
    """The layers and recomputations of stages of least time together."""
    if len({key[0] for key in rows.times_s}) < rows.num_stages:
        return JointOptimum(
            termination=TerminationReason.INFEASIBLE, layers=None, recomputation=None, seconds=None, bound_s=None
        )
    # In units of a mean stage: solvers' tolerances are absolute.
    unit_s = float(np.mean([sum(found[:2]) for found in rows.times_s.values()]))
    model = joint_model(rows, unit_s)
    compiled = compile_pyomo(model)
    result = solve(compiled.problem, options or SolveOptions())
    bound_s = None if result.bound is None else result.bound * unit_s
    if result.incumbent is None:
        return JointOptimum(
            termination=result.termination, layers=None, recomputation=None, seconds=None, bound_s=bound_s
        )
    compiled.load(result.incumbent)
    chosen = sorted(key for key in model.rows if round(pyo.value(model.x[key])) == 1)
    return JointOptimum(
        termination=result.termination,
        layers=tuple(b - a for _, a, b, _ in chosen),
        recomputation=tuple(rows.choices[r] for *_, r in chosen),
        seconds=rows.seconds(chosen),
        bound_s=bound_s,
    )
