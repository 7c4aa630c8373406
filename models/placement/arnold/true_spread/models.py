"""Eq. 2 as mixed-integer programs.

Sets R rows r, C columns c, minipods j with f_j free nodes; alpha weighs columns, beta = 1 - alpha rows.

**Cells** (`cell_model`): the whole problem, a minipod for each cell.
Variables
  x_rcj     cell (r, c) sits in minipod j, in [0, 1]: with u and z fixed a transportation problem, so that whole
            cells exist whenever fractions do
  z_rj, u_cj  row r, column c may use minipod j, binary
  A, B      most minipods of a row, of a column, integer >= 1
  d_A, d_B  whether A, B are above 1, binary: D = A - 1 + d_A (Eq. 3)

  minimise    alpha (B - 1 + d_B) + beta (A - 1 + d_A)                                        (Eq. 2)
  s.t.        cell[r,c]:        sum_j x_rcj = 1
              row_use[r,c,j]:   x_rcj <= z_rj
              column_use[r,c,j]:  x_rcj <= u_cj
              capacity[j]:      sum_rc x_rcj <= f_j
              row_spread[r]:    sum_j z_rj <= A
              column_spread[c]: sum_j u_cj <= B
              row_split:        A - 1 <= (M - 1) d_A
              column_split:     B - 1 <= (M - 1) d_B

**Row sets** (`row_set_model`): the least column spread for a given row spread a. Rows with the same a minipods are one.
Sets
  Z         sets of a minipods
Variables
  n_Z       rows that may use exactly the minipods Z, integer >= 0
  x_Zcj     cells of these rows in column c on minipod j in Z, >= 0 (integral for integral n and u)
  u_cj, B   as above

  minimise    B
  s.t.        rows:             sum_Z n_Z = R
              cell[Z,c]:        sum_{j in Z} x_Zcj = n_Z
              column_use[c,j]:  sum_{Z with j} x_Zcj <= min(R, f_j) u_cj
              capacity[j]:      sum_{Z with j} sum_c x_Zcj <= f_j
              column_spread[c]: sum_j u_cj <= B

**Shapes** (`shape_model`): a relaxation that bounds B for a given row spread a. A minipod that r rows and c columns
touch holds at most min(f_j, r c) cells, and rows touch at most a R times, columns B C times. More than ceil(f_j / c)
rows hold no more cells: such shapes count as r = ceil(f_j / c). A row is cut into at most a pieces, and a minipod
holds at most min(r, floor(f_j / w)) pieces of w cells or more, and none when w > c.
Sets
  k         sizes f_k of minipods, n_k of them
  (k, r, c) shapes of minipods of size f_k: v_krc = min(f_k, r c) cells, at most h_krc^w pieces of w cells or more
  p         ways to write C as a sum of at most a widths
Variables
  m_krc     minipods of size k with that shape, integer
  l_p       rows of pattern p, integer
  B         integer

  minimise    B
  s.t.        cells:        sum v_krc m_krc >= R C
              row_touches:  sum r m_krc <= a R
              column_touches:  sum c m_krc <= C B
              supply[k]:    sum_rc m_krc <= n_k
              rows:         sum_p l_p = R
              widths[w]:    sum_krc h_krc^w m_krc >= sum_p (widths of p that are >= w) l_p     for w = 1 ... C
"""

from collections import Counter
from itertools import combinations, combinations_with_replacement
from math import comb

import numpy as np
import pyomo.environ as pyo

from models.placement.arnold.true_spread.instance import TrueSpreadInstance, spreads, supports
from stowplan.arrays import FloatVector, IntMatrix, Mask


