"""How layers that differ, embedding and head enter formulas of equal layers: as shares of the mean layer.

Tied embeddings: the last of several stages holds a copy of the embedding's matrix, with gradients and optimiser states
as it has them of its own weights. The copy is in the stage's share of parameters, thus in its memory, optimiser and
gradient reduction, and not in the mean layer.
"""

from dataclasses import dataclass, field, fields

import numpy as np

from models.performance.iteration.profile import ModelProfile
from stowplan.arrays import FloatVector, IntArray
from stowplan.living import OfLiving

Layers = IntArray | int
# Names of the running sums.
SUMS = ("compute", "parameters", "tensor", "partitioned", "replicated", "experts", "exchanged_bytes")
# Shares that a table remembers: all stages of 90 layers.
_MOST_STAGES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShares:
    """Sums over the layers of a stage (embedding and head included) over the mean layer.

    `compute` by time (by FLOPs where kernels are not known), `parameters` by weights, `tensor` by tensor-parallel
    traffic, `partitioned` and `replicated` by activations kept. All are the number of layers where layers are equal and
    there is neither embedding nor head. `experts`: the part of `parameters` that are experts; `exchanged_bytes`: what a
    sample sends to experts and gets back in a forward pass.
    """

    num_layers: int
    compute: float
    parameters: float
    tensor: float
    partitioned: float
    replicated: float
    experts: float = 0.0
    exchanged_bytes: float = 0.0

    def __add__(self, other: "StageShares") -> "StageShares":
        """Of both together."""
        return StageShares(**{part.name: getattr(self, part.name) + getattr(other, part.name) for part in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ShareTable:
    """Running sums of the shares, float64 (L + 1,) each: a stage of layers [a, b) has `sums[b] - sums[a]`.

    `tied`: share of the parameters that the last of several stages has beyond that; see `parameters_of`. `experts` and
    `exchanged_bytes`: see `StageShares`.
    """

    compute: FloatVector
    parameters: FloatVector
    tensor: FloatVector
    partitioned: FloatVector
    replicated: FloatVector
    experts: FloatVector
    exchanged_bytes: FloatVector
    tied: float
    _known: dict[tuple[int, int], StageShares] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, profile: ModelProfile) -> "ShareTable":
        """Shares of a profile; all 0 where no layer has any of a cost. Models of one profile have them together."""
        known = _tables.get(profile)
        if known is None:
            known = cls._of(profile)
            _tables.put(profile, known)
        return known

    @classmethod
    def _of(cls, profile: ModelProfile) -> "ShareTable":
        prefix = profile.prefix
        return cls(
            compute=_in_mean_layers(prefix.compute),
            parameters=_in_mean_layers(prefix.parameters),
            tensor=_in_mean_layers(prefix.tensor_parallel_bytes),
            partitioned=_in_mean_layers(prefix.partitioned_activation_bytes),
            replicated=_in_mean_layers(prefix.replicated_activation_bytes),
            experts=prefix.expert_parameters * _per_layer(prefix.parameters),
            exchanged_bytes=prefix.exchanged_bytes,
            tied=profile.tied_parameters * _per_layer(prefix.parameters),
        )

    def stage(self, first: int, last: int) -> StageShares:
        """Shares of the stage of layers [first, last)."""
        known = self._known.get((first, last))
        if known is None:
            if len(self._known) >= _MOST_STAGES:
                self._known.clear()
            known = self._known[first, last] = self._stage(first, last)
        return known

    def _stage(self, first: int, last: int) -> StageShares:
        return StageShares(
            num_layers=last - first,
            compute=float(self.compute[last] - self.compute[first]),
            parameters=float(self.parameters_of(first, last)),
            tensor=float(self.tensor[last] - self.tensor[first]),
            partitioned=float(self.partitioned[last] - self.partitioned[first]),
            replicated=float(self.replicated[last] - self.replicated[first]),
            experts=float(self.experts[last] - self.experts[first]),
            exchanged_bytes=float(self.exchanged_bytes[last] - self.exchanged_bytes[first]),
        )

    def parameters_of(self, first: Layers, last: Layers) -> FloatVector:
        """Parameters of stages of layers [first, last), which broadcast, with the copy for the last of several.

        Such a stage ends the model and does not begin it. Stages without layers have nothing.
        """
        has_copy = (first > 0) & (first < last) & (last == len(self.parameters) - 1)
        return np.asarray(self.parameters[last] - self.parameters[first] + self.tied * has_copy)


_tables: OfLiving[ModelProfile, ShareTable] = OfLiving()


def _in_mean_layers(sums: FloatVector) -> FloatVector:
    return sums * _per_layer(sums)


def _per_layer(sums: FloatVector) -> float:
    """Mean layers per unit; 0 where no layer has anything."""
    total = float(sums[-1])
    return (len(sums) - 1) / total if total > 0 else 0.0
