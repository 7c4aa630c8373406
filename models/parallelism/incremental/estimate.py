"""Layers and iteration times of many plans at a time; agrees with `PerformanceModel.iteration` and `fits`, but for what
stages send, where that is counted: here it leaves a stage evenly by its nodes, and goes to other ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from models.parallelism.incremental.balance import split_chain, split_rows
from models.parallelism.incremental.configs import StageConfigs
from models.parallelism.incremental.tables import CostTables
from models.parallelism.incremental.terms import Rows, StageTerms, tightest
from models.performance.iteration.formulas import exposed_reduction_s, hiding_s, pipeline_s, scaling
from models.performance.iteration.memory import optimizer_shard
from models.performance.iteration.sends import copies, with_sends
from models.performance.iteration.sizes import boundary_bytes
from stowplan.arrays import FloatArray, IntArray, Mask

# For denominators that may be 0, where memory does not depend on the layers.
_TINY = 1e-30


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimates:
    """`total_s` (R,) iteration times, infinite where the layers do not fit; `layers` (R, S) of every stage."""

    total_s: FloatArray
    layers: IntArray


def estimate(tables: CostTables, configs: StageConfigs, rows: Rows) -> Estimates:
    """Distribute the layers such that the slowest stage is as fast as it can be, then time the plans."""
    terms = StageTerms.of(tables, configs, rows)
    position = np.arange(rows.stages.shape[1])
    real = position < rows.num_stages[:, None]
    if tables.units.equal:
        layers, possible = _split_equal(terms, real, position == 0, position == rows.num_stages[:, None] - 1)
    else:
        layers, possible = split_chain(_chain_costs(terms, real), tables.model.profile.num_layers)
    return Estimates(total_s=np.where(possible, total_s(terms, configs, rows, layers), np.inf), layers=layers)


def total_s(terms: StageTerms, configs: StageConfigs, rows: Rows, layers: IntArray) -> FloatArray:
    """Iteration times (R,) of plans with these layers (R, S)."""
    tables, model, stages = terms.tables, terms.tables.model, rows.stages
    ends = np.cumsum(layers, axis=1)
    table = model.share_table
    starts = ends - layers
    compute, tensor = (sums[ends] - sums[starts] for sums in (table.compute, table.tensor))
    parameters = table.parameters_of(starts, ends)
    forward = terms.forward_s(compute[..., None], tensor[..., None])
    backward = terms.backward_s(compute[..., None], tensor[..., None])
    tp, dp, zero = configs.tp[stages], configs.dp[stages], model.profile.zero_stage
    num_micro_batches = tables.num_micro_batches[rows.batch].astype(np.float64)
    volume = model.reduction_volume_bytes(parameters, dp, num_micro_batches[:, None])
    reduction = volume * configs.reduction_s_per_byte[stages]
    hiding = hiding_s(forward, backward, zero, num_micro_batches[:, None])
    exposed = exposed_reduction_s(hiding, reduction, configs.overlap[stages])
    extra = exposed + configs.optimizer_s[stages] * optimizer_shard(parameters, tp, dp, zero)
    if model.send_receive:
        boundaries = boundary_bytes(model.profile, model.coefficients.sizes)
        sent = np.where(ends < model.profile.num_layers, boundaries[np.maximum(ends, 1) - 1], 0.0)
        sent = sent * tables.micro_batch[rows.batch][:, None] * copies(model.profile, tp)
        one_way = sent * configs.send_s_per_byte[stages]
        forward, backward = (np.asarray(part) for part in with_sends(model.profile, forward, backward, one_way))
    warm_up, steady, last = pipeline_s(forward, backward, extra, num_micro_batches)
    num_gpus = np.where(np.arange(stages.shape[1]) < rows.num_stages[:, None], tp * dp, 0.0).sum(axis=1)
    return np.asarray((warm_up + steady + last) * scaling(num_gpus, model.coefficients.scale_loss))


def _split_equal(terms: StageTerms, real: Mask, first: Mask, last: Mask) -> tuple[IntArray, Mask]:
    """Equal layers: embedding and head are offsets of the first and the last stage, memory bounds the layers."""
    tables, num_layers = terms.tables, terms.tables.model.profile.num_layers
    compute, tensor, parameters, partitioned, replicated = tables.part_shares
    layer_s, first_s, last_s = terms.both_s(compute[:3], tensor[:3])
    cost = np.where(real, layer_s, np.inf)
    offset = np.where(first, first_s, 0.0) + np.where(last, last_s, 0.0)
    before, after = terms.needs_bytes(parameters, partitioned, replicated)
    at_first, at_last, at_copy = first[..., None], last[..., None], (last & ~first)[..., None]
    room = np.inf
    for of_layer, of_first, of_last, of_copy in (before, after):
        ends = at_first * of_first + at_last * of_last + at_copy * of_copy
        room = np.minimum(room, (terms.usable_bytes - ends) / np.maximum(of_layer, _TINY))
    most = tightest(np.where(terms.uses, room, np.inf))
    return split_rows(num_layers, cost, offset, np.minimum(np.maximum(most, 0.0), num_layers).astype(np.int64))


def _chain_costs(terms: StageTerms, real: Mask) -> Iterator[FloatArray]:
    """Per stage, times of layers [a, b) in every row (R, L + 1, L + 1), infinite where the stage may not be."""
    table = terms.tables.model.share_table
    sums = (table.compute, table.tensor, table.partitioned, table.replicated)
    compute, tensor, partitioned, replicated = ((column - column[:, None])[..., None] for column in sums)
    size = len(table.compute)
    parameters = table.parameters_of(np.arange(size)[:, None], np.arange(size))[..., None]
    absent = np.full((size, size), np.inf)
    absent[-1, -1] = 0.0
    some = np.triu(np.ones((size, size), dtype=bool), 1)
    for s in range(real.shape[1]):
        stage = terms.stage(s)
        before, after = stage.needs_bytes(parameters, partitioned, replicated)
        fits = (before <= stage.usable_bytes) & (after <= stage.usable_bytes)
        allowed = some & (fits | ~stage.uses).all(axis=-1)
        cost = np.where(allowed, stage.both_s(compute, tensor), np.inf)
        yield np.where(real[:, s, None, None], cost, absent)