def cell_model(instance: TrueSpreadInstance) -> pyo.ConcreteModel:
    """Declare the whole problem."""
    free = dict(zip(instance.minipods, instance.free_nodes.tolist(), strict=True))
    alpha, most = instance.alpha, instance.num_minipods - 1
    model = pyo.ConcreteModel("true_spread")
    model.r = pyo.RangeSet(0, instance.num_rows - 1)
    model.c = pyo.RangeSet(0, instance.num_columns - 1)
    model.j = pyo.Set(initialize=instance.minipods)
    model.z = pyo.Var(model.r, model.j, domain=pyo.Binary)
    model.u = pyo.Var(model.c, model.j, domain=pyo.Binary)
    model.x = pyo.Var(model.r, model.c, model.j, bounds=(0, 1))
    model.A = pyo.Var(domain=pyo.Integers, bounds=(1, most + 1))
    model.B = pyo.Var(domain=pyo.Integers, bounds=(1, most + 1))
    model.d_A = pyo.Var(domain=pyo.Binary)
    model.d_B = pyo.Var(domain=pyo.Binary)
    model.objective = pyo.Objective(expr=alpha * (model.B - 1 + model.d_B) + (1 - alpha) * (model.A - 1 + model.d_A))
    cells = model.r * model.c
    model.cell = pyo.Constraint(cells, rule=lambda m, r, c: pyo.quicksum(m.x[r, c, j] for j in m.j) == 1)
    model.row_use = pyo.Constraint(cells, model.j, rule=lambda m, r, c, j: m.x[r, c, j] <= m.z[r, j])
    model.column_use = pyo.Constraint(cells, model.j, rule=lambda m, r, c, j: m.x[r, c, j] <= m.u[c, j])
    model.capacity = pyo.Constraint(
        model.j, rule=lambda m, j: pyo.quicksum(m.x[r, c, j] for r in m.r for c in m.c) <= free[j]
    )
    model.row_spread = pyo.Constraint(model.r, rule=lambda m, r: pyo.quicksum(m.z[r, j] for j in m.j) <= m.A)
    model.column_spread = pyo.Constraint(model.c, rule=lambda m, c: pyo.quicksum(m.u[c, j] for j in m.j) <= m.B)
    model.row_split = pyo.Constraint(expr=most * model.d_A >= model.A - 1)
    model.column_split = pyo.Constraint(expr=most * model.d_B >= model.B - 1)
    return model


def cell_point(instance: TrueSpreadInstance, labels: IntMatrix) -> FloatVector:
    """The point (n,) of `cell_model` that stands for `labels` (R, C), in the order of its declaration."""
    z, u = supports(labels, instance.num_minipods)
    x = labels[:, :, None] == np.arange(instance.num_minipods)
    a, b = spreads(labels)
    return np.concatenate([z.ravel(), u.ravel(), x.ravel(), [a, b, a > 1, b > 1]]).astype(np.float64)


def row_set_model(instance: TrueSpreadInstance, row_spread: int, column_spreads: tuple[int, int]) -> pyo.ConcreteModel:
    """Declare the problem for a row spread a, with B between the two `column_spreads`."""
    usable = np.flatnonzero(instance.free_nodes).tolist()
    free = {j: int(instance.free_nodes[j]) for j in usable}
    sets = list(combinations(usable, min(row_spread, len(usable))))
    model = pyo.ConcreteModel("row_sets")
    model.Z = pyo.RangeSet(0, len(sets) - 1)
    model.c = pyo.RangeSet(0, instance.num_columns - 1)
    model.j = pyo.Set(initialize=usable)
    model.inside = pyo.Set(initialize=[(k, j) for k, members in enumerate(sets) for j in members])
    model.n = pyo.Var(model.Z, domain=pyo.NonNegativeIntegers, bounds=(0, instance.num_rows))
    model.u = pyo.Var(model.c, model.j, domain=pyo.Binary)
    model.B = pyo.Var(domain=pyo.Integers, bounds=column_spreads)
    model.x = pyo.Var(model.c, model.inside, domain=pyo.NonNegativeReals)
    model.objective = pyo.Objective(expr=model.B)
    model.rows = pyo.Constraint(expr=pyo.quicksum(model.n.values()) == instance.num_rows)
    model.cell = pyo.Constraint(
        model.Z, model.c, rule=lambda m, k, c: pyo.quicksum(m.x[c, k, j] for j in sets[k]) == m.n[k]
    )
    with_minipod = {j: [k for k, members in enumerate(sets) if j in members] for j in usable}
    model.column_use = pyo.Constraint(
        model.c,
        model.j,
        rule=lambda m, c, j: (
            pyo.quicksum(m.x[c, k, j] for k in with_minipod[j]) <= min(instance.num_rows, free[j]) * m.u[c, j]
        ),
    )
    model.capacity = pyo.Constraint(
        model.j, rule=lambda m, j: pyo.quicksum(m.x[c, k, j] for c in m.c for k in with_minipod[j]) <= free[j]
    )
    model.column_spread = pyo.Constraint(model.c, rule=lambda m, c: pyo.quicksum(m.u[c, j] for j in m.j) <= m.B)
    return model


