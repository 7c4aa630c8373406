"""The formulas' terms of the stages of R plans: everything but the layers. S stages, K kinds of nodes."""

from dataclasses import dataclass, fields

import numpy as np

from models.parallelism.incremental.configs import StageConfigs
from models.parallelism.incremental.tables import CostTables
from models.performance.iteration.memory import working_bytes
from stowplan.arrays import FloatArray, IntArray, Mask

# Part of the memory left to rounding: a plan that fits here fits in the reference too.
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
    """R plans: `stages` (R, S) configuration of each stage, `num_stages` (R,), `batch` (R,) index into the numbers of
    micro-batches, `candidate` (R,) index of the candidate. Entries behind the last stage point to a configuration
    without replicas."""

    stages: IntArray
    num_stages: IntArray
    batch: IntArray
    candidate: IntArray

    def at(self, k: IntArray | slice) -> "Rows":
        """Some of the plans, in this order, as wide as they need."""
        num_stages = self.num_stages[k]
        return Rows(
            stages=self.stages[k, : num_stages.max(initial=1)],
            num_stages=num_stages,
            batch=self.batch[k],
            candidate=self.candidate[k],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTerms:
    """Terms of stages; the leading axes are those of the plans and stages.

    Attributes
    ----------
    uses
        (..., K) whether the stage has replicas of the kind.
    computation_s, backward_computation_s, communication_s
        (..., K) per unit of computation and of tensor-parallel traffic.
    samples
        (..., K) samples whose activations a GPU holds.
    usable_bytes
        (..., K) memory, less what does not depend on the layers.
    state_bytes, gradient_bytes
        (..., 1) per unit of parameters.
    coexist
        (..., 1) whether gradients and all activations are there at the same time.
    tp
        (..., 1)
    """

    tables: CostTables
    uses: Mask
    computation_s: FloatArray
    backward_computation_s: FloatArray
    communication_s: FloatArray
    samples: IntArray
    usable_bytes: FloatArray
    state_bytes: FloatArray
    gradient_bytes: FloatArray
    coexist: Mask
    tp: FloatArray

    @classmethod
    def of(cls, tables: CostTables, configs: StageConfigs, rows: Rows) -> "StageTerms":
        """Terms (R, S, ...) of the stages of some plans."""
        stages = rows.stages
        tp = configs.tp[stages][..., None]
        batch = configs.local_batch[stages, rows.batch[:, None]]
        at = (np.arange(len(tables.kinds)), configs.degree[stages][..., None], batch)
        behind = (rows.num_stages[:, None] - np.arange(stages.shape[1]))[..., None]
        num_micro_batches = tables.num_micro_batches[rows.batch][:, None, None]
        fixed = configs.fixed_bytes[stages][..., None] + batch * working_bytes(tables.model.profile, tp)
        return cls(
            tables=tables,
            uses=configs.uses[stages],
            computation_s=tables.forward_s[at],
            backward_computation_s=tables.backward_s[at],
            communication_s=tables.communication_s[at],
            samples=np.minimum(num_micro_batches, behind) * batch,
            usable_bytes=tables.usable_bytes * (1.0 - _ROUNDING) - fixed,
            state_bytes=configs.state_bytes[stages][..., None],
            gradient_bytes=configs.gradient_bytes[stages][..., None],
            coexist=num_micro_batches > behind,
            tp=tp,
        )

    def stage(self, s: int) -> "StageTerms":
        """Terms (R, 1, 1, ...) of stage `s`, for tables of first and last layers."""
        cut = {
            field.name: getattr(self, field.name)[:, s][:, None, None]
            for field in fields(self)
            if field.name != "tables"
        }
        return StageTerms(tables=self.tables, **cut)

    def forward_s(self, compute: FloatArray | float, tensor: FloatArray | float) -> FloatArray:
        """Forward time of the slowest replica (...), for shares that broadcast to (..., 1)."""
        return slowest(self.computation_s * compute + self.communication_s * tensor)

    def backward_s(self, compute: FloatArray | float, tensor: FloatArray | float) -> FloatArray:
        """The same for the backward pass."""
        again = self.tables.model.profile.backward_all_reduces
        return slowest(self.backward_computation_s * compute + self.communication_s * (again * tensor))

    def both_s(self, compute: FloatArray | float, tensor: FloatArray | float) -> FloatArray:
        """The sum of both."""
        return self.forward_s(compute, tensor) + self.backward_s(compute, tensor)

    def needs_bytes(
        self, parameters: FloatArray | float, partitioned: FloatArray | float, replicated: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Memory (..., K) when the last activation is there, and when the last gradient is; the peak is the larger."""
        state, gradients = self.state_bytes * parameters, self.gradient_bytes * parameters
        activations = self.samples * self.tables.activation_bytes(self.tp, partitioned, replicated)
        return state + activations + self.coexist * gradients, np.asarray(state + gradients)


def slowest(of_kinds: FloatArray) -> FloatArray:
    """Largest over the kinds, the last axis; of one kind, which is the rule, without looking."""
    largest: FloatArray = of_kinds[..., 0] if of_kinds.shape[-1] == 1 else of_kinds.max(axis=-1)
    return largest


def tightest(of_kinds: FloatArray) -> FloatArray:
    """Smallest over the kinds, likewise."""
    least: FloatArray = of_kinds[..., 0] if of_kinds.shape[-1] == 1 else of_kinds.min(axis=-1)
    return least
