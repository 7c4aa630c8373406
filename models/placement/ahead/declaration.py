"""Planning ahead as a time-indexed program over change points.

Sets
  p         jobs to be planned; k plans of job p (its shapes); o options of job p, each a plan k(o), a start and an end
  i         groups of a plan, G_k of them with g_k nodes each (Arnold, section 5.2)
  j         minipods
  c         classes of nodes that are alike at every start, each in one minipod j(c)
  t         change points: the starts of options
Data
  n_c       nodes of class c
  v_o       what option o costs whatever the nodes: lateness
  w_oc      what a node of class c costs under option o: the eviction and the moves that are expected at its start, the
            time for which it is kept free before; where it is not usable, the pair (o, c) is left out
  a_p, b_p  prices of a minipod used and of the largest spread, r_p spare nodes in every minipod used
Variables
  z_po      job p runs by option o, binary
  q_poc     nodes of class c that it takes then, integer in [0, n_c]
  y_pj      minipod j is used by job p, binary
  s_pkij    group i of plan k may use minipod j, binary
  x_pkij    nodes of group i in minipod j, integer in [0, g_k]
  T_p       most minipods that a group of job p touches

  minimise   sum_p [ sum_o (v_o z_po + sum_c w_oc q_poc) + a_p sum_j y_pj + b_p T_p ]       (Eq. 4 for every job)
  s.t.       once[p]:          sum_o z_po = 1
             taken[p,o,c]:     q_poc <= n_c z_po
             held[p,k,j]:      sum_i x_pkij <= sum of q_poc over the options of plan k and the classes of minipod j
             groups[p,j]:      sum_k sum_i x_pkij + r_p y_pj <= sum_o sum of q_poc over the classes of minipod j
             used[p,j]:        sum_k sum_i x_pkij <= n_j y_pj,  n_j nodes of minipod j       (Eq. 6)
             allocation[p,k,i]: sum_j x_pkij = g_k sum of z_po over the options of plan k    (Eq. 7)
             selection[p,k,i,j]: x_pkij <= g_k s_pkij                                        (Eq. 8)
             max_spread[p,k,i]: sum_j s_pkij <= T_p                                          (Eq. 5)
             room[c,t]:        sum of q_poc over the options that last at t <= n_c

Nodes of a class are alike, so that intervals that never ask for more of them than there are can be dealt out to single
nodes in the order of their starts.
"""

import pyomo.environ as pyo

from models.placement.ahead.instance import AheadInstance


