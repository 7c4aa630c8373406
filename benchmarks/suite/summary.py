"""From runs to numbers per case and solver: medians, 95th percentiles, ratios against HiGHS."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.suite.record import CaseFacts, RunRecord, SuiteResult, phases_of

REFERENCE = "highs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A sample: median, 95th percentile (linear between order statistics), interquartile range, size."""

    median: float
    p95: float
    iqr: float
    num: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """Summary of the values that are known; None when none is."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        low, median, high, p95 = np.quantile(known, (0.25, 0.5, 0.75, 0.95)).tolist()
        return cls(median=median, p95=p95, iqr=high - low, num=len(known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Median of CPU of the reference over CPU of the solver; a lower bound where the reference did not finish."""

    median: float
    is_lower_bound: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All runs of one solver on one case. At least one."""

    case: CaseFacts
    solver: str
    runs: tuple[RunRecord, ...]

    def spread(self, measure: Callable[[RunRecord], float | None]) -> Spread | None:
        """Summary of a measure over the runs."""
        return Spread.of(measure(run) for run in self.runs)

    @property
    def cpu(self) -> Spread | None:
        """CPU from snapshot to checked plan."""
        return self.spread(lambda run: run.total_cpu_s)

    @property
    def wall(self) -> Spread | None:
        """Wall clock from snapshot to checked plan."""
        return self.spread(lambda run: run.total_wall_s)

    @property
    def num_proven(self) -> int:
        """Runs that proved their answer within the gap."""
        return sum(run.is_proven for run in self.runs)

    @property
    def is_proven(self) -> bool:
        """Whether all of them did."""
        return self.num_proven == len(self.runs)

    @property
    def num_checked(self) -> int:
        """Runs whose plan passed the check."""
        return sum(run.checked is True for run in self.runs)

    @property
    def worst_gap(self) -> float | None:
        """Largest relative gap; None where some run has none."""
        gaps = [run.relative_gap for run in self.runs]
        return None if any(gap is None for gap in gaps) else max(gap for gap in gaps if gap is not None)

    def phase_cpu(self, phase: str) -> Spread | None:
        """CPU of one phase."""
        return Spread.of(run.cpu_s.get(phase) for run in self.runs)

    def phases(self) -> dict[str, float]:
        """Median CPU seconds of every phase on the way to the checked plan."""
        names = dict.fromkeys(name for run in self.runs for name in phases_of(run))
        spreads = {name: self.phase_cpu(name) for name in names}
        return {name: spread.median for name, spread in spreads.items() if spread is not None}


def summaries(result: SuiteResult) -> tuple[Summary, ...]:
    """One summary for every case and solver that was run, in the order of cases and solvers."""
    cases = {case.name: case for case in result.cases}
    grouped: dict[tuple[str, str], list[RunRecord]] = {}
    for run in result.runs:
        grouped.setdefault((run.case, run.solver), []).append(run)
    return tuple(Summary(case=cases[name], solver=solver, runs=tuple(runs)) for (name, solver), runs in grouped.items())


def by_case(result: SuiteResult) -> tuple[dict[str, Summary], ...]:
    """Summaries by solver, for every case."""
    grouped: dict[str, dict[str, Summary]] = {}
    for summary in summaries(result):
        grouped.setdefault(summary.case.name, {})[summary.solver] = summary
    return tuple(grouped.values())


def ratio(reference: Sequence[RunRecord], others: Sequence[RunRecord]) -> Ratio | None:
    """How many times less CPU `others` took than `reference` on the same case: median over seed and run.

    Where the reference was not repeated (it ended at its limit), its last run of the same seed stands in. Runs of
    `others` that did not prove their answer do not count.
    """
    by_seed: dict[int, list[RunRecord]] = {}
    for run in reference:
        by_seed.setdefault(run.seed, []).append(run)
    quotients, lower = [], False
    for run in others:
        partners = by_seed.get(run.seed, [])
        partner = next((p for p in partners if p.run == run.run), partners[-1] if partners else None)
        own, base = run.total_cpu_s, None if partner is None else _spent_s(partner)
        if partner is not None and run.is_proven and own and base is not None:
            quotients.append(base / own)
            lower = lower or not partner.is_proven
    return Ratio(median=float(np.median(quotients)), is_lower_bound=lower) if quotients else None


def _spent_s(run: RunRecord) -> float | None:
    """CPU of a run, also of one that ended without a plan."""
    if run.total_cpu_s is not None:
        return run.total_cpu_s
    return sum(run.cpu_s[name] for name in phases_of(run)) if run.cpu_s else None
