r"""The fewest jobs to move when the free GPUs of one type are too fragmented (rule (c) of Sia section 3.1).

Jobs that keep their configuration may keep their GPUs or be moved; all else is placed anew. By the theorem in
`models.placement.placeability`, the jobs that are moved and those that are new fit exactly when the placeability rows
hold on what the kept jobs leave free. A job on whole nodes never needs to move: its nodes come free and are needed
again, which cancels in every row.

Sets (one GPU type, R GPUs a whole node):
  c in K   partial-node jobs that may keep their s_c GPUs, on node i(c)
  i in I   nodes with such jobs; f_i GPUs free there when none is kept
  k        block sizes 2^k, 1 < 2^k < R

Variables: keep_c in {0,1}; b_ik integer, free blocks of 2^k on node i; e_i in {0,1}, node i is whole and free.

  min  sum_c (S + s_c)(1 - keep_c),   S = 1 + sum_c s_c           fewest jobs, then fewest GPUs
  s.t. 2^k b_ik + sum_{c on i} s_c keep_c                 <= f_i  blocks that fit beside the kept jobs
       e_i + keep_c                                       <= 1    c on i; e_i only where f_i = R on a node of R GPUs
       sum_i 2^k b_ik + sum_{c: s_c >= 2^k} s_c keep_c    >= d_k  blocks for all that is placed anew
       sum_i e_i                                          >= d_w  whole nodes
d_k, d_w: what is short when every job of K is moved and the nodes of I count for nothing. The row of single GPUs
cannot be violated by keeping.

Nearly always one or two moves are enough. What a move does to the rows depends on the size of the job, on how much is
free beside it, and on the size of its node, so that all different ones are soon tried, the cheapest first; only when
none of them is enough, or nodes are so large that they are many, the program is solved.

Assembled from arrays: Pyomo takes a second to load, and the declaration in `models.placement.moves_declaration`, which
tests compare, ten times what the solve does.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice

import numpy as np
from scipy import sparse

from models.placement.pool import Demand, Pool
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.sense import Sense
from solver.solve import solve

# A boolean variable above this is chosen; incumbents are integers up to the solver's tolerance.
_CHOSEN = 0.5
# Kinds of jobs of which pairs are tried: more take longer than the program.
_MOST_KINDS = 48


def few_moves(pool: Pool, kept: Sequence[Demand]) -> tuple[Demand, ...] | None:
    """The jobs that have to move, where these are one or two: the fewest, then those with the fewest GPUs, of equals
    the first. None where more have to, or where there are too many kinds of jobs to try all pairs.

    Parameters
    ----------
    pool
        The pool with all jobs placed that may stay, on which the rest does not fit; left as it is.
    kept
        The partial-node jobs among them.
    """
    # The first two of each kind: beside the first, the second is all that any other one is.
    kinds: dict[tuple[object, ...], list[Demand]] = {}
    tenants: dict[int, list[Demand]] = {}
    for demand in kept:
        node = demand.now[0][0]
        alike = kinds.setdefault((demand.num_gpus, pool.free[node].bit_count(), pool.size_of(node)), [])
        if not alike or (len(alike) == 1 and alike[0].now[0][0] != node):
            alike.append(demand)
        tenants.setdefault(node, []).append(demand)
    if len(kinds) > _MOST_KINDS:
        return None
    singles = sorted((alike[0] for alike in kinds.values()), key=_num_gpus)
    for demand in singles:
        if _is_enough(pool, (demand,)):
            return (demand,)
    for pair in sorted(_pairs(pool, list(kinds.values()), tenants), key=lambda pair: sum(map(_num_gpus, pair))):
        if _is_enough(pool, pair):
            return pair
    return None


def _pairs(
    pool: Pool, kinds: Sequence[Sequence[Demand]], tenants: Mapping[int, Sequence[Demand]]
) -> Iterator[tuple[Demand, Demand]]:
    """One of every kind of pairs: on two nodes, and on one."""
    for k, alike in enumerate(kinds):
        if len(alike) > 1:
            yield alike[0], alike[1]
        for others in kinds[k + 1 :]:
            apart = ((one, other) for one in alike for other in others if one.now[0][0] != other.now[0][0])
            yield from islice(apart, 1)
    known: set[tuple[object, ...]] = set()
    for node, jobs in tenants.items():
        of_size: dict[int, list[Demand]] = {}
        for demand in jobs:
            of_size.setdefault(demand.num_gpus, []).append(demand)
        for one, other in combinations([demand for alike in of_size.values() for demand in alike[:2]], 2):
            sizes = sorted((one.num_gpus, other.num_gpus))
            kind = *sizes, pool.free[node].bit_count(), pool.size_of(node)
            if kind not in known:
                known.add(kind)
                yield one, other


def _num_gpus(demand: Demand) -> int:
    return demand.num_gpus


def _is_enough(pool: Pool, moved: Sequence[Demand]) -> bool:
    for demand in moved:
        pool.give_back(demand, demand.now)
    fits = pool.fits()
    for demand in moved:
        pool.take(demand, demand.now)
    return fits


def fewest_moves(pool: Pool, candidates: Sequence[Demand], time_limit_s: float) -> frozenset[str]:
    """Ids of the candidates that can keep their GPUs: as many as possible.

    Parameters
    ----------
    pool
        The pool with none of the candidates placed.
    candidates
        Partial-node jobs that may stay.
    time_limit_s
        After this the best answer so far is taken; without any, none is kept.
    """
    options = SolveOptions(solver="highs", time_limit_s=time_limit_s, relative_gap=0.0)
    result = solve(moves_problem(pool, candidates), options, SolveMonitor())
    if result.incumbent is None:
        return frozenset()
    kept = result.incumbent[: len(candidates)] > _CHOSEN
    return frozenset(candidate.job_id for candidate, stays in zip(candidates, kept, strict=True) if stays)


def moves_problem(pool: Pool, candidates: Sequence[Demand]) -> MatrixProblem:
    """The program in matrix form, without names; columns: keep_c, then b_ik node by node, then e_i."""
    tenants: dict[int, list[int]] = {}
    for c, candidate in enumerate(candidates):
        tenants.setdefault(candidate.now[0][0], []).append(c)
    nodes, blocks = sorted(tenants), pool.blocks[1:]
    num_free = {i: pool.free[i].bit_count() for i in nodes}
    gpus = [candidate.num_gpus for candidate in candidates]
    whole = [i for i in nodes if pool.is_whole(i)]
    free_blocks = {key: len(gpus) + k for k, key in enumerate((i, block) for i in nodes for block in blocks)}
    empty = {i: len(gpus) + len(free_blocks) + k for k, i in enumerate(whole)}
    *short_blocks, short_whole = pool.shortages()

    rows = _Rows()
    for i, block in free_blocks:
        rows.add({free_blocks[i, block]: block} | {c: gpus[c] for c in tenants[i]}, -np.inf, num_free[i])
    for i in whole:
        for c in tenants[i]:
            rows.add({empty[i]: 1, c: 1}, -np.inf, 1)
    for block, short in zip(blocks, short_blocks[1:], strict=True):
        needed = short + sum(num_free[i] // block * block for i in nodes)
        kept = {c: num for c, num in enumerate(gpus) if num >= block}
        rows.add({free_blocks[i, block]: block for i in nodes} | kept, needed, np.inf)
    if whole:
        rows.add(dict.fromkeys(empty.values(), 1), short_whole + len(whole), np.inf)

    job_cost = 1 + sum(gpus)
    costs = [job_cost + num for num in gpus]
    upper = [1] * len(gpus) + [num_free[i] // block for i, block in free_blocks] + [1] * len(whole)
    return MatrixProblem(
        name="fewest_moves",
        sense=Sense.MINIMIZE,
        objective=np.array([-cost for cost in costs] + [0] * (len(upper) - len(costs)), dtype=np.float64),
        offset=float(sum(costs)),
        matrix=rows.matrix(len(upper)),
        row_lower=np.array(rows.lower, dtype=np.float64),
        row_upper=np.array(rows.upper, dtype=np.float64),
        lower=np.zeros(len(upper)),
        upper=np.array(upper, dtype=np.float64),
        integrality=np.ones(len(upper), dtype=np.bool_),
    )


class _Rows:
    """Rows of a matrix, one after the other, with their limits."""

    def __init__(self) -> None:
        self.lower: list[float] = []
        self.upper: list[float] = []
        self._columns: list[int] = []
        self._values: list[float] = []
        self._ends = [0]

    def add(self, row: Mapping[int, float], lower: float, upper: float) -> None:
        """Add a row of coefficients by column."""
        self._columns += row.keys()
        self._values += row.values()
        self._ends.append(len(self._columns))
        self.lower.append(lower)
        self.upper.append(upper)

    def matrix(self, num_columns: int) -> "sparse.csc_array":
        """All of them (m, n)."""
        shape = (len(self.lower), num_columns)
        values = np.array(self._values, dtype=np.float64)
        return sparse.csc_array(sparse.csr_array((values, self._columns, self._ends), shape=shape))
