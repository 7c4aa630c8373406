"""The performance model of one job in tables, for evaluating many plans at a time (formulas: `models.performance`).

T tensor degrees, K kinds of nodes, B numbers of micro-batches; local batches run from 0 to the global batch G.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from models.parallelism.incremental.landscape import Kind
from models.performance.iteration.memory import activation_bytes, working_bytes
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.profile import LayerCost, ModelProfile
from models.performance.iteration.shares import StageShares
from models.performance.iteration.sizes import boundary_bytes
from models.software import FEATURES
from stowplan.arrays import FloatArray, IntArray
from stowplan.recent import Recent

_COSTS = (
    "compute",
    "tensor_parallel_bytes",
    "parameters",
    "partitioned_activation_bytes",
    "replicated_activation_bytes",
)


# Of what was chosen among candidates: index of the candidate and of its number of micro-batches, iteration time in
# seconds, and layers of its stages.
Choice = tuple[int, int, float, tuple[int, ...]]

# Bytes of all tables that are kept, and of one of them: they grow with the batch, a table of 1,024 takes some 450 KB.
_MOST_BYTES = 2**26
_MOST_OF_ONE = _MOST_BYTES // 4
# Tables of jobs that are not the same, and of what they may do: their choices take memory, too.
_MOST_TABLES = 64
# Answers that tables remember, of some hundred bytes each.
_MOST_CHOICES = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What balancing reckons in: shares of a plain layer, and what the first and the last stage have beyond layers.

    Where layers differ, the mean one is the plain one, with embedding and head in it.
    """

    equal: bool
    layer: StageShares
    first: StageShares
    last: StageShares

    @property
    def first_layers(self) -> float:
        """Plain layers that the embedding counts for at least."""
        return self._in_layers(self.first)

    @property
    def last_layers(self) -> float:
        """The same for the head."""
        return self._in_layers(self.last)

    def _in_layers(self, end: StageShares) -> float:
        layer = self.layer
        pairs = ((end.compute, layer.compute), (end.tensor, layer.tensor))
        return min(part / plain for part, plain in pairs if plain > 0)


