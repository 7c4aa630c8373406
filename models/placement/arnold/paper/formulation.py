"""Arnold's placement of communication groups on minipods as a mixed-integer program (Arnold section 5.2).

Sets
  i         groups of the scheduling unit: the PP groups (rows of the communication matrix) or the DP groups (columns)
  j         minipods
Data
  c_j       free nodes of minipod j divided by the nodes of a group, not rounded
  a, b      weights of the minipods used and of the largest spread of a unit; with PP groups as units a = alpha, the
            affinity of DP groups, and b = beta = 1 - alpha, that of PP groups; with DP groups as units a = beta and
            b = alpha (`instance.affinity_weights`)
Variables
  y_j       minipod j is used, binary
  s_ij      group i may use minipod j, binary
  p_ij      share of group i in minipod j, in [0, 1]; any fraction
  T         most minipods that one group touches, integer in [0, number of minipods]

  minimise    a sum_j y_j + b T                                                     (Eq. 4)
  s.t.        max_spread[i]:    sum_j s_ij <= T                  for all i          (Eq. 5)
              capacity[j]:      sum_i p_ij <= c_j y_j            for all j          (Eq. 6)
              allocation[i]:    sum_j p_ij = 1                   for all i          (Eq. 7)
              selection[i,j]:   p_ij <= s_ij                     for all i, j       (Eq. 8)
              domains                                                               (Eqs. 9, 10)

Eq. 6 is written in nodes, sum_i g p_ij <= f_j y_j with g nodes per group and f_j free nodes: the same row times g,
without a rounded quotient. The paper leaves the domain of T open; integer T loses nothing, as every sum_j s_ij is
integer, and lets a solver branch on it.

Rows of ours, only on request. They hold for an optimal solution of every instance, so that the optimum is the same.
  cover:        sum_j f_j y_j >= G g
                sum of Eqs. 6 and 7; integer in y alone, so that solvers derive knapsack cuts from it.
  least_spread: T >= t,  t = ceil(g / max_j f_j)
                a group touches at least that many minipods.
  large_pieces: G (T - t) >= G - sum_j floor(f_j / ceil(g / t)) y_j
                A group that touches at most t minipods has ceil(g / t) nodes in one of them (p can be split in whole
                nodes without touching more), and minipod j has room for floor(f_j / ceil(g / t)) such pieces. So T = t
                needs the sum on the right to be at least G; where it is smaller, T >= t + 1 and the left side is G.
"""

import pyomo.environ as pyo

from models.placement.arnold.instance import ArnoldInstance


def arnold_model(instance: ArnoldInstance, *, strengthen: bool = False) -> pyo.ConcreteModel:
    """Declare the model; `strengthen` adds the rows of ours."""
    minipods = instance.minipods
    size = instance.group_size
    free = dict(zip(minipods, instance.free_nodes.tolist(), strict=True))

    model = pyo.ConcreteModel("arnold")
    model.i = pyo.Set(initialize=range(instance.num_groups), doc="groups")
    model.j = pyo.Set(initialize=minipods, doc="minipods")
    model.y = pyo.Var(model.j, domain=pyo.Binary)
    model.s = pyo.Var(model.i, model.j, domain=pyo.Binary)
    model.p = pyo.Var(model.i, model.j, bounds=(0, 1))
    model.T = pyo.Var(domain=pyo.NonNegativeIntegers, bounds=(0, len(minipods)))

    model.objective = pyo.Objective(
        expr=instance.minipod_weight * pyo.quicksum(model.y.values()) + instance.spread_weight * model.T
    )

    model.max_spread = pyo.Constraint(model.i, rule=lambda m, i: pyo.quicksum(m.s[i, j] for j in m.j) <= m.T)
    model.capacity = pyo.Constraint(
        model.j, rule=lambda m, j: pyo.quicksum(size * m.p[i, j] for i in m.i) <= free[j] * m.y[j]
    )
    model.allocation = pyo.Constraint(model.i, rule=lambda m, i: pyo.quicksum(m.p[i, j] for j in m.j) == 1)
    model.selection = pyo.Constraint(model.i, model.j, rule=lambda m, i, j: m.p[i, j] <= m.s[i, j])

    if strengthen and instance.has_room:
        _add_rows_of_ours(model, instance)
    return model


def _add_rows_of_ours(model: pyo.ConcreteModel, instance: ArnoldInstance) -> None:
    """Add `cover`, `least_spread` and `large_pieces` (see the module)."""
    groups, size = instance.num_groups, instance.group_size
    free = list(zip(instance.minipods, instance.free_nodes.tolist(), strict=True))
    least = instance.least_spread
    piece = -(-size // least)
    model.cover = pyo.Constraint(expr=pyo.quicksum(f * model.y[j] for j, f in free) >= groups * size)
    model.least_spread = pyo.Constraint(expr=least <= model.T)
    model.large_pieces = pyo.Constraint(
        expr=groups * (model.T - least) + pyo.quicksum(f // piece * model.y[j] for j, f in free) >= groups
    )
