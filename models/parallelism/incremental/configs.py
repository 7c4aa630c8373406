"""Stages as rows of arrays: Q ways to set up a stage, whatever its layers, for each of B numbers of micro-batches."""

from dataclasses import dataclass

import numpy as np

from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.tables import CostTables
from models.performance.iteration.memory import gradient_shard, in_full, optimizer_shard, shard
from stowplan.arrays import FloatArray, IntArray, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageShapes:
    """What of Q stages all that they cost follows from: stages of one shape cost the same, wherever they sit.

    Attributes
    ----------
    degree
        (Q,) index of the tensor degree.
    tp
        (Q,) tensor degree, as a floating point number.
    count
        (Q, K) replicas of each kind.
    reduction_s_per_byte
        (Q,) see `Landscape.reduction_s_per_byte`.
    send_s_per_byte
        (Q,) see `Landscape.send_s_per_byte`.
    """

    degree: IntArray
    tp: FloatArray
    count: IntArray
    reduction_s_per_byte: FloatArray
    send_s_per_byte: FloatArray

    @classmethod
    def of(cls, tables: CostTables, landscape: Landscape, replicas: IntArray, degree: IntArray) -> "StageShapes":
        """Shapes from replicas per node (Q, V) and indices of tensor degrees (Q,)."""
        tp = tables.degrees[degree].astype(np.float64)
        return cls(
            degree=degree,
            tp=tp,
            count=(replicas @ landscape.of_kind).astype(np.int64),
            reduction_s_per_byte=landscape.reduction_s_per_byte(replicas, tp),
            send_s_per_byte=landscape.send_s_per_byte(replicas, tp),
        )

    def text_of(self, stages: IntArray) -> bytes:
        """What tells apart the shapes of stages, given by their rows."""
        parts = (self.degree, self.count, self.reduction_s_per_byte, self.send_s_per_byte)
        return b"".join(part[stages].tobytes() for part in parts)

    def repeats(self, rows: IntArray) -> Mask:
        """(S,) of a sequence of rows, whether each costs what the one before it costs."""
        before, after = rows[:-1], rows[1:]
        same = (self.degree[after] == self.degree[before]) & (self.count[after] == self.count[before]).all(axis=-1)
        same &= self.reduction_s_per_byte[after] == self.reduction_s_per_byte[before]
        return np.concatenate([[False], same])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageConfigs:
    """Q stages; a row without replicas is no stage, costs nothing, and has the degrees of a stage with one replica.

    Attributes
    ----------
    degree, tp, count, reduction_s_per_byte, send_s_per_byte
        See `StageShapes`.
    dp
        (Q,) data degree, as a floating point number.
    uses
        (Q, K) whether there are replicas of a kind.
    local_batch
        (Q, B, K) largest local batch of each kind, 0 without replicas.
    layer_s
        (Q, B) forward and backward time of a plain layer; infinite where there are more replicas than samples, and
        without replicas.
    optimizer_s, overlap
        (Q,) of the slowest kind, of the kind that overlaps least; 0 and 1 without replicas.
    fixed_bytes, state_bytes, gradient_bytes
        (Q,) of a GPU: whatever the stage; weights and optimiser states, gradients per mean layer of parameters.
    """

    degree: IntArray
    tp: FloatArray
    dp: FloatArray
    count: IntArray
    uses: Mask
    local_batch: IntArray
    layer_s: FloatArray
    reduction_s_per_byte: FloatArray
    send_s_per_byte: FloatArray
    optimizer_s: FloatArray
    overlap: FloatArray
    fixed_bytes: FloatArray
    state_bytes: FloatArray
    gradient_bytes: FloatArray

    @classmethod
    def of(cls, tables: CostTables, landscape: Landscape, replicas: IntArray, degree: IntArray) -> "StageConfigs":
        """Configurations from replicas per node (Q, V) and indices of tensor degrees (Q,)."""
        return cls.of_shapes(tables, StageShapes.of(tables, landscape, replicas, degree))

    @classmethod
    def of_shapes(cls, tables: CostTables, shapes: StageShapes) -> "StageConfigs":
        """Configurations of these shapes."""
        sizes, zero = tables.model.coefficients.sizes, tables.model.profile.zero_stage
        degree, tp, count = shapes.degree, shapes.tp, shapes.count
        uses, total = count > 0, count.sum(axis=1)
        dp = np.maximum(total, 1).astype(np.float64)
        local_batch = _local_batches(tables, count, degree)
        costs = tables.layer_s[np.arange(len(tables.kinds)), degree[:, None, None], local_batch]
        possible = (total[:, None] > 0) & (tables.micro_batch >= dp[:, None])
        weights_in_full = sizes.parameter_bytes * np.asarray(in_full(tp, dp, zero >= 3))
        gradients_in_full = sizes.gradient_bytes * np.asarray(in_full(tp, dp, zero >= 2))
        states = sizes.parameter_bytes * np.asarray(shard(1.0, tp, dp, zero >= 3))
        states += sizes.optimizer_bytes * optimizer_shard(1.0, tp, dp, zero)
        return cls(
            degree=degree,
            tp=tp,
            dp=dp,
            count=count,
            uses=uses,
            local_batch=local_batch,
            layer_s=np.where(possible, costs.max(axis=-1), np.inf),
            reduction_s_per_byte=shapes.reduction_s_per_byte,
            send_s_per_byte=shapes.send_s_per_byte,
            optimizer_s=np.where(uses, tables.optimizer_s, 0.0).max(axis=1),
            overlap=np.where(total > 0, np.where(uses, tables.overlap, np.inf).min(axis=1), 1.0),
            fixed_bytes=np.broadcast_to(weights_in_full + gradients_in_full, dp.shape),
            state_bytes=states,
            gradient_bytes=sizes.gradient_bytes * np.asarray(gradient_shard(1.0, tp, dp, zero)),
        )


def _local_batches(tables: CostTables, count: IntArray, degree: IntArray) -> IntArray:
    """Largest local batch per kind (Q, B, K) when samples go, one by one, where they are done first."""
    used = count[:, None, :] > 0
    if len(tables.kinds) == 1:
        return np.where(used, -(-tables.micro_batch // np.maximum(count, 1))[:, :, None], 0)
    _, reached = tables.fill_order
    low = np.zeros((len(count), len(tables.micro_batch)), dtype=np.int64)
    high = np.full_like(low, reached.shape[1] - 1)
    row, empty = degree[:, None], ~used.any(axis=-1)
    while (low < high).any():
        middle = (low + high) // 2
        done = empty | ((reached[row, middle] * count[:, None, :]).sum(axis=-1) >= tables.micro_batch)
        low, high = np.where(done, low, middle + 1), np.where(done, middle, high)
    return np.where(used, reached[row, low], 0)
