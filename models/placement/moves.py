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
"""

from collections.abc import Sequence

import pyomo.environ as pyo

from models.placement.pool import Demand, Pool
from solver.compilers.pyomo import compile_pyomo
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.solve import solve


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
    model = moves_model(pool, candidates)
    compiled = compile_pyomo(model)
    options = SolveOptions(solver="highs", time_limit_s=time_limit_s, relative_gap=0.0)
    result = solve(compiled.problem, options, SolveMonitor())
    if result.incumbent is None:
        return frozenset()
    compiled.load(result.incumbent)
    return frozenset(candidate.job_id for c, candidate in enumerate(candidates) if round(pyo.value(model.keep[c])) == 1)


def moves_model(pool: Pool, candidates: Sequence[Demand]) -> pyo.ConcreteModel:
    """Declare the model."""
    tenants: dict[int, list[int]] = {}
    for c, candidate in enumerate(candidates):
        tenants.setdefault(candidate.now[0][0], []).append(c)
    nodes = sorted(tenants)
    num_free = {i: pool.free[i].bit_count() for i in nodes}
    gpus = [candidate.num_gpus for candidate in candidates]
    blocks = pool.blocks[1:]
    *short_blocks, short_whole = pool.shortages()
    whole = [i for i in nodes if pool.is_whole(i)]
    needed = {
        block: short + sum(num_free[i] // block * block for i in nodes)
        for block, short in zip(blocks, short_blocks[1:], strict=True)
    }

    model = pyo.ConcreteModel("fewest_moves")
    model.keep = pyo.Var(range(len(candidates)), domain=pyo.Binary)
    model.free_blocks = pyo.Var(
        nodes, blocks, domain=pyo.NonNegativeIntegers, bounds=lambda _, i, block: (0, num_free[i] // block)
    )
    model.empty = pyo.Var(whole, domain=pyo.Binary)
    job_cost = 1 + sum(gpus)
    model.moves = pyo.Objective(
        expr=sum((job_cost + gpus[c]) * (1 - model.keep[c]) for c in range(len(candidates))), sense=pyo.minimize
    )

    def beside(model: pyo.ConcreteModel, i: int, block: int) -> object:
        return block * model.free_blocks[i, block] + sum(gpus[c] * model.keep[c] for c in tenants[i]) <= num_free[i]

    def vacated(model: pyo.ConcreteModel, i: int, c: int) -> object:
        return model.empty[i] + model.keep[c] <= 1

    def blocks_needed(model: pyo.ConcreteModel, block: int) -> object:
        kept = sum(gpus[c] * model.keep[c] for c in range(len(candidates)) if gpus[c] >= block)
        return sum(block * model.free_blocks[i, block] for i in nodes) + kept >= needed[block]

    model.beside = pyo.Constraint(nodes, blocks, rule=beside)
    model.vacated = pyo.Constraint([(i, c) for i in whole for c in tenants[i]], rule=vacated)
    model.blocks_needed = pyo.Constraint(blocks, rule=blocks_needed)
    if whole:
        model.whole_needed = pyo.Constraint(expr=sum(model.empty[i] for i in whole) >= short_whole + len(whole))
    return model
