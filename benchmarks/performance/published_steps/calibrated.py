"""`python -m benchmarks calibrated-steps`: iteration times of published runs, predicted after others of the same site
(source, model family, GPU) told its factors, and how many are within their intervals.

Deviations of factors and residual are fitted to all other sources (largest marginal likelihood), with `--validate` the
priors, too, which takes minutes. `--fit` writes deviations that are fitted to all sources to
`models/performance/iteration/uncertainty.toml`, and calibrations of common systems to `api/calibrations`. Calibrations
are those of `plan_calibration`, made linear at the priors.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer
from scipy.optimize import minimize

from benchmarks.performance.published_steps.fit import fitted, with_values
from benchmarks.performance.published_steps.rows import TABLE, Case, cases
from benchmarks.rows import Row, show, write
from models.performance.iteration.adjustment import FILE, NAMES, Adjustment, deviations
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.plan_calibration import MEASUREMENT, time_and_gradient
from models.performance.iteration.priors import Priors
from stowplan.arrays import FloatArray

PROTOCOL = (
    "Errors are |predicted / measured - 1|. n points: as many other rows of the same source, model family and GPU were "
    "measured; sets are drawn at random (seed 0), rows of a group count alike. coverage: rows within the interval of "
    "90 %. Deviations come from all other sources."
)
# Standard deviations that are taken to be usual, and how far these are known (of their logarithm).
_USUAL = (0.1, 0.15, 0.5, 0.15, 0.2, 0.3, 0.08)
_KNOWN_TO = 0.5
_COVERED = 0.9
_FULL_ROWS = 12
_DRAWS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Rows of one source, family and GPU: measured less predicted logarithms (N,), gradients (N, P)."""

    source: str
    off: FloatArray
    gradients: FloatArray

    def covariance(self, spread_of: FloatArray) -> FloatArray:
        """Of `off`, by deviations of the factors and the residual, (P + 1,)."""
        spread = (self.gradients * spread_of[:-1] ** 2) @ self.gradients.T
        return np.asarray(spread + spread_of[-1] ** 2 * np.eye(len(self.off)))


def main(
    validate: Annotated[bool, typer.Option("--validate", help="Fit priors to all other sources, too.")] = False,
    fit: Annotated[bool, typer.Option("--fit", help="Write deviations that are fitted to all rows.")] = False,
) -> None:
    """Hold predictions after one and three measured plans against published step times, and their intervals."""
    if not TABLE.is_file():
        sys.exit(f"skipped: the published data are not there ({TABLE.name} beside the checkout)")
    timed = [case for case in cases()[0] if case.measured_s is not None]
    known = _known(timed) if validate else {}
    found = sites(timed, known)
    rows = figures(found)
    if fit:
        # Not before: the files that it writes go by the deviations that were fitted.
        from benchmarks.performance.published_steps.systems import write_systems

        FILE.write_text(text_of(fitted_deviations(found)), encoding="utf-8")
        deviations.cache_clear()
        show("systems", write_systems(timed))
    show("calibrated steps", rows)
    print(write("calibrated_steps", PROTOCOL, rows))


def sites(timed: Sequence[Case], known: Mapping[str, Priors]) -> list[Site]:
    """All sites; `known`: priors by source, the shipped ones where there are none."""
    groups: dict[tuple[str, str, str], list[Case]] = defaultdict(list)
    for case in timed:
        groups[case.source, case.family, case.gpu.name].append(case)
    return [linear_rows(source, rows, known.get(source)) for (source, *_), rows in groups.items()]


def linear_rows(source: str, rows: Sequence[Case], known: Priors | None) -> Site:
    """Rows of one site by the model, made linear at the priors."""
    linear = [time_and_gradient(RowModel(case, known), case.plan) for case in rows]
    off = [np.log(case.known_s / case.scale) - log for case, (log, _) in zip(rows, linear, strict=True)]
    return Site(source=source, off=np.array(off), gradients=np.array([row for _, row in linear]))


def fitted_deviations(found: Sequence[Site]) -> FloatArray:
    """Deviations of factors and residual, and how many of them 9 of 10 errors are within, (P + 2,).

    The latter is of sources by deviations of the others: errors of a new source have longer tails than normal ones.
    """
    rng, parts = np.random.default_rng(0), []
    for source in sorted({site.source for site in found}):
        others = np.append(_likeliest([site for site in found if site.source != source]), 1.0)
        own = [site for site in found if site.source == source]
        parts += [_errors(site, others, count, rng) for count in (0, 1, 3) for site in own if len(site.off) > count]
    _, size, weight = np.concatenate(parts, axis=1)
    return np.append(_likeliest(found), _quantile(size, weight, _COVERED))


