"""Planning ahead as a time-indexed program over change points.

Sets
  p         jobs to be planned; k plans of job p (its shapes); o options of job p, each a plan k(o), a start and an end
  i         groups of a plan, G_k of them with g_k nodes each (Arnold, section 5.2)
  j         minipods
  c         classes of nodes that are alike at every start, each in one minipod j(c)
  e         movers: running jobs that may be moved as a whole; E_c those on the nodes of class c, all jobs there or none
  t         change points: the starts of options
Data
  n_c       nodes of class c
  h_o       what option o costs whatever the nodes: lateness
  w_oc      what a node of class c costs under option o: the eviction and the restarts that are expected at its start,
            the time for which it is kept free before; where it is not usable, the pair (o, c) is left out
  v_oc      the same when all movers on it have been moved
  g_oe, l_e what it costs to move e by the start of option o, and nodes that it needs then
  u_oc      what a free node of class c costs that a mover gets, open_oc until when it is open, d_e until when e lasts
  a_p, b_p  prices of a minipod used and of the largest spread, r_p spare nodes in every minipod used
Variables
  z_po      job p runs by option o, binary
  q_poc     nodes of class c that it takes then, integer in [0, n_c]
  f_poc     those that it takes when all movers on them have been moved
  m_poe     mover e is moved for it, binary
  r_poc     nodes of class c that movers get, integer in [0, n_c]
  y_pj      minipod j is used by job p, binary
  s_pkij    group i of plan k may use minipod j, binary
  x_pkij    nodes of group i in minipod j, integer in [0, g_k]
  T_p       most minipods that a group of job p touches

  minimise   sum_p [ sum_o (h_o z_po + sum_c w_oc q_poc) + a_p sum_j y_pj + b_p T_p ]       (Eq. 4 for every job)
             + sum_po [ sum_c (v_oc f_poc + u_oc r_poc) + sum_e g_oe m_poe ]
  s.t.       once[p]:          sum_o z_po = 1
             taken[p,o,c]:     q_poc + f_poc <= n_c z_po
             cleared[p,o,c,e]: f_poc <= n_c m_poe,  e in E_c
             moved[p,o,e]:     m_poe <= z_po
             moved_once[e]:    sum_po m_poe <= 1
             places[p,o,a]:    sum of l_e m_poe over the e that need at least a <= sum of r_poc over open_oc >= a, for
                               every value a of open_oc; e needs the least value that is at least d_e
             held[p,k,j]:      sum_i x_pkij <= sum of q_poc over the options of plan k and the classes of minipod j
             groups[p,j]:      sum_k sum_i x_pkij + r_p y_pj <= sum_o sum of q_poc over the classes of minipod j
             used[p,j]:        sum_k sum_i x_pkij <= n_j y_pj,  n_j nodes of minipod j       (Eq. 6)
             allocation[p,k,i]: sum_j x_pkij = g_k sum of z_po over the options of plan k    (Eq. 7)
             selection[p,k,i,j]: x_pkij <= g_k s_pkij                                        (Eq. 8)
             max_spread[p,k,i]: sum_j s_pkij <= T_p                                          (Eq. 5)
             room[c,t]:        sum of q_poc + f_poc over the options that last at t
                               + sum of r_poc over those that start by t <= n_c
where q_poc stands for q_poc + f_poc in held and groups.

Nodes that stay open longer suit all movers that others suit: the sets that movers may go to are nested, so that places
is Hall's condition. Nodes of a class are alike, so that intervals that never ask for more of them than there are can be
dealt out to single nodes in the order of their starts.
"""

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np
import pyomo.environ as pyo

