r"""What measured iteration times say beyond the priors: factors on the times of parts of an iteration, and how certain
they are.

    log t(plan) = log model(plan; exp(theta)) + e,   theta ~ N(0, D^2) at first,  e ~ N(0, residual^2)

Each theta is the logarithm of a factor on one kind of time (`NAMES`); D, how far sites differ, and the residual, how
far plans of one site are off by themselves, are those of published rows (`uncertainty.toml`).

computation     of products, attention and all other operations of layers
memory          what is moved through the memory of a GPU
launch          starting kernels, on the GPU and by the host
link, network   communication inside nodes, and between them
overlap         what the reduction of gradients is not hidden by: k - 1 is divided by it (`priors`)
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType

import numpy as np

from models.performance.iteration.priors import Priors
from stowplan.arrays import FloatArray

FILE = Path(__file__).with_name("uncertainty.toml")
NAMES = ("computation", "memory", "launch", "link", "network", "overlap")
# Of the logarithm of computation where the coefficients themselves were measured, step by step.
_MEASURED = 0.04


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviations:
    """Standard deviations of logarithms: of the factors, by name, and of what they leave of a plan's time. `quantile`:
    as many of them 9 of 10 times are off by at most.
    """

    factors: Mapping[str, float]
    residual: float
    quantile: float

    def covariance(self, *, measured: bool = False) -> FloatArray:
        """Of the factors before any iteration time is known, (P, P); `measured`: coefficients of the GPUs are."""
        found = {**self.factors, **({"computation": _MEASURED} if measured else {})}
        return np.diag([found[name] ** 2 for name in NAMES])


@cache
def deviations() -> Deviations:
    """The shipped ones."""
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return Deviations(
        factors=MappingProxyType({name: document[name] for name in NAMES}),
        residual=document["residual"],
        quantile=document["quantile"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Adjustment:
    """Factors on times, 1 where nothing is known, and the covariance of their logarithms, by `NAMES`.

    covariance None: that before anything was measured. residual: see `Deviations`, None for the shipped one.
    num_points: iteration times behind it.
    """

    computation: float = 1.0
    memory: float = 1.0
    launch: float = 1.0
    link: float = 1.0
    network: float = 1.0
    overlap: float = 1.0
    covariance: tuple[tuple[float, ...], ...] | None = None
    residual: float | None = None
    num_points: int = 0

    @property
    def logs(self) -> FloatArray:
        """Logarithms of the factors, (P,)."""
        return np.log([getattr(self, name) for name in NAMES])

    @property
    def residual_deviation(self) -> float:
        """Of the logarithm of a plan's time."""
        return deviations().residual if self.residual is None else self.residual

    def at(self, logs: FloatArray) -> "Adjustment":
        """The same with other factors."""
        return replace(self, **dict(zip(NAMES, np.exp(logs).tolist(), strict=True)))

    def spread(self, *, measured: bool = False) -> FloatArray:
        """The covariance, (P, P); `measured`: see `Deviations.covariance`."""
        if self.covariance is None:
            return deviations().covariance(measured=measured)
        return np.array(self.covariance)


def told(adjustment: Adjustment, name: str, factor: float, deviation: float) -> Adjustment:
    """What is known after one factor was measured by itself, with a standard deviation of its logarithm."""
    k, spread = NAMES.index(name), adjustment.spread()
    gain = spread[:, k] / (spread[k, k] + deviation**2)
    logs = adjustment.logs + gain * (np.log(factor) - adjustment.logs[k])
    left = spread - np.outer(gain, spread[k])
    return replace(adjustment.at(logs), covariance=tuple(tuple(row) for row in ((left + left.T) / 2.0).tolist()))


def adjusted(known: Priors, adjustment: Adjustment) -> Priors:
    """Priors with all factors but that of computation, which is one of coefficients."""
    software = {
        name: replace(
            found,
            overlap=1.0 + (found.overlap - 1.0) / adjustment.overlap,
            host_s=found.host_s * adjustment.launch,
        )
        for name, found in known.software.items()
    }
    return replace(
        known,
        memory=known.memory / adjustment.memory,
        link=known.link / adjustment.link,
        network=known.network / adjustment.network,
        launch_s=known.launch_s * adjustment.launch,
        software=MappingProxyType(software),
    )


def is_covariance(rows: Sequence[Sequence[float]]) -> bool:
    """Whether rows are a covariance of the factors: as many as there are, symmetric, positive definite."""
    if [len(row) for row in rows] != [len(NAMES)] * len(NAMES):
        return False
    matrix = np.array(rows)
    if not (np.isfinite(matrix).all() and np.allclose(matrix, matrix.T)):
        return False
    return bool(np.linalg.eigvalsh(matrix)[0] > 0)
