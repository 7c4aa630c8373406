"""Crius' estimate of a cell (Crius section 5.1): 2^s plans, assembled from stages that are data parallel only or tensor
parallel only; the fastest one stands for the cell.

Tensor groups do not leave their node here, so that "tensor parallel only" means the largest degree that a stage can
have. Of the stage partitions, Crius has one, with stages of similar load: here the one of least computation bias.
"""

import numpy as np

from models.parallelism.grid.search import Candidate, GridSearch
from models.performance.iteration.formulas import pipeline_s
from stowplan.arrays import FloatArray, IntArray

# 2^16 plans at most.
MAX_STAGES = 16


def assembled(search: GridSearch) -> Candidate | None:
    """The fastest assembled plan of a cell, with the first number of micro-batches at which any fits."""
    row = int(search.bias.argmin())
    num_stages = search.pipelines.num_stages
    choices = (np.arange(1 << num_stages)[:, None] >> np.arange(num_stages)) & 1
    for count in search.num_micro_batches:
        found = _fastest(search, row, count, choices)
        if found is not None:
            return found
    return None


def _fastest(search: GridSearch, row: int, num_micro_batches: int, choices: IntArray) -> Candidate | None:
    """The fastest of the plans with `choices` (2^s, s): 0 data parallel, 1 tensor parallel."""
    operators, degrees = search.pipelines.operators, search.space.degrees
    bounds = search.pipelines.bounds[row]
    stages = np.arange(search.pipelines.num_stages)
    interval, size = operators.index[bounds[:-1], bounds[1:]], search.size_index[:, row]
    costs = operators.costs(num_micro_batches)
    memory = operators.table.memory_bytes(num_micro_batches, range(len(stages), 0, -1))
    valid = costs.valid[size]
    # Options are in the order of their tensor degree: the first is data parallel, the last tensor parallel.
    ends = np.stack([valid.argmax(axis=1), valid.shape[1] - 1 - valid[:, ::-1].argmax(axis=1)], axis=1)
    options = np.take_along_axis(ends, choices.T, axis=1).T

    def of_stage(values: FloatArray) -> FloatArray:
        return np.asarray(values[interval, size, options])

    once_s = of_stage(costs.once_s)
    parts = pipeline_s(
        of_stage(costs.forward_s), of_stage(costs.backward_s), once_s + of_stage(costs.optimizer_s), num_micro_batches
    )
    # The memory of what is not valid is infinite.
    fits = operators.table.fits(memory[stages, interval, size, options]).all(axis=1)
    seconds = np.where(fits, sum(parts), np.inf)
    best = int(seconds.argmin())
    if not np.isfinite(seconds[best]):
        return None
    communication_s = of_stage(costs.communication_s)[best]
    return Candidate(
        layers=search.pipelines.layers(row),
        degrees=tuple(degrees.degrees(int(g), int(t)) for g, t in zip(size, options[best], strict=True)),
        num_micro_batches=num_micro_batches,
        computation_bias=float(search.bias[row]),
        communication_load_s=float(
            (num_micro_batches - 1) * communication_s.max() + communication_s.sum() + once_s[best].sum()
        ),
        seconds=float(seconds[best]),
    )