def shape_model(
    instance: TrueSpreadInstance, row_spread: int, least_column_spread: int, *, integral: bool
) -> pyo.ConcreteModel:
    """Declare the relaxation for a row spread a; as a linear program unless `integral`."""
    domain = pyo.NonNegativeIntegers if integral else pyo.NonNegativeReals
    rows, columns = instance.num_rows, instance.num_columns
    number = Counter(np.minimum(instance.free_nodes[instance.free_nodes > 0], rows * columns).tolist())
    sizes = sorted(number)
    shapes = [(f, r, c) for f in sizes for c in range(1, columns + 1) for r in range(1, min(rows, -(-f // c)) + 1)]
    patterns = _patterns(columns, row_spread)
    model = pyo.ConcreteModel("shapes")
    model.s = pyo.Set(initialize=shapes)
    model.m = pyo.Var(model.s, domain=domain)
    model.l = pyo.Var(range(len(patterns)), domain=domain)
    model.B = pyo.Var(domain=domain, bounds=(least_column_spread, instance.num_minipods))
    model.objective = pyo.Objective(expr=model.B)
    model.cells = pyo.Constraint(
        expr=pyo.quicksum(min(f, r * c) * model.m[f, r, c] for f, r, c in shapes) >= rows * columns
    )
    model.row_touches = pyo.Constraint(
        expr=pyo.quicksum(r * model.m[f, r, c] for f, r, c in shapes) <= row_spread * rows
    )
    model.column_touches = pyo.Constraint(
        expr=pyo.quicksum(c * model.m[f, r, c] for f, r, c in shapes) <= columns * model.B
    )
    model.supply = pyo.Constraint(
        sizes, rule=lambda m, size: pyo.quicksum(m.m[f, r, c] for f, r, c in shapes if f == size) <= number[size]
    )
    model.rows = pyo.Constraint(expr=pyo.quicksum(model.l.values()) == rows)
    model.widths = pyo.Constraint(
        range(1, columns + 1),
        rule=lambda m, w: (
            pyo.quicksum(_pieces(f, r, c, w, rows) * m.m[f, r, c] for f, r, c in shapes if c >= w)
            >= pyo.quicksum(sum(width >= w for width in p) * m.l[k] for k, p in enumerate(patterns))
        ),
    )
    return model


def _pieces(free: int, r: int, c: int, width: int, rows: int) -> int:
    """Pieces of at least `width` <= c cells that the shape (r, c) can hold; the last r stands for all above it."""
    touched = rows if r * c >= free else r
    return min(touched, free // width)


def _patterns(columns: int, row_spread: int) -> list[tuple[int, ...]]:
    """Widths of at most `row_spread` pieces that make up a row."""
    every = (p for num in range(1, row_spread + 1) for p in combinations_with_replacement(range(1, columns + 1), num))
    return [p for p in every if sum(p) == columns]


def read_row_sets(instance: TrueSpreadInstance, model: pyo.ConcreteModel) -> tuple[Mask, Mask]:
    """Minipods that each row (R, M) and each column (C, M) may use, from a loaded `row_set_model`."""
    shape = (instance.num_rows, instance.num_minipods)
    rows, columns = np.zeros(shape, dtype=np.bool_), np.zeros((instance.num_columns, shape[1]), dtype=np.bool_)
    last = np.cumsum([round(model.n[k].value) for k in model.Z])
    for k, j in model.inside:
        rows[(last[k - 1] if k else 0) : last[k], j] = True
    for c, j in model.c * model.j:
        columns[c, j] = model.u[c, j].value > 0.5
    return rows, columns


def num_row_set_columns(instance: TrueSpreadInstance, row_spread: int) -> int:
    """Variables of `row_set_model`, roughly, to judge whether it is worth declaring."""
    usable = int(np.count_nonzero(instance.free_nodes))
    members = min(row_spread, usable)
    return comb(usable, members) * members * instance.num_columns