def _likeliest(found: Sequence[Site]) -> FloatArray:
    """Deviations of factors and residual with the largest marginal likelihood, (P + 1,)."""
    usual = np.log(_USUAL)

    def unlikely(logs: FloatArray) -> float:
        total = 0.5 * float((((logs - usual) / _KNOWN_TO) ** 2).sum())
        for site in found:
            lower = np.linalg.cholesky(site.covariance(np.exp(logs)))
            scaled = np.linalg.solve(lower, site.off)
            weight = min(1.0, _FULL_ROWS / len(site.off))
            total += weight * float(0.5 * scaled @ scaled + np.log(np.diag(lower)).sum())
        return total

    return np.asarray(np.exp(minimize(unlikely, usual, method="L-BFGS-B").x))


def figures(found: Sequence[Site]) -> list[Row]:
    """Errors and coverage after 0, 1 and 3 points."""
    sources = sorted({site.source for site in found})
    others = {name: fitted_deviations([site for site in found if site.source != name]) for name in sources}
    rows: list[Row] = []
    for num_points in (0, 1, 3):
        rng = np.random.default_rng(0)
        quantiles = [others[site.source][-1] for site in found if len(site.off) > num_points]
        parts = [_errors(site, others[site.source], num_points, rng) for site in found if len(site.off) > num_points]
        limit = np.concatenate([np.full(part.shape[1], most) for part, most in zip(parts, quantiles, strict=True)])
        error, size, weight = np.concatenate(parts, axis=1)
        rows.append(
            {
                "points": num_points,
                "rows": sum(len(site.off) for site in found if len(site.off) > num_points),
                "median %": 100 * _quantile(error, weight, 0.5),
                "p90 %": 100 * _quantile(error, weight, 0.9),
                "coverage %": 100 * float(((size <= limit) * weight).sum() / weight.sum()),
            }
        )
    return rows


def _quantile(values: FloatArray, weight: FloatArray, part: float) -> float:
    """Of values with weights."""
    order = np.argsort(values)
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(values[order][min(int(np.searchsorted(reached, part)), len(values) - 1)])


def _errors(site: Site, spread_of: FloatArray, num_points: int, rng: np.random.Generator) -> FloatArray:
    """Errors, their size in standard deviations, and weights, (3, K); `spread_of` with the quantile."""
    covariance, rows = site.covariance(spread_of[:-1]), []
    for k in range(len(site.off)):
        rest = np.delete(np.arange(len(site.off)), k)
        draws = 1 if num_points == 0 else _DRAWS
        for _ in range(draws):
            told = rng.choice(rest, num_points, replace=False)
            mean, variance = 0.0, float(covariance[k, k])
            if num_points:
                of_told = covariance[np.ix_(told, told)] + MEASUREMENT**2 * np.eye(num_points)
                gain = np.linalg.solve(of_told, covariance[told, k])
                mean, variance = float(gain @ site.off[told]), variance - float(gain @ covariance[told, k])
            left = mean - site.off[k]
            rows.append((abs(np.expm1(left)), abs(left) / np.sqrt(variance), 1.0 / draws))
    return np.array(rows, dtype=np.float64).T


def text_of(found: FloatArray) -> str:
    """The file of deviations, below the comment that it begins with."""
    head = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    values = zip((*NAMES, "residual", "quantile"), found.tolist(), strict=True)
    return "\n".join([*head, "", *(f"{name} = {float(f'{value:.3g}')}" for name, value in values)]) + "\n"


def _known(timed: Sequence[Case]) -> dict[str, Priors]:
    """Priors fitted to all other sources, by source."""
    start = fitted(timed)
    sources = sorted({case.source for case in timed})
    return {
        name: Priors.of(with_values(fitted([case for case in timed if case.source != name], start))) for name in sources
    }


@dataclass(frozen=True, slots=True)
class RowModel:
    """The performance model of a row with given factors."""

    case: Case
    known: Priors | None

    def __call__(self, adjustment: Adjustment) -> PerformanceModel:
        """The model."""
        return self.case.performance(self.known, Calibration(adjustment=adjustment))