@dataclass(frozen=True, kw_only=True, eq=False)
class CostTables:
    """Costs of a job.

    Attributes
    ----------
    facts
        What tells tables apart: those of equal facts are equal.
    model
        On no node: what is here does not depend on where the job is. It cannot be retrained.
    degrees
        (T,) tensor degrees that the model admits, ascending.
    num_micro_batches, micro_batch
        (B,) divisors N_b of the global batch, descending, and G / N_b.
    optimizer_s, overlap, usable_bytes
        (K,)
    forward_s, backward_s
        (K, T, G + 1) computation of the mean layer, by local batch.
    communication_s
        (K, T, G + 1) tensor-parallel communication of a forward pass of the mean layer, by local batch.
    """

    facts: Hashable
    model: PerformanceModel
    kinds: tuple[Kind, ...]
    degrees: IntArray
    num_micro_batches: IntArray
    micro_batch: IntArray
    forward_s: FloatArray
    backward_s: FloatArray
    optimizer_s: FloatArray
    overlap: FloatArray
    usable_bytes: FloatArray
    communication_s: FloatArray

    @classmethod
    def of(
        cls,
        model: PerformanceModel,
        kinds: tuple[Kind, ...],
        degrees: Sequence[int],
        num_micro_batches: int | None = None,
    ) -> "CostTables":
        """Tables for these kinds of nodes and tensor degrees, for one number of micro-batches or all that divide; those
        of a job are kept for the next time.

        Raises
        ------
        InputError
            When the model does not know a GPU type.
        """
        facts = _Facts(model), kinds, tuple(degrees), num_micro_batches
        found = kept.get(facts)
        if found is None:
            found = _tables(*facts)
            kept.put(facts, found, found.num_bytes)
        return found

    @property
    def num_bytes(self) -> int:
        """Memory of the tables, with those that are made when they are asked for."""
        num_kinds, num_degrees, length = self.forward_s.shape
        # Three given, `layer_s`, and of `fill_order` the times, and samples of every kind.
        return int(self.forward_s.itemsize * num_kinds * num_degrees * length * (5 + num_kinds))

    @cached_property
    def choices(self) -> dict[bytes, tuple[Choice, ...]]:
        """What was chosen with these tables, by what was asked; see `selection`."""
        return {}

    def remember(self, key: bytes, chosen: Sequence[Choice]) -> None:
        """Keep what was chosen."""
        if len(self.choices) >= _MOST_CHOICES:
            self.choices.clear()
        self.choices[key] = tuple(chosen)

    @cached_property
    def layer_s(self) -> FloatArray:
        """(K, T, G + 1) forward and backward time of a plain layer, by local batch; never falls with it."""
        unit, again = self.units.layer, self.model.profile.backward_all_reduces
        both = (self.forward_s + self.backward_s) * unit.compute
        # A message that is just large enough for a better bandwidth may be faster than a smaller one.
        return np.maximum.accumulate(both + self.communication_s * unit.tensor * (1.0 + again), axis=-1)

    def activation_bytes(
        self, tp: FloatArray, partitioned: FloatArray | float, replicated: FloatArray | float
    ) -> FloatArray:
        """What a sample in flight keeps on a GPU for shares of activations."""
        return np.asarray(
            activation_bytes(self.model.profile, self.model.coefficients.sizes, tp, partitioned, replicated)
        )

    @cached_property
    def units(self) -> Units:
        """Units of the layers."""
        profile = self.model.profile
        if len(set(profile.layers)) == 1:
            layer, first, last = (
                _shares(profile, part) for part in (profile.layers[0], profile.embedding, profile.head)
            )
            return Units(equal=True, layer=layer, first=first, last=last)
        mean = [float(getattr(profile.prefix, name)[-1] > 0) for name in _COSTS]
        nothing = _shares(profile, LayerCost())
        return Units(equal=False, layer=_stage_shares(mean), first=nothing, last=nothing)

    @cached_property
    def part_shares(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Shares in computation, tensor-parallel traffic, parameters and both kinds of activations, (4, 1, 1, 1) each:
        of a plain layer, of what the first and the last stage have beyond layers, and of the copy of tied embeddings
        that the last of several stages has. In one array each, what depends on them is reckoned at once."""
        units = self.units
        parts = [
            (part.compute, part.tensor, part.parameters, part.partitioned, part.replicated)
            for part in (units.layer, units.first, units.last)
        ]
        copy = (0.0, 0.0, self.model.share_table.tied, 0.0, 0.0)
        compute, tensor, parameters, partitioned, replicated = np.array([*parts, copy]).T[..., None, None, None]
        return compute, tensor, parameters, partitioned, replicated

    @cached_property
    def packed(self) -> tuple[IntArray | FloatArray, ...]:
        """What `Tables` of `cpp/` reads, for one kind of nodes and equal layers."""
        model, units = self.model, self.units
        profile, sizes, features = model.profile, model.coefficients.sizes, FEATURES[model.profile.software]
        own = profile.micro_batch or 0
        whole = (profile.num_layers, profile.zero_stage, own, model.send_receive, features.splits_sends)
        real = (
            *(self.usable_bytes[0], self.optimizer_s[0], self.overlap[0], profile.backward_all_reduces),
            *(sizes.parameter_bytes, sizes.gradient_bytes, sizes.optimizer_bytes),
            *(units.first_layers, units.last_layers, model.share_table.tied),
        )
        degrees = self.degrees.astype(np.float64)
        compute, tensor, parameters, partitioned, replicated = (part[:, 0, 0] for part in self.part_shares)
        arrays = (
            np.array((*whole, features.overlaps_sends), dtype=np.int64),
            *(self.num_micro_batches, self.micro_batch, np.array(real), degrees, self.layer_s[0]),
            *(self.forward_s[0], self.backward_s[0], self.communication_s[0]),
            np.concatenate([compute, tensor, parameters]),
            self.activation_bytes(degrees, partitioned, replicated),
            np.broadcast_to(working_bytes(profile, degrees), degrees.shape),
            *(model.share_table.compute, model.share_table.tensor, model.share_table.parameters),
            boundary_bytes(profile, sizes),
        )
        return tuple(map(np.ascontiguousarray, arrays))

    @cached_property
    def fill_order(self) -> tuple[FloatArray, IntArray]:
        """How samples fill replicas of several kinds, slowest replica first to be relieved: for every tensor degree
        the times of (kind, local batch) in ascending order, (T, K G), and how many samples a replica of each kind has
        when these are reached, (T, K G, K)."""
        num_kinds, num_degrees, length = self.layer_s.shape
        times = self.layer_s[:, :, 1:].transpose(1, 0, 2).reshape(num_degrees, -1)
        order = np.argsort(times, axis=1, kind="stable")
        kind_of = order // (length - 1)
        reached = np.cumsum(kind_of[:, :, None] == np.arange(num_kinds), axis=1)
        return np.take_along_axis(times, order, axis=1), np.maximum(reached, 1)


def _shares(profile: ModelProfile, part: LayerCost) -> StageShares:
    """Shares of the mean layer that a part of the model has."""
    scale = {name: profile.num_layers / (getattr(profile.prefix, name)[-1] or np.inf) for name in _COSTS}
    return _stage_shares([getattr(part, name) * scale[name] for name in _COSTS])


def _stage_shares(shares: Sequence[float]) -> StageShares:
    """From shares in the order of `_COSTS`."""
    compute, tensor, parameters, partitioned, replicated = shares
    return StageShares(
        num_layers=1,
        compute=compute,
        tensor=tensor,
        parameters=parameters,
        partitioned=partitioned,
        replicated=replicated,
    )


class _Facts:
    """A performance model by what tables take from it: they are the same on all nodes.

    Profiles and coefficients are told apart by identity; they have many parts, and some no hash.
    """

    __slots__ = ("_key", "model")

    def __init__(self, model: PerformanceModel) -> None:
        # Kept as long as the tables: not with all nodes of a cluster, which the way to retrain has, too. Tables are of
        # the checkpointing that the model has.
        self.model = replace(model, fabric=replace(model.fabric, hosts={}), retrained=None)
        self._key = (
            *map(id, (model.profile, model.coefficients, model.memory_bytes)),
            *(model.headroom, model.fabric.saturation_bytes, model.send_receive),
            *(model.context_parallel, model.expert_parallel),
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Facts) and self._key == other._key


def _tables(
    facts: _Facts, kinds: tuple[Kind, ...], degrees: tuple[int, ...], num_micro_batches: int | None
) -> CostTables:
    model = facts.model
    batch = model.profile.global_batch
    of_types = [model.coefficients_of(kind.gpu_type) for kind in kinds]
    divisors = [n for n in range(batch, 0, -1) if batch % n == 0]
    counts = np.array(divisors if num_micro_batches is None else [num_micro_batches])
    tp = np.array(degrees, dtype=np.int64)
    intra = np.array([kind.intra_bytes_per_s for kind in kinds])
    samples, degree = np.arange(batch + 1.0), tp[:, None].astype(float)
    communication = model.tensor_communication_s(samples, 1.0, degree, intra[:, None, None])
    slower = np.array([np.broadcast_arrays(*model.slowdowns(k.gpu_type, samples, degree)) for k in kinds])
    forward = np.array([c.compute_s for c in of_types])[:, None, None] * samples / degree
    ratio = np.array([c.backward_ratio for c in of_types])[:, None, None]
    return CostTables(
        facts=(facts, kinds, degrees, num_micro_batches),
        model=model,
        kinds=kinds,
        degrees=tp,
        num_micro_batches=counts,
        micro_batch=batch // counts,
        forward_s=forward * slower[:, 0],
        backward_s=ratio * forward * slower[:, 1],
        optimizer_s=np.array([c.optimizer_s for c in of_types]),
        overlap=np.array([c.overlap for c in of_types]),
        usable_bytes=np.array([model.usable_bytes(kind.gpu_type) for kind in kinds]),
        communication_s=np.asarray(communication),
    )


kept: Recent[CostTables] = Recent(most=_MOST_BYTES, most_of_one=_MOST_OF_ONE, most_entries=_MOST_TABLES)
