"""What changed between two results, beyond the noise.

Per case and solver that both have. A median (CPU to the checked plan, CPU of each phase, peak memory) counts as changed
when the medians differ by more than the noise: the largest of 10 % of the first, the interquartile range of the first
and that of the second. With fewer than three runs on a side there is no range to speak of, and 50 % stand in for it.
Below half a millisecond and one MiB nothing is a change. What an answer claims needs no statistics: any difference of
objective or bound beyond rounding (1e-9 relative), of termination, of the check or of the ending of a run is listed,
seed by seed, for the first run.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from benchmarks.suite import words
from benchmarks.suite.record import RunRecord, SuiteResult
from benchmarks.suite.summary import Spread, Summary, summaries

_SHARE = 0.1
_SHARE_OF_FEW = 0.5
_ENOUGH_RUNS = 3
_ROUNDING = 1e-9
_LEAST_S = 5e-4
_LEAST_BYTES = 2**20


class Verdict(StrEnum):
    """What a change means. `different`: neither better nor worse by itself."""

    FASTER = "faster"
    SLOWER = "slower"
    SMALLER = "smaller"
    LARGER = "larger"
    DIFFERENT = "different"
    BROKEN = "broken"
    MENDED = "mended"


WORSE = (Verdict.SLOWER, Verdict.LARGER, Verdict.BROKEN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One change: of what, from what to what."""

    case: str
    solver: str
    what: str
    before: str
    after: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Changes, and what stands in the way of comparing. `num_pairs`: cases and solvers that both results have."""

    differences: tuple[Difference, ...]
    remarks: tuple[str, ...]
    num_pairs: int


def compare(before: SuiteResult, after: SuiteResult) -> Comparison:
    """Compare two results by the rule of this module."""
    ours = {(s.case.name, s.solver): s for s in summaries(before)}
    theirs = {(s.case.name, s.solver): s for s in summaries(after)}
    common = [key for key in ours if key in theirs]
    found = [difference for key in common for difference in _differences(ours[key], theirs[key])]
    return Comparison(
        differences=tuple(found), remarks=tuple(_remarks(before, after, ours, theirs)), num_pairs=len(common)
    )


def is_beyond_noise(before: Spread, after: Spread, least: float) -> bool:
    """Whether two medians differ by more than the noise; `least` is the smallest difference that is ever a change."""
    share = _SHARE if min(before.num, after.num) >= _ENOUGH_RUNS else _SHARE_OF_FEW
    noise = max(share * before.median, before.iqr, after.iqr, least)
    return abs(after.median - before.median) > noise


def _differences(before: Summary, after: Summary) -> Iterator[Difference]:
    def changed(what: str, old: str, new: str, verdict: Verdict) -> Difference:
        return Difference(
            case=before.case.name, solver=before.solver, what=what, before=old, after=new, verdict=verdict
        )

    phases = dict.fromkeys([*before.phases(), *after.phases()])
    times: list[tuple[str, Spread | None, Spread | None]] = [("CPU", before.cpu, after.cpu)]
    times += [(f"CPU of {name}", before.phase_cpu(name), after.phase_cpu(name)) for name in phases]
    for what, old, new in times:
        if old is not None and new is not None and is_beyond_noise(old, new, _LEAST_S):
            verdict = Verdict.SLOWER if new.median > old.median else Verdict.FASTER
            yield changed(what, words.seconds(old.median), words.seconds(new.median), verdict)
    old, new = (side.spread(lambda run: run.peak_memory_bytes) for side in (before, after))
    if old is not None and new is not None and is_beyond_noise(old, new, _LEAST_BYTES):
        verdict = Verdict.LARGER if new.median > old.median else Verdict.SMALLER
        yield changed("peak MiB", words.mebibytes(old.median), words.mebibytes(new.median), verdict)
    ours, theirs = _first_runs(before), _first_runs(after)
    for seed in sorted(ours.keys() & theirs.keys()):
        for what, get in _CLAIMS.items():
            one, two = get(ours[seed]), get(theirs[seed])
            if not _same(one, two):
                yield changed(f"{what}, seed {seed}", _said(one), _said(two), _judged(what, ours[seed], theirs[seed]))


_Claim = float | str | bool | None
_CLAIMS: Mapping[str, Callable[[RunRecord], _Claim]] = {
    "ending": lambda run: run.status.value,
    "termination": lambda run: run.termination,
    "check": lambda run: run.checked,
    "objective": lambda run: run.objective,
    "bound": lambda run: run.bound,
}


def _first_runs(summary: Summary) -> dict[int, RunRecord]:
    first: dict[int, RunRecord] = {}
    for run in summary.runs:
        first.setdefault(run.seed, run)
    return first


def _same(one: _Claim, two: _Claim) -> bool:
    if isinstance(one, float) and isinstance(two, float):
        return abs(one - two) <= _ROUNDING * max(1.0, abs(one))
    return one == two


def _said(claim: _Claim) -> str:
    return f"{claim:.10g}" if isinstance(claim, float) else str(claim)


def _judged(what: str, before: RunRecord, after: RunRecord) -> Verdict:
    """Losing a proof or a plan is worse, winning one better; numbers that differ within a gap are neither."""
    if what in ("objective", "bound") or before.is_proven == after.is_proven:
        return Verdict.DIFFERENT
    return Verdict.BROKEN if before.is_proven else Verdict.MENDED


def _remarks(
    before: SuiteResult,
    after: SuiteResult,
    ours: Mapping[tuple[str, str], Summary],
    theirs: Mapping[tuple[str, str], Summary],
) -> Iterator[str]:
    for name in ("cpu", "num_cores", "python"):
        one, two = (getattr(side.environment, name) for side in (before, after))
        if one != two:
            yield f"other machine: {name} {one} and {two}; times say nothing about the code"
    changed = [
        f"{name} {version} and {after.environment.versions.get(name, 'none')}"
        for name, version in before.environment.versions.items()
        if after.environment.versions.get(name) != version
    ]
    if changed:
        yield f"other versions: {', '.join(changed)}"
    for name in ("limit_s", "relative_gap", "threads"):
        one, two = (getattr(side.protocol, name) for side in (before, after))
        if one != two:
            yield f"other protocol: {name} {one} and {two}"
    missing = [f"{case} ({solver})" for case, solver in ours.keys() - theirs.keys()]
    added = [f"{case} ({solver})" for case, solver in theirs.keys() - ours.keys()]
    for words_, names in (("only in the first", missing), ("only in the second", added)):
        if names:
            yield f"{words_}: {', '.join(sorted(names))}"
