"""What the suite is held to: limits on the median CPU time of our exact algorithms."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from benchmarks.suite.record import RunRecord, SuiteResult
from benchmarks.suite.summary import Spread, Summary, summaries


def _total(run: RunRecord) -> float | None:
    return run.total_cpu_s


def _matrix(run: RunRecord) -> float | None:
    return run.cpu_s.get("performance")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A limit on the median CPU of `solver` on every case that matches `pattern`, proven within `relative_gap`."""

    text: str
    pattern: str
    solver: str
    limit_s: float
    relative_gap: float = 1e-4
    measure: Callable[[RunRecord], float | None] = _total


TARGETS = (
    Target(
        text="Sia, recorded inputs at 2,048 GPUs",
        pattern="sia/recorded/sia2048_*",
        solver="decomposition",
        limit_s=0.03,
    ),
    Target(
        text="Sia, 3,000 jobs on 10,240 GPUs, 3 types",
        pattern="sia/waiting/10240x3000x3",
        solver="decomposition",
        limit_s=0.3,
    ),
    Target(
        text="Sia, 3,000 jobs on 10,240 GPUs, 6 types",
        pattern="sia/waiting/10240x3000x6",
        solver="decomposition",
        limit_s=0.3,
    ),
    Target(
        text="Sia, 10,000 jobs on 100,000 GPUs, 6 types",
        pattern="sia/waiting/100000x10000x6",
        solver="decomposition",
        limit_s=3.0,
    ),
    Target(
        text="Sia, 100,000 jobs on 1,000,000 GPUs, 10 types",
        pattern="sia/waiting/1000000x100000x10",
        solver="decomposition",
        limit_s=20.0,
    ),
    Target(
        text="Sia, all recorded inputs, gap 0",
        pattern="sia/recorded/*",
        solver="decomposition",
        limit_s=0.2,
        relative_gap=0.0,
    ),
    Target(
        text="goodput matrix, 560 jobs x 40 configurations",
        pattern="sia/fitted/2048",
        solver="decomposition",
        limit_s=0.03,
        measure=_matrix,
    ),
    Target(text="Arnold, five hard cases, alpha 0.1 and 0.3", pattern="arnold/hard/*", solver="exact", limit_s=0.05),
    Target(
        text="Arnold, 1,200 nodes of 10,000 in 300 minipods, fill 0.5 to 0.99",
        pattern="arnold/scale/10000n*",
        solver="exact",
        limit_s=0.2,
    ),
    Target(
        text="five jobs over eight weeks on 10,000 nodes in 300 minipods, gap 1 %",
        pattern="ahead/weeks/10000n300m",
        solver="exact",
        limit_s=30.0,
        relative_gap=0.01,
    ),
    Target(text="Arnold, Table 1 (iii)", pattern="arnold/table1/iii-*", solver="exact", limit_s=0.02),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A target and what was measured: the case with the largest median, and how many cases meet the limit."""

    target: Target
    worst: Spread | None
    num_met: int
    num_cases: int
    worst_gap: float | None

    @property
    def is_met(self) -> bool | None:
        """None where nothing was measured."""
        return None if self.num_cases == 0 else self.num_met == self.num_cases


def verdicts(results: Sequence[SuiteResult]) -> tuple[Verdict, ...]:
    """Judge every target by the results that were made with the gap that it asks for."""
    return tuple(_judged(target, results) for target in TARGETS)


def _judged(target: Target, results: Sequence[SuiteResult]) -> Verdict:
    chosen = [
        summary
        for result in results
        if result.protocol.relative_gap == target.relative_gap
        for summary in summaries(result)
        if summary.solver == target.solver and fnmatchcase(summary.case.name, target.pattern)
    ]
    spreads = [summary.spread(target.measure) for summary in chosen]
    gaps = [summary.worst_gap for summary in chosen]
    known = [gap for gap in gaps if gap is not None]
    return Verdict(
        target=target,
        worst=max((spread for spread in spreads if spread is not None), key=lambda s: s.median, default=None),
        num_met=sum(_meets(target, *pair) for pair in zip(chosen, spreads, strict=True)),
        num_cases=len(chosen),
        worst_gap=max(known) if known and len(known) == len(gaps) else None,
    )


def _meets(target: Target, summary: Summary, spread: Spread | None) -> bool:
    return spread is not None and summary.is_proven and spread.median <= target.limit_s
