"""What is true of an application that was measured: how long its steps take, and how much a step is worth.

Steps take as long as was measured on the same GPUs of each node (nodes in a ring: 211 is 112), linear in the local
batch; on others what comes of all measurements, linear in nodes, replicas and local batch, and outside of them the
nearest. They were measured where nodes have all their bandwidth between them; with a share f of it, what a step waits
for synchronisation takes 1/f of the time (what synchronisation the gradient hides is not known, and stays).

A step of batch B is worth gain(B) = (var + sqr) / (var / (B/B0) + sqr) steps of the initial batch B0 (Pollux section
3.1), with the noise of the gradient in that epoch, linear in the batch.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator
from scipy.spatial import QhullError

from models.configurations import ConfigurationSet
from models.performance.goodput.batch import NUM_CANDIDATES
from models.performance.goodput.spec import BatchRange, GradientStatistics
from stowplan.arrays import FloatArray
from workloads.profiles import ApplicationProfile, TypeSteps

_Gpus = tuple[int, ...]
_Interpolator = LinearNDInterpolator | NearestNDInterpolator


class StepTimes:
    """Steps of an application on one GPU type."""

    def __init__(self, measured: TypeSteps) -> None:
        self.measured = measured
        placed: dict[_Gpus, list[tuple[int, float, float]]] = {}
        for step in measured.steps:
            if step.gpus is not None:
                placed.setdefault(ring(step.gpus), []).append((step.local_batch, step.step_time_s, step.sync_time_s))
        self._placed = {gpus: np.array(sorted(rows)).T for gpus, rows in placed.items()}

    def times_s(self, gpus: _Gpus, local_batch: FloatArray, bandwidth_fraction: float = 1.0) -> FloatArray:
        """Step and synchronisation times (2, K) of K local batches on so many GPUs of each node, which have a share of
        the inter-node bandwidth between them."""
        step_s, sync_s = self._measured_s(gpus, local_batch)
        return np.stack([step_s + sync_s * (1.0 / bandwidth_fraction - 1.0), sync_s / bandwidth_fraction])

    def _measured_s(self, gpus: _Gpus, local_batch: FloatArray) -> FloatArray:
        rows = self._placed.get(ring(gpus))
        if rows is not None:
            return np.stack([np.interp(local_batch, rows[0], rows[k]) for k in (1, 2)])
        linear, nearest = self._interpolators
        points = np.stack(
            [np.full_like(local_batch, value) for value in (len(gpus), sum(gpus))] + [local_batch], axis=1
        )
        times_s = linear(points)
        unknown = np.isnan(times_s).any(axis=1)
        if unknown.any():
            times_s[unknown] = nearest(points[unknown])
        return np.asarray(times_s.T)

    def max_local_batch(self, gpus: _Gpus) -> int:
        """The largest that was measured there, or on at least as many nodes and replicas."""
        rows = self._placed.get(ring(gpus))
        if rows is not None:
            return int(rows[0].max())
        larger = (
            step.local_batch
            for step in self.measured.steps
            if step.gpus is None and step.num_nodes >= len(gpus) and step.num_replicas >= sum(gpus)
        )
        return max(larger, default=self.measured.max_local_batch)

    @cached_property
    def _interpolators(self) -> tuple[_Interpolator, _Interpolator]:
        """Over nodes, replicas and local batch; measurements at the same point are averaged. Where these span no volume
        (all on one node, say), the nearest counts everywhere."""
        at: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
        for step in self.measured.steps:
            key = step.num_nodes, step.num_replicas, step.local_batch
            at.setdefault(key, []).append((step.step_time_s, step.sync_time_s))
        points = np.array(list(at), dtype=np.float64)
        values = np.array([np.mean(times_s, axis=0) for times_s in at.values()])
        # Batches are hundreds where nodes are few; rescaled, so that near means the same along all.
        nearest = NearestNDInterpolator(points, values, rescale=True)
        try:
            return LinearNDInterpolator(points, values, rescale=True), nearest
        except QhullError:
            return nearest, nearest


class MeasuredApplication:
    """An application on GPU types of a cluster."""

    def __init__(self, profile: ApplicationProfile) -> None:
        self.profile = profile
        self.steps: Mapping[str, StepTimes] = {measured.gpu_type: StepTimes(measured) for measured in profile.types}
        self._batches = np.array([validation.batch for validation in profile.validations], dtype=np.float64)
        self.batch: BatchRange = BatchRange(initial=profile.validations[0].batch, maximum=profile.validations[-1].batch)
        # An epoch ends where it ends first.
        self.epoch_ends: FloatArray = np.array(
            [[epoch.progress for epoch in validation.epochs] for validation in profile.validations]
        ).min(axis=0)
        self._squared_norm = self._by_epoch("squared_norm")
        self._variance = self._by_epoch("variance")

    @property
    def work(self) -> float:
        """Steps of the initial batch at its efficiency until the last epoch ends."""
        return float(self.epoch_ends[-1])

    def epoch(self, done: float) -> int:
        """The epoch in which a training is that has done so much."""
        return min(int(np.searchsorted(self.epoch_ends, done, side="right")), self.epoch_ends.size - 1)

    def gradient_at(self, batch: int | None, epoch: int) -> GradientStatistics:
        """What a training measures that runs with this batch, or with the initial one."""
        at = batch or self.batch.initial
        return GradientStatistics(
            squared_norm=float(np.interp(at, self._batches, self._squared_norm[epoch])),
            variance=float(np.interp(at, self._batches, self._variance[epoch])),
        )

    def speed(
        self,
        gpu_type: str,
        gpus: _Gpus,
        local_batch: int,
        accumulation: int,
        epoch: int,
        bandwidth_fraction: float = 1.0,
    ) -> float:
        """Work per second of a training that takes so many accumulation steps before each that synchronises."""
        local, steps = np.array([float(local_batch)]), np.array([accumulation])
        epochs = slice(epoch, epoch + 1)
        return float(self.speeds(gpu_type, gpus, local, steps, epochs, bandwidth_fraction)[0, 0])

    def fixed_batch(self, gpu_type: str, gpus: _Gpus, batch: int) -> tuple[int, int]:
        """Local batch and accumulation steps of a training that keeps its global batch."""
        num_replicas: int = sum(gpus)
        steps = self.steps[gpu_type]
        local = -(-batch // num_replicas)
        accumulation = -(-local // steps.max_local_batch(gpus)) - 1
        if num_replicas == 1 and batch > self.batch.initial:
            accumulation = max(1, accumulation)
        local = -(-local // (accumulation + 1))
        most = int(self.batch.maximum) // (num_replicas * (accumulation + 1))
        return max(1, min(local, most)), accumulation

    def fastest_s(self, configurations: ConfigurationSet, max_replicas: int) -> tuple[float, int]:
        """Seconds of a whole training, and its GPUs, on the one configuration where it ends first, at the best batch in
        each epoch."""
        lengths = np.diff(self.epoch_ends, prepend=0.0)
        best = (math.inf, 0)
        for k in range(len(configurations)):
            gpu_type = configurations.gpu_types[configurations.type_index[k]]
            num_nodes, num_gpus = int(configurations.num_nodes[k]), int(configurations.num_gpus[k])
            if gpu_type in self.steps and num_gpus <= max_replicas:
                gpus = (num_gpus // num_nodes,) * num_nodes
                speeds = self._best_speeds(gpu_type, gpus, float(configurations.bandwidth_fraction[k]))
                best = min(best, (float((lengths / speeds).sum()), num_gpus))
        return best

    def _best_speeds(self, gpu_type: str, gpus: _Gpus, bandwidth_fraction: float) -> FloatArray:
        """At the best batch of every epoch (epochs,); above 0 only where there is a batch that feeds all replicas."""
        steps, num_replicas = self.steps[gpu_type], sum(gpus)
        lowest = max(self.batch.initial, steps.measured.min_local_batch * num_replicas)
        if lowest > self.batch.maximum:
            return np.full(self.epoch_ends.size, np.finfo(np.float64).tiny)
        per_replica = np.geomspace(lowest, self.batch.maximum, NUM_CANDIDATES) / num_replicas
        accumulation = np.ceil(per_replica / steps.max_local_batch(gpus)) - 1
        local = np.ceil(per_replica / (accumulation + 1))
        speeds = self.speeds(gpu_type, gpus, local, accumulation, slice(None), bandwidth_fraction)
        return np.asarray(speeds.max(axis=1))

    def speeds(
        self,
        gpu_type: str,
        gpus: _Gpus,
        local_batch: FloatArray,
        accumulation: FloatArray,
        epochs: slice,
        bandwidth_fraction: float,
    ) -> FloatArray:
        """Work per second (E, K) in epochs with K batches."""
        batch = np.minimum(sum(gpus) * local_batch * (accumulation + 1), self.batch.maximum)
        step_s, sync_s = self.steps[gpu_type].times_s(gpus, local_batch, bandwidth_fraction)
        squared_norm = np.array([np.interp(batch, self._batches, row) for row in self._squared_norm[epochs]])
        variance = np.array([np.interp(batch, self._batches, row) for row in self._variance[epochs]])
        gain = (variance + squared_norm) / (variance * self.batch.initial / batch + squared_norm)
        return np.asarray(gain / (step_s + accumulation * (step_s - sync_s)) / self.profile.slowdown)

    def _by_epoch(self, name: str) -> FloatArray:
        """(epochs, batches)."""
        rows: Sequence[Sequence[float]] = [
            [getattr(epoch, name) for epoch in validation.epochs] for validation in self.profile.validations
        ]
        return np.array(rows).T


def ring(gpus: _Gpus) -> _Gpus:
    """The smallest rotation: placements that differ by where the ring of nodes begins are one."""
    return min(gpus[k:] + gpus[:k] for k in range(len(gpus)))
