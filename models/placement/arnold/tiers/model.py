"""Several weighted tiers as a mixed-integer program: Eqs. 4-10 once per tier, tied together by the bins.

Sets
  i         groups
  t         weighted tiers with weight w_t; u the units of a tier, F_tu their free nodes
  l         bins, the units of the finest weighted tier or minipods, with f_l free nodes; u(t, l) the unit of bin l in
            tier t
Data
  a, b      weights of Eq. 4; o_t the optimum, or a lower bound, of Eq. 4 on the units of tier t alone, o a lower bound
            of the whole
Variables
  y_tu      unit u of tier t is used, binary
  s_tiu     group i may use unit u of tier t, binary
  p_il      share of group i in bin l, in [0, 1]
  T_t       most units of tier t that one group touches, integer

  minimise    sum_t w_t (a sum_u y_tu + b T_t)
  s.t.        max_spread[t,i]:    sum_u s_tiu <= T_t
              capacity[l]:        sum_i g p_il <= f_l
              use[t,u]:           sum_i sum_{l: u(t,l) = u} g p_il <= F_tu y_tu
              allocation[i]:      sum_l p_il = 1
              selection[t,i,u]:   sum_{l: u(t,l) = u} p_il <= s_tiu
              alone[t]:           a sum_u y_tu + b T_t >= o_t
              together:           sum_t w_t (a sum_u y_tu + b T_t) >= o

The rows `alone` hold for every solution, as it solves each tier alone. With y and s fixed, p is a transportation
problem.
"""

from collections.abc import Sequence

import numpy as np
import pyomo.environ as pyo

from models.placement.arnold.tiers.instance import TierInstance, max_spread, on_units
from stowplan.arrays import FloatVector, IntMatrix, Mask


def tier_model(
    instance: TierInstance, bounds: Sequence[float] | None = None, together: float | None = None
) -> pyo.ConcreteModel:
    """Declare the model; `bounds` are o_t, `together` is o."""
    size, tiers, free = instance.group_size, instance.tiers, instance.free_nodes.tolist()
    bins = [[np.flatnonzero(tier.unit == u).tolist() for u in range(tier.num_units)] for tier in tiers]
    units = [(t, u) for t, tier in enumerate(tiers) for u in range(tier.num_units)]
    model = pyo.ConcreteModel("tiers")
    model.i = pyo.RangeSet(0, instance.num_groups - 1)
    model.l = pyo.RangeSet(0, instance.num_bins - 1)
    model.t = pyo.RangeSet(0, len(tiers) - 1)
    model.tu = pyo.Set(initialize=units)
    model.y = pyo.Var(model.tu, domain=pyo.Binary)
    model.s = pyo.Var(model.i, model.tu, domain=pyo.Binary)
    model.p = pyo.Var(model.i, model.l, bounds=(0, 1))
    model.T = pyo.Var(model.t, domain=pyo.NonNegativeIntegers, bounds=lambda _, t: (0, tiers[t].num_units))

    def eq4(t: int) -> pyo.Expression:
        used = pyo.quicksum(model.y[t, u] for u in range(tiers[t].num_units))
        return instance.minipod_weight * used + instance.spread_weight * model.T[t]

    model.objective = pyo.Objective(expr=pyo.quicksum(tiers[t].weight * eq4(t) for t in model.t))
    model.max_spread = pyo.Constraint(
        model.t,
        model.i,
        rule=lambda m, t, i: pyo.quicksum(m.s[i, t, u] for u in range(tiers[t].num_units)) <= m.T[t],
    )
    model.capacity = pyo.Constraint(model.l, rule=lambda m, k: pyo.quicksum(size * m.p[i, k] for i in m.i) <= free[k])
    model.use = pyo.Constraint(
        model.tu,
        rule=lambda m, t, u: (
            pyo.quicksum(size * m.p[i, k] for i in m.i for k in bins[t][u])
            <= sum(free[k] for k in bins[t][u]) * m.y[t, u]
        ),
    )
    model.allocation = pyo.Constraint(model.i, rule=lambda m, i: pyo.quicksum(m.p[i, k] for k in m.l) == 1)
    model.selection = pyo.Constraint(
        model.i,
        model.tu,
        rule=lambda m, i, t, u: pyo.quicksum(m.p[i, k] for k in bins[t][u]) <= m.s[i, t, u],
    )
    if bounds is not None:
        model.alone = pyo.Constraint(model.t, rule=lambda _, t: eq4(t) >= bounds[t])
    if together is not None:
        model.together = pyo.Constraint(expr=pyo.quicksum(tiers[t].weight * eq4(t) for t in model.t) >= together)
    return model


def tier_point(instance: TierInstance, counts: IntMatrix) -> FloatVector:
    """The point (n,) of the model that stands for `counts` (G, B), in the order of its declaration."""
    units = [on_units(counts, tier) for tier in instance.tiers]
    every = np.concatenate(units, axis=1) > 0
    spreads = [max_spread(matrix) for matrix in units]
    shares = counts / instance.group_size
    return np.concatenate([every.any(axis=0), every.ravel(), shares.ravel(), spreads]).astype(np.float64)


def read_supports(instance: TierInstance, point: FloatVector) -> tuple[Mask, Mask]:
    """Which bins each group may use (G, B), and which bins are used at all (B,), by the units of all tiers."""
    num_units = sum(tier.num_units for tier in instance.tiers)
    offset = np.concatenate([[0], np.cumsum([tier.num_units for tier in instance.tiers])])
    y = point[:num_units] > 0.5
    s = point[num_units : num_units * (1 + instance.num_groups)].reshape(instance.num_groups, num_units) > 0.5
    columns = np.array([offset[t] + tier.unit for t, tier in enumerate(instance.tiers)])
    return np.asarray(s[:, columns].all(axis=1)), np.asarray(y[columns].all(axis=0))


def num_tier_columns(instance: TierInstance) -> int:
    """Variables of the model, roughly."""
    return instance.num_groups * (instance.num_bins + sum(tier.num_units for tier in instance.tiers))