def ahead_model(instance: AheadInstance) -> pyo.ConcreteModel:
    """Declare the model."""
    jobs, size = instance.jobs, instance.class_size.tolist()
    minipod_of = instance.class_minipod.tolist()
    capacity = [0] * len(instance.minipods)
    for c, j in enumerate(minipod_of):
        capacity[j] += size[c]
    shapes = [list(dict.fromkeys(option.shape for option in job.options)) for job in jobs]
    plan_of = {
        (p, o): shapes[p].index(option.shape) for p, job in enumerate(jobs) for o, option in enumerate(job.options)
    }
    group_keys = [
        (p, k, i) for p, own in enumerate(shapes) for k, shape in enumerate(own) for i in range(shape.num_groups)
    ]
    usable = [
        (p, o, c)
        for p, job in enumerate(jobs)
        for o, option in enumerate(job.options)
        for c, cost in enumerate(option.node_cost.tolist())
        if cost < float("inf")
    ]

    model = pyo.ConcreteModel("ahead")
    model.p = pyo.Set(initialize=range(len(jobs)), doc="jobs")
    model.j = pyo.Set(initialize=range(len(instance.minipods)), doc="minipods")
    model.po = pyo.Set(initialize=list(plan_of), dimen=2, doc="options")
    model.poc = pyo.Set(initialize=usable, dimen=3, doc="classes that an option may use")
    model.pki = pyo.Set(initialize=group_keys, dimen=3, doc="groups of the plans")
    model.z = pyo.Var(model.po, domain=pyo.Binary)
    model.q = pyo.Var(model.poc, domain=pyo.NonNegativeIntegers, bounds=lambda _, *key: (0, size[key[2]]))
    model.y = pyo.Var(model.p, model.j, domain=pyo.Binary)
    model.s = pyo.Var(model.pki, model.j, domain=pyo.Binary)
    model.x = pyo.Var(
        model.pki,
        model.j,
        domain=pyo.NonNegativeIntegers,
        bounds=lambda _, *key: (0, shapes[key[0]][key[1]].group_size),
    )
    model.T = pyo.Var(model.p, domain=pyo.NonNegativeIntegers, bounds=(0, len(instance.minipods)))

    model.objective = pyo.Objective(
        expr=pyo.quicksum(jobs[p].options[o].cost * model.z[p, o] for p, o in model.po)
        + pyo.quicksum(float(jobs[p].options[o].node_cost[c]) * model.q[p, o, c] for p, o, c in model.poc)
        + pyo.quicksum(jobs[p].minipod_weight * model.y[p, j] for p in model.p for j in model.j)
        + pyo.quicksum(jobs[p].spread_weight * model.T[p] for p in model.p)
    )

    # Nodes in a minipod: of the groups of one plan or of all, and those taken.
    grouped = {(p, k, j): 0 for p, own in enumerate(shapes) for k in range(len(own)) for j in model.j}
    for p, k, i in group_keys:
        for j in model.j:
            grouped[p, k, j] += model.x[p, k, i, j]
    taken = dict.fromkeys(grouped, 0)
    lasting: dict[tuple[int, float], list[object]] = {}
    for p, o, c in usable:
        taken[p, plan_of[p, o], minipod_of[c]] += model.q[p, o, c]
        option = jobs[p].options[o]
        for instant in instance.change_points:
            if option.start_s <= instant < option.end_s:
                lasting.setdefault((c, instant), []).append(model.q[p, o, c])
    of_job = {(p, j): [(p, k, j) for k in range(len(shapes[p]))] for p in model.p for j in model.j}
    chosen = {
        (p, k): pyo.quicksum(model.z[p, o] for q, o in plan_of if q == p and plan_of[p, o] == k)
        for p, own in enumerate(shapes)
        for k in range(len(own))
    }

    model.once = pyo.Constraint(
        model.p, rule=lambda m, p: pyo.quicksum(m.z[p, o] for o in range(len(jobs[p].options))) == 1
    )
    model.taken = pyo.Constraint(model.poc, rule=lambda m, p, o, c: m.q[p, o, c] <= size[c] * m.z[p, o])
    model.held = pyo.Constraint(list(grouped), rule=lambda _, p, k, j: grouped[p, k, j] <= taken[p, k, j])
    model.groups = pyo.Constraint(
        model.p,
        model.j,
        rule=lambda m, p, j: (
            pyo.quicksum(grouped[key] for key in of_job[p, j]) + jobs[p].num_spares * m.y[p, j]
            <= pyo.quicksum(taken[key] for key in of_job[p, j])
        ),
    )
    model.used = pyo.Constraint(
        model.p,
        model.j,
        rule=lambda m, p, j: pyo.quicksum(grouped[key] for key in of_job[p, j]) <= capacity[j] * m.y[p, j],
    )
    model.allocation = pyo.Constraint(
        model.pki,
        rule=lambda m, p, k, i: pyo.quicksum(m.x[p, k, i, j] for j in m.j) == shapes[p][k].group_size * chosen[p, k],
    )
    model.selection = pyo.Constraint(
        model.pki, model.j, rule=lambda m, p, k, i, j: m.x[p, k, i, j] <= shapes[p][k].group_size * m.s[p, k, i, j]
    )
    model.max_spread = pyo.Constraint(
        model.pki, rule=lambda m, p, k, i: pyo.quicksum(m.s[p, k, i, j] for j in m.j) <= m.T[p]
    )
    model.room = pyo.Constraint(list(lasting), rule=lambda _, c, t: pyo.quicksum(lasting[c, t]) <= size[c])
    return model
