r"""How fast the kernels of a layer are at the size that a plan gives them.

A matrix product of m x k with k x n is computed in tiles of its result, one on each multiprocessor at a time: in waves,
of which the last one is seldom full, and with small tiles, which are slower, where large ones are too few.

    time = min over tiles of  waves x P x tile x 2 (k + 64) / speed of the tile / rate,   waves = ceil(tiles / P)

P: multiprocessors; 64: filling and emptying the pipeline of a tile. Tensor parallelism divides n or k, micro-batches m:
what they cut small runs at a worse rate, which formulas of equal layers do not know.

Of a layer, for b samples on `tp` GPUs:

    forward     its products + attention + what other operations move over the memory bandwidth + starting kernels, but
                at least what the host needs to launch all of these
    backward    two products for each one, of which that of the weights has k = tokens; attention 2 x (2.5 x where it is
                fused, since it is repeated); twice the memory traffic; gradients are added to those of before, 8 bytes
                each; and the forward pass again where the layer is repeated

Weights are read once a pass. Attention that is fused skips what a causal mask excludes, half of it. Attention that is
not writes and reads its scores; where its heads are no multiple of 8 numbers wide, its products miss the tensor cores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from stowplan.arrays import FloatArray

# Side and side of a tile, and its speed beside the largest ones. Those of cuBLAS for 16-bit numbers.
_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.92), (128, 64, 0.75), (64, 64, 0.55))
_FILLING = 64.0
_CAUSAL = 0.5
# Gradients are read and written in fp32 when those of a micro-batch are added.
_ADDED_BYTES = 8.0
# From so many tokens in a micro-batch on, kernels are as fast as they get.
_MOST_TOKENS = float(2**19)
# Sizes that are looked up one by one.
_FEW = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Tokens times a matrix of `inputs` x `outputs` weights.

    `tokens`: rows that one sample brings. `by_outputs`: tensor parallelism divides the outputs, else the inputs.
    `count`: such matrices, at work on tokens of their own.
    """

    inputs: float
    outputs: float
    tokens: float
    by_outputs: bool
    count: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKernels:
    """Kernels of one layer; figures are of the forward pass of one sample without parallelism.

    attention_flops: scores and their product with the values. scores_bytes: moved for scores, 0 where attention is
    fused. partitioned_bytes, replicated_bytes: moved by all other operations; tensor parallelism divides the first
    ones, and the others with sequence parallelism only. number_bytes: of a weight. repeats_layer, repeats_attention,
    repeats_moves (all other operations): in the backward pass. key_value_bytes: keys and values of attention.
    """

    products: tuple[Product, ...]
    attention_flops: float = 0.0
    fused: bool = True
    aligned: bool = True
    scores_bytes: float = 0.0
    partitioned_bytes: float = 0.0
    replicated_bytes: float = 0.0
    number_bytes: float = 2.0
    repeats_layer: bool = False
    repeats_attention: bool = False
    repeats_moves: bool = False
    key_value_bytes: float = 0.0

    @property
    def tokens(self) -> float:
        """The largest number of rows that a sample brings."""
        return max((product.tokens for product in self.products), default=1.0)

    def shared(self, cp: int, ep: int) -> "LayerKernels":
        """Kernels of one of `cp` replicas that share their sequences, and of `ep` that share their experts.

        A sample is a part of a sequence then. Matrices of which there are several are experts: a replica has fewer of
        them, and the tokens that the others send to these.
        """
        return replace(
            self,
            products=tuple(
                replace(product, tokens=product.tokens * ep / cp, count=product.count / ep)
                if product.count > 1
                else replace(product, tokens=product.tokens / cp)
                for product in self.products
            ),
            attention_flops=self.attention_flops / cp,
            scores_bytes=self.scores_bytes / cp,
            partitioned_bytes=self.partitioned_bytes / cp,
            replicated_bytes=self.replicated_bytes / cp,
            key_value_bytes=self.key_value_bytes / cp,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What one GPU reaches with one software.

    flops_per_s: matrix products in large tiles. attention_flops_per_s: fused attention. plain_flops_per_s: products of
    attention that is not fused, and `misaligned` the part of that which heads of odd sizes reach. bytes_per_s: memory.
    traffic: how often memory is moved over what fused operations need. launch_s: starting the kernels of a layer, once
    a pass. num_multiprocessors None: not known, then sizes make no difference to products. host_s: what the host needs
    to launch them, once a pass, while the GPU computes what was launched before.
    """

    flops_per_s: float
    attention_flops_per_s: float
    plain_flops_per_s: float
    misaligned: float
    bytes_per_s: float
    traffic: float
    launch_s: float
    num_multiprocessors: int | None
    host_s: float


# No slots: what is the same for all sizes is cached in the instance.
@dataclass(frozen=True, kw_only=True)
class KernelCurve:
    """Time of layers on one GPU type, by local batch and tensor degree.

    `layers`: kernels, and of how many layers they are. `sequence_parallel`: see `LayerKernels`. `reference`: time that
    slowdowns are relative to, (forward, backward); None: that of the layers.
    """

    layers: tuple[tuple[LayerKernels, float], ...]
    machine: Machine
    sequence_parallel: bool
    reference: tuple[float, float] | None = None

    @property
    def largest_batch(self) -> float:
        """Samples from which on kernels are as fast as they get."""
        return max(1.0, _MOST_TOKENS // max(layer.tokens for layer, _ in self.layers))

    @cached_property
    def reference_s(self) -> tuple[float, float]:
        """Forward and backward time of all layers for one of many samples without tensor parallelism, or what stands in
        for it."""
        if self.reference is not None:
            return self.reference
        batch = np.array([self.largest_batch])
        forward, backward = self._passes_s(batch, np.ones(1))
        return float(forward[0] / batch[0]), float(backward[0] / batch[0])

    def shared(self, cp: int, ep: int) -> "KernelCurve":
        """Curve of replicas that share sequences and experts, relative to the same time (`LayerKernels.shared`)."""
        layers = tuple((layer.shared(cp, ep), count) for layer, count in self.layers)
        return replace(self, layers=layers, reference=self.reference_s)

    def slowdowns(self, local_batch: FloatArray | float, tp: FloatArray | float) -> tuple[FloatArray, FloatArray]:
        """Forward and backward time of a sample, times the tensor degree, over `reference_s`; arguments broadcast."""
        batch, degree = np.broadcast_arrays(np.clip(local_batch, 1.0, self.largest_batch), tp)
        if batch.size <= _FEW:
            found = self._known_or_new(batch.ravel(), degree.ravel())
        else:
            sizes, where = np.unique(batch.ravel() + 1j * degree.ravel(), return_inverse=True)
            found = self._known_or_new(sizes.real, sizes.imag)[:, where]
        forward, backward = found.reshape(2, *batch.shape)
        return forward, backward

    def _known_or_new(self, batch: FloatArray, tp: FloatArray) -> FloatArray:
        """Those of sizes (N,), (2, N); plans of a job ask for few, again and again."""
        known, sizes = self._known, list(zip(batch.tolist(), map(float, tp.tolist()), strict=True))
        new = list(dict.fromkeys(size for size in sizes if size not in known))
        if new:
            known.update(zip(new, self._slowdowns(*np.array(new).T).T.tolist(), strict=True))
        return np.array([known[size] for size in sizes]).reshape(-1, 2).T

    @cached_property
    def _known(self) -> dict[tuple[float, float], list[float]]:
        return {}

    def _slowdowns(self, batch: FloatArray, tp: FloatArray) -> FloatArray:
        """Those of sizes (N,), (2, N)."""
        return np.asarray(np.array(self._passes_s(batch, tp)) * tp / batch / np.array(self.reference_s)[:, None])

    def _passes_s(self, batch: FloatArray, tp: FloatArray) -> tuple[FloatArray, FloatArray]:
        forward, backward = np.zeros(batch.shape), np.zeros(batch.shape)
        for layer, count in self.layers:
            there, back = layer_s(layer, self.machine, batch, tp, self.sequence_parallel)
            forward, backward = forward + count * there, backward + count * back
        return forward, backward


# Near an A100: how the kinds of operations compare differs little between GPUs.
_USUAL = Machine(
    flops_per_s=2.4e14,
    attention_flops_per_s=0.9e14,
    plain_flops_per_s=2.4e14,
    misaligned=0.05,
    bytes_per_s=1.9e12,
    traffic=1.0,
    launch_s=0.0,
    num_multiprocessors=None,
    host_s=0.0,
)


@lru_cache(maxsize=4096)
def usual_s(layer: LayerKernels) -> float:
    """Time of both passes for one of many samples on a usual GPU: what layers count beside one another."""
    batch = np.array([max(1.0, _MOST_TOKENS // layer.tokens)])
    forward, backward = layer_s(layer, _USUAL, batch, np.ones(1), sequence_parallel=False)
    return float((forward[0] + backward[0]) / batch[0])


def layer_s(
    layer: LayerKernels, machine: Machine, batch: FloatArray, tp: FloatArray, sequence_parallel: bool
) -> tuple[FloatArray, FloatArray]:
    """Forward and backward time of a layer for `batch` samples on `tp` GPUs each; arguments broadcast."""
    rate, products = machine.flops_per_s, layer.products
    forward, back = (part / rate for part in _flops(products, machine.num_multiprocessors, batch, tp))
    weights = sum(p.count * p.inputs * p.outputs for p in products) / tp
    reading_s = weights * layer.number_bytes / machine.bytes_per_s
    attention_s, attention_back = attention_passes_s(layer, machine, batch / tp)
    replicated = layer.replicated_bytes / (tp if sequence_parallel else 1.0)
    moving_s = batch * (layer.partitioned_bytes / tp + replicated) * machine.traffic / machine.bytes_per_s
    forward = forward + reading_s + attention_s + moving_s + machine.launch_s
    backward = back + 2.0 * (reading_s + moving_s + machine.launch_s) + attention_back
    if layer.repeats_moves:
        backward = backward + moving_s
    backward = backward + weights * _ADDED_BYTES / machine.bytes_per_s
    if layer.repeats_layer:
        backward = backward + forward
    num_passes = 3.0 if layer.repeats_layer else 2.0
    return np.maximum(forward, machine.host_s), np.maximum(backward, num_passes * machine.host_s)


def attention_passes_s(layer: LayerKernels, machine: Machine, batch: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Forward and backward time of attention itself, for `batch` samples over the tensor degree."""
    if layer.fused:
        once = batch * layer.attention_flops * _CAUSAL / machine.attention_flops_per_s
        return once, 2.5 * once
    rate = machine.plain_flops_per_s * (1.0 if layer.aligned else machine.misaligned)
    once = batch * (layer.attention_flops / rate + layer.scores_bytes / machine.bytes_per_s)
    return once, (3.0 if layer.repeats_attention else 2.0) * once


def _flops(
    products: tuple[Product, ...], num_multiprocessors: int | None, batch: FloatArray, tp: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """FLOPs of the products of a forward and a backward pass, with those lost (`_tiled_flops`)."""
    if batch.shape == tp.shape == (1,):
        forward, back = _flops_of_size(products, num_multiprocessors, float(batch[0]), float(tp[0]))
        return np.array([forward]), np.array([back])
    return _flops_of_sizes(products, num_multiprocessors, batch, tp)


# Plans are estimated again and again, also with other rates: FLOPs do not depend on these.
@lru_cache(maxsize=2**14)
def _flops_of_size(
    products: tuple[Product, ...], num_multiprocessors: int | None, batch: float, tp: float
) -> tuple[float, float]:
    forward, back = _flops_of_sizes(products, num_multiprocessors, np.array(batch), np.array(tp))
    return float(forward), float(back)


def _flops_of_sizes(
    products: tuple[Product, ...], num_multiprocessors: int | None, batch: FloatArray, tp: FloatArray
) -> tuple[FloatArray, FloatArray]:
    forward, back = np.zeros(()), np.zeros(())
    for product in products:
        rows = batch * product.tokens
        inputs, outputs = _cut(product, tp)
        forward = forward + product.count * _tiled_flops(rows, outputs, inputs, num_multiprocessors)
        # For the gradients of the tokens, and of the weights.
        of_tokens = _tiled_flops(rows, inputs, outputs, num_multiprocessors)
        back = back + product.count * (of_tokens + _tiled_flops(inputs, outputs, rows, num_multiprocessors))
    return forward, back


def _cut(product: Product, tp: FloatArray) -> tuple[FloatArray, FloatArray]:
    if product.by_outputs:
        return np.asarray(product.inputs), product.outputs / tp
    return product.inputs / tp, np.asarray(product.outputs)


def _tiled_flops(
    rows: FloatArray, columns: FloatArray, inner: FloatArray, num_multiprocessors: int | None
) -> FloatArray:
    """FLOPs of a product, with those that multiprocessors could do while they have no tile or a slower one."""
    if num_multiprocessors is None:
        return np.asarray(2.0 * rows * columns * inner)
    areas: Sequence[FloatArray] = [
        np.ceil(np.ceil(rows / height) * np.ceil(columns / width) / num_multiprocessors)
        * (num_multiprocessors * height * width / speed)
        for height, width, speed in _TILES
    ]
    least: Callable[..., FloatArray] = np.minimum.reduce
    return 2.0 * least(areas) * (inner + _FILLING)
