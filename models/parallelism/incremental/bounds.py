r"""What no distribution of the layers over the stages of a plan can beat, for many candidates at a time.

Let tau_i be the time of a plain layer on stage i, per micro-batch, e_i the layers that embedding or head count for
there at least, and m_i the layers that memory holds at most. With t the time of the slowest stage,

    T >= (N_b - 1) t + max(t, W),   W = L min_i tau_i: the way of the first micro-batch

Bound: were layers divisible and memory large, t would be (L + sum_i e_i) / sum_i (1 / tau_i). May a plan be below a
limit? Only if whole layers fit when the slowest stage takes the most time that the limit leaves it:

    sum_i min(floor(t / tau_i - e_i), floor(m_i)) >= L,   t = min(limit / N_b, (limit - W) / (N_b - 1))

Where layers differ, the mean one stands for all of them, parts of layers count, and there is a margin.
"""

import numpy as np

from models.parallelism.incremental.configs import StageConfigs
from models.parallelism.incremental.tables import CostTables
from models.parallelism.incremental.terms import Rows, tightest
from models.performance.iteration.memory import working_bytes
from stowplan.arrays import FloatArray, IntArray, Mask, in_order

# For denominators that are 0 where the numerator does not count.
_TINY = 1e-30
# Rounding, and what stages of layers that differ may be off their mean.
_EXACT, _ESTIMATED = 1.0 - 1e-9, 0.9
_ROUNDING = 1e-6


def divisible_bounds(tables: CostTables, configs: StageConfigs, stages: IntArray, num_stages: IntArray) -> FloatArray:
    """Bounds (C, B) that leave memory aside, infinite where there are more replicas than samples.

    Parameters
    ----------
    stages, num_stages
        (C, S) rows of the stages, those behind the last one without replicas; (C,).
    """
    # Of rows without replicas 0.
    rate = (1.0 / configs.layer_s)[stages]
    level = (tables.model.profile.num_layers + tables.units.first_layers + tables.units.last_layers) / np.maximum(
        in_order(rate, axis=1), _TINY
    )
    bounds = _time_s(tables, level, rate.max(axis=1), tables.num_micro_batches)
    return np.where((rate > 0).sum(axis=1) == num_stages[:, None], bounds, np.inf)


def may_beat(tables: CostTables, configs: StageConfigs, rows: Rows, limits_s: FloatArray) -> Mask:
    """Whether plans may be below their limits (R,)."""
    if not len(rows.stages):
        return np.empty(0, dtype=bool)
    num_layers, num_micro_batches = tables.model.profile.num_layers, tables.num_micro_batches[rows.batch]
    # Stages of all rows one after another.
    row, position = np.nonzero(np.arange(rows.stages.shape[1]) < rows.num_stages[:, None])
    starts = np.cumsum(rows.num_stages) - rows.num_stages
    stage, batch = rows.stages[row, position], rows.batch[row]
    rate = 1.0 / configs.layer_s[stage, batch]
    warm_up = num_layers / np.maximum.reduceat(rate, starts)
    limits_s = limits_s / _margin(tables)
    left = limits_s - warm_up
    slowest = np.where(left < 0, -1.0, limits_s / num_micro_batches)
    slowest = np.where(num_micro_batches > 1, np.minimum(slowest, left / np.maximum(num_micro_batches - 1, 1)), slowest)
    layers = slowest[row] * rate
    layers[starts] -= tables.units.first_layers
    layers[starts + rows.num_stages - 1] -= tables.units.last_layers
    room = _room(tables, configs, stage, batch, rows.num_stages[row] - position) / _margin(tables)
    whole = np.floor(np.minimum(layers, room) + _ROUNDING) if tables.units.equal else np.minimum(layers, room)
    return np.add.reduceat(whole, starts) >= num_layers


def _time_s(tables: CostTables, level: FloatArray, fastest: FloatArray, num_micro_batches: IntArray) -> FloatArray:
    first = np.maximum(level, tables.model.profile.num_layers / np.maximum(fastest, _TINY))
    return np.asarray(((num_micro_batches - 1) * level + first) * _margin(tables))


def _margin(tables: CostTables) -> float:
    return _EXACT if tables.units.equal else _ESTIMATED


def _room(tables: CostTables, configs: StageConfigs, stage: IntArray, batch: IntArray, behind: IntArray) -> FloatArray:
    """Layers that the memory of stages holds at most, embedding and head left aside; all arrays (n,)."""
    layer, num_micro_batches = tables.units.layer, tables.num_micro_batches[batch]
    state = (configs.state_bytes * layer.parameters)[stage]
    state += np.where(num_micro_batches > behind, (configs.gradient_bytes * layer.parameters)[stage], 0.0)
    kept = tables.activation_bytes(configs.tp, layer.partitioned, layer.replicated)[stage]
    in_flight = np.minimum(num_micro_batches, behind) * kept
    need = state[:, None] + in_flight[:, None] * configs.local_batch[stage, batch]
    working = configs.local_batch[stage, batch] * working_bytes(tables.model.profile, configs.tp[stage][:, None])
    usable = tables.usable_bytes - configs.fixed_bytes[stage][:, None] - working
    room = np.where(configs.uses[stage], usable / np.maximum(need, _TINY), np.inf)
    return np.maximum(tightest(room), 0.0)