from models.placement.ahead.instance import AheadInstance
from stowplan.arrays import FloatVector


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
    options = {(p, o): option for p, job in enumerate(jobs) for o, option in enumerate(job.options)}
    moves = {key: option.moves for key, option in options.items() if option.moves is not None}
    usable = _finite({key: option.node_cost for key, option in options.items()})
    clearable = _finite({key: each.cleared_cost for key, each in moves.items()})
    movable = _finite({key: each.move_cost for key, each in moves.items()})
    targets = _finite({key: each.target_cost for key, each in moves.items()})

    model = pyo.ConcreteModel("ahead")
    model.p = pyo.Set(initialize=range(len(jobs)), doc="jobs")
    model.j = pyo.Set(initialize=range(len(instance.minipods)), doc="minipods")
    model.po = pyo.Set(initialize=list(plan_of), dimen=2, doc="options")
    model.poc = pyo.Set(initialize=usable, dimen=3, doc="classes that an option may use")
    model.clearable = pyo.Set(initialize=clearable, dimen=3, doc="classes that may be cleared for an option")
    model.movable = pyo.Set(initialize=movable, dimen=3, doc="movers that may be moved for an option")
    model.targets = pyo.Set(initialize=targets, dimen=3, doc="classes to which they may be moved")
    model.pki = pyo.Set(initialize=group_keys, dimen=3, doc="groups of the plans")
    model.z = pyo.Var(model.po, domain=pyo.Binary)
    model.q = pyo.Var(model.poc, domain=pyo.NonNegativeIntegers, bounds=lambda _, *key: (0, size[key[2]]))
    model.f = pyo.Var(model.clearable, domain=pyo.NonNegativeIntegers, bounds=lambda _, *key: (0, size[key[2]]))
    model.m = pyo.Var(model.movable, domain=pyo.Binary)
    model.r = pyo.Var(model.targets, domain=pyo.NonNegativeIntegers, bounds=lambda _, *key: (0, size[key[2]]))
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
        + pyo.quicksum(float(moves[p, o].cleared_cost[c]) * model.f[p, o, c] for p, o, c in clearable)
        + pyo.quicksum(float(moves[p, o].move_cost[i]) * model.m[p, o, i] for p, o, i in movable)
        + pyo.quicksum(float(moves[p, o].target_cost[c]) * model.r[p, o, c] for p, o, c in targets)
    )

    # Nodes in a minipod: of the groups of one plan or of all, and those taken.
    grouped = {(p, k, j): 0 for p, own in enumerate(shapes) for k in range(len(own)) for j in model.j}
    for p, k, i in group_keys:
        for j in model.j:
            grouped[p, k, j] += model.x[p, k, i, j]
    taken = dict.fromkeys(grouped, 0)
    points = instance.change_points
    during = {
        key: points[bisect_left(points, option.start_s) : bisect_left(points, option.end_s)]
        for key, option in options.items()
    }
    lasting: dict[tuple[int, float], list[object]] = {}
    of_class = {key: model.q[key] for key in usable}
    of_class |= {key: of_class[key] + model.f[key] if key in of_class else model.f[key] for key in clearable}
    for (p, o, c), nodes in of_class.items():
        taken[p, plan_of[p, o], minipod_of[c]] += nodes
        for instant in during[p, o]:
            lasting.setdefault((c, instant), []).append(nodes)
    for p, o, c in targets:
        for instant in points[bisect_left(points, options[p, o].start_s) :]:
            lasting.setdefault((c, instant), []).append(model.r[p, o, c])
    of_job = {(p, j): [(p, k, j) for k in range(len(shapes[p]))] for p in model.p for j in model.j}
    chosen = {
        (p, k): pyo.quicksum(model.z[p, o] for q, o in plan_of if q == p and plan_of[p, o] == k)
        for p, own in enumerate(shapes)
        for k in range(len(own))
    }

    model.once = pyo.Constraint(
        model.p, rule=lambda m, p: pyo.quicksum(m.z[p, o] for o in range(len(jobs[p].options))) == 1
    )
    model.taken = pyo.Constraint(list(of_class), rule=lambda m, p, o, c: of_class[p, o, c] <= size[c] * m.z[p, o])
    _declare_moves(model, instance, clearable, movable, targets)
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


def _finite(costs: Mapping[tuple[int, int], FloatVector]) -> list[tuple[int, int, int]]:
    """Job, option and position of every cost that is finite."""
    return [(p, o, c) for (p, o), own in costs.items() for c in np.flatnonzero(np.isfinite(own)).tolist()]


def _declare_moves(
    model: pyo.ConcreteModel,
    instance: AheadInstance,
    clearable: list[tuple[int, int, int]],
    movable: list[tuple[int, int, int]],
    targets: list[tuple[int, int, int]],
) -> None:
    """Declare who may be moved where."""
    size, movers, may_move = instance.class_size.tolist(), instance.movers, set(movable)
    clearing = [(p, o, c, i) for p, o, c in clearable for i in instance.class_movers[c]]
    model.cleared = pyo.Constraint(
        clearing,
        rule=lambda m, p, o, c, i: m.f[p, o, c] <= (size[c] * m.m[p, o, i] if (p, o, i) in may_move else 0),
    )
    model.moved = pyo.Constraint(movable, rule=lambda m, p, o, i: m.m[p, o, i] <= m.z[p, o])
    together: dict[int, list[object]] = {}
    for key in movable:
        together.setdefault(key[2], []).append(model.m[key])
    model.moved_once = pyo.Constraint(list(together), rule=lambda _, i: pyo.quicksum(together[i]) <= 1)

    wanted: dict[tuple[int, int, float], list[object]] = {}
    given: dict[tuple[int, int, float], list[object]] = {}
    opens: dict[tuple[int, int], FloatVector] = {}
    for p, o, c in targets:
        moves = instance.jobs[p].options[o].moves
        if moves is not None:
            opens.setdefault((p, o), np.unique(moves.open_until_s[np.isfinite(moves.target_cost)]))
            for until_s in opens[p, o][opens[p, o] <= moves.open_until_s[c]].tolist():
                given.setdefault((p, o, until_s), []).append(model.r[p, o, c])
    for p, o, i in movable:
        known = opens.get((p, o), np.zeros(0))
        level = int(np.searchsorted(known, movers[i].until_s))
        # Who may go nowhere is in a row of its own.
        for until_s in known[: level + 1].tolist() if level < known.size else [np.inf]:
            wanted.setdefault((p, o, until_s), []).append(movers[i].num_nodes * model.m[p, o, i])
    model.places = pyo.Constraint(
        list(wanted), rule=lambda _, *key: pyo.quicksum(wanted[key]) <= pyo.quicksum(given.get(key, ()))
    )
