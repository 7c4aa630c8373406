r"""Times that no distribution of the layers over the stages of a plan can beat, for many candidates at a time.

Let tau_i be the time of a plain layer on stage i, per micro-batch, and m_i the layers that its memory holds at most.
Were layers divisible, the fullest stage would take the level t at which

    sum_i min(t / tau_i, m_i + e) = L + e,   e: what embedding and head count

and T >= (N_b - 1) t + max(t, L min_i tau_i): the steady phase, and the way of the first micro-batch. Without m_i, the
level is a quotient; with them, two rounds of filling give one below t, which is enough for a bound. Where layers
differ, the mean one stands for all of them, and bounds are estimates.
"""

import numpy as np

from models.parallelism.incremental.configs import StageConfigs
from models.parallelism.incremental.landscape import Floats, Integers
from models.parallelism.incremental.tables import CostTables
from models.parallelism.incremental.terms import Rows

# For denominators that are 0 where the numerator does not count.
_TINY = 1e-30


def divisible_bounds(tables: CostTables, configs: StageConfigs, stages: Integers, num_stages: Integers) -> Floats:
    """Bounds (C, B) that leave memory aside, infinite where there are more replicas than samples.

    Parameters
    ----------
    stages, num_stages
        (C, S) rows of the stages, those behind the last one without replicas; (C,).
    """
    present = np.arange(stages.shape[1]) < num_stages[:, None]
    rate = (1.0 / configs.layer_s)[stages[present]]
    starts = np.cumsum(num_stages) - num_stages
    level = (tables.model.profile.num_layers + tables.units.ends) / np.maximum(np.add.reduceat(rate, starts), _TINY)
    bounds = _time_s(tables, level, np.maximum.reduceat(rate, starts), tables.num_micro_batches)
    return np.where(np.minimum.reduceat(rate, starts) > 0, bounds, np.inf)


def memory_bounds(tables: CostTables, configs: StageConfigs, rows: Rows) -> Floats:
    """Bounds (R,) with memory, infinite where the layers do not fit."""
    if not len(rows.stages):
        return np.empty(0)
    num_layers, work = tables.model.profile.num_layers, tables.model.profile.num_layers + tables.units.ends
    present = np.arange(rows.stages.shape[1]) < rows.num_stages[:, None]
    # Stages of all rows one after another.
    row, position = np.nonzero(present)
    starts = np.cumsum(rows.num_stages) - rows.num_stages
    stage, batch = rows.stages[present], rows.batch[row]
    rate = 1.0 / configs.layer_s[stage, batch]
    layers = _room(tables, configs, stage, batch, rows.num_stages[row] - position)
    room = layers + tables.units.ends
    level = work / np.add.reduceat(rate, starts)
    full = rate * level[row] > room
    left = work - np.add.reduceat(np.where(full, room, 0.0), starts)
    open_rate = np.add.reduceat(np.where(full, 0.0, rate), starts)
    level = np.maximum(level, left / np.maximum(open_rate, _TINY))
    bounds = _time_s(tables, level, np.maximum.reduceat(rate, starts), tables.num_micro_batches[rows.batch])
    return np.where(np.add.reduceat(layers, starts) >= num_layers * (1.0 - 1e-9), bounds, np.inf)


def _time_s(tables: CostTables, level: Floats, fastest: Floats, num_micro_batches: Integers) -> Floats:
    first = np.maximum(level, tables.model.profile.num_layers / np.maximum(fastest, _TINY))
    return np.asarray((num_micro_batches - 1) * level + first)


def _room(tables: CostTables, configs: StageConfigs, stage: Integers, batch: Integers, behind: Integers) -> Floats:
    """Layers that the memory of stages holds at most, embedding and head left aside; all arrays (n,)."""
    layer, num_micro_batches = tables.units.layer, tables.num_micro_batches[batch]
    state = (configs.state_bytes * layer.parameters)[stage]
    state += np.where(num_micro_batches > behind, (configs.gradient_bytes * layer.parameters)[stage], 0.0)
    kept = tables.activation_bytes(configs.tp, layer.partitioned, layer.replicated)[stage]
    in_flight = np.minimum(num_micro_batches, behind) * kept
    need = state[:, None] + in_flight[:, None] * configs.local_batch[stage, batch]
    usable = tables.usable_bytes - configs.fixed_bytes[stage][:, None]
    room = np.where(configs.uses[stage], usable / np.maximum(need, _TINY), np.inf)
    least: Floats = np.maximum(np.min(room, axis=-1), 0.0)
    return least
