"""The model of `models.placement.moves`, declared in Pyomo: what its arrays are compared with."""

from collections.abc import Sequence

import pyomo.environ as pyo

from models.placement.pool import Demand, Pool


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
