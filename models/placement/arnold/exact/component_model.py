"""Fewest minipods that hold G groups of g nodes, at most T minipods a group, as a flow over components.

By the theorem of `packing`, with L = T - 1, a component is any set of minipods with f(C) >= m g and at most L m + 1
members; minipods of 0 nodes may be added to make it exactly L m + 1. Taken one after the other, the n-th minipod leads
to the state (e, n mod L) with

    e = L (nodes so far) - g (n - 1),

so that the set is a component when it ends with n = 1 (mod L) and e >= 0. Some order keeps 0 <= e <= L max(f_1, g):
take a minipod with L f < g while e >= g, else one with L f >= g; when only the latter are left, e ends below L g, or
the component would hold one group more. Identical minipods and components make no difference here, so that nothing is
symmetric, and the size does not grow with G.

Sets
  v         states
  k         sizes of minipods, f_k nodes each, n_k of them; k = 0 stands for a minipod of 0 nodes, any number
  a         arcs: from the source (a component begins) or a state to a state, with a minipod of size k(a)
Variables
  x_a       arcs taken, integer >= 0
  z_v       components that end in v, >= 0; only where n = 1 (mod L)

  minimise    sum_{a: k(a) > 0} x_a                                              (minipods used)
  s.t.        balance[v]:   sum_{a into v} x_a = sum_{a out of v} x_a + z_v      for all v
              supply[k]:    sum_{a: k(a) = k} x_a <= n_k                         for all k > 0
              groups:       sum_a x_a - sum_v z_v >= L G

Flow on a cycle apart from all paths is a component as well: L m minipods with m g nodes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyomo.environ as pyo

from stowplan.arrays import IntVector

State = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arc:
    """From `tail` (None: the source) to `head` with a minipod of `nodes` nodes, 0 for none."""

    tail: State | None
    head: State
    nodes: int


def component_arcs(free: IntVector, size: int, spread: int, max_arcs: int) -> list[Arc] | None:
    """Every arc that can be reached; None when there are more than `max_arcs`."""
    step = spread - 1
    sizes = [0, *sorted(set(free[free > 0].tolist()))]
    highest = step * max(sizes[-1], size)
    todo: list[State] = [(step * nodes, 1 % step) for nodes in sizes[1:]]
    arcs = [Arc(tail=None, head=head, nodes=nodes) for head, nodes in zip(todo, sizes[1:], strict=True)]
    known = set(todo)
    while todo:
        excess, members = tail = todo.pop()
        for nodes in sizes:
            reached = excess + step * nodes - size
            if 0 <= reached <= highest:
                head = (reached, (members + 1) % step)
                arcs.append(Arc(tail=tail, head=head, nodes=nodes))
                if head not in known:
                    known.add(head)
                    todo.append(head)
        if len(arcs) > max_arcs:
            return None
    return arcs


def component_model(free: IntVector, num_groups: int, spread: int, arcs: list[Arc]) -> pyo.ConcreteModel:
    """Declare the model for the minipods `free` (k,) and their `arcs`."""
    step = spread - 1
    into, out, using = defaultdict(list), defaultdict(list), defaultdict(list)
    for a, arc in enumerate(arcs):
        into[arc.head].append(a)
        out[arc.tail].append(a)
        using[arc.nodes].append(a)
    states = sorted(into)
    number = Counter(free.tolist())

    model = pyo.ConcreteModel("components")
    model.a = pyo.RangeSet(0, len(arcs) - 1)
    model.v = pyo.RangeSet(0, len(states) - 1)
    model.ends = pyo.Set(initialize=[v for v in model.v if states[v][1] == 1 % step])
    model.k = pyo.Set(initialize=sorted(nodes for nodes in using if nodes))
    model.x = pyo.Var(model.a, domain=pyo.NonNegativeIntegers)
    model.z = pyo.Var(model.ends, domain=pyo.NonNegativeReals)

    def taken(chosen: list[int]) -> pyo.Expression:
        return pyo.quicksum(model.x[a] for a in chosen)

    model.objective = pyo.Objective(expr=pyo.quicksum(taken(using[nodes]) for nodes in model.k))
    model.balance = pyo.Constraint(
        model.v,
        rule=lambda m, v: taken(into[states[v]]) == taken(out[states[v]]) + (m.z[v] if v in m.ends else 0),
    )
    model.supply = pyo.Constraint(model.k, rule=lambda _, nodes: taken(using[nodes]) <= number[nodes])
    model.groups = pyo.Constraint(
        expr=pyo.quicksum(model.x.values()) - pyo.quicksum(model.z.values()) >= step * num_groups
    )
    return model


def read_components(free: IntVector, arcs: list[Arc], flow: IntVector) -> list[IntVector]:
    """Components (positions into `free` (k,)) of the `flow` (arcs,)."""
    waiting = {nodes: iter(np.flatnonzero(free == nodes).tolist()) for nodes in set(free.tolist())}
    sets = ([next(waiting[nodes]) for nodes in component if nodes] for component in _walks(arcs, flow))
    return [np.array(sorted(positions), dtype=np.int64) for positions in sets]


def _walks(arcs: list[Arc], flow: IntVector) -> Iterator[list[int]]:
    """Decompose the flow into walks from the source, then into cycles: nodes of the minipods on each.

    A walk goes on as far as it can, so that what is left when all have ended are cycles.
    """
    left = flow.tolist()
    out: dict[State | None, list[int]] = defaultdict(list)
    for a, arc in enumerate(arcs):
        if left[a]:
            out[arc.tail].append(a)
    while True:
        at = None if out[None] else next((tail for tail in out if out[tail]), None)
        if not out[at]:
            return
        nodes = []
        while out[at]:
            a = out[at][-1]
            left[a] -= 1
            if not left[a]:
                out[at].pop()
            nodes.append(arcs[a].nodes)
            at = arcs[a].head
        yield nodes
