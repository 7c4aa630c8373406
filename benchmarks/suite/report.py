"""Results as Markdown, for `benchmarks/README.md`."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.suite import words
from benchmarks.suite.record import SuiteResult
from benchmarks.suite.summary import REFERENCE, Ratio, Spread, by_case, ratio, summaries
from benchmarks.suite.targets import verdicts
from stowplan.errors import InputError

_TITLE = 60
BEGIN, END = "<!-- report: begin -->", "<!-- report: end -->"


def report(results: Sequence[SuiteResult]) -> str:
    """Targets over all results, then the tables of each result."""
    parts = [*_target_table(results)]
    for result in results:
        parts += ["", *_header(result), *_ratio_table(result), "", *_latency_table(result)]
        for title, table in (
            ("Objective, bound, gap, check, wall clock, memory", _proof_table(result)),
            ("Phases", _phase_table(result)),
            ("Modelling layer", _modelling_table(result)),
        ):
            lines = list(table)
            if lines:
                parts += ["", f"<details><summary>{title}</summary>", "", *lines, "", "</details>"]
    return "\n".join(parts) + "\n"


def put_into(path: Path, text: str, marks: tuple[str, str] = (BEGIN, END)) -> None:
    """Replace what stands between the marks of a document.

    Raises
    ------
    InputError
        When the document has no such marks.
    """
    document = path.read_text(encoding="utf-8")
    head, begin, rest = document.partition(marks[0])
    _, end, tail = rest.partition(marks[1])
    if not begin or not end:
        raise InputError(f"{path} has no lines {marks[0]} and {marks[1]}")
    path.write_text(f"{head}{marks[0]}\n\n{text}\n{marks[1]}{tail}", encoding="utf-8")


def _target_table(results: Sequence[SuiteResult]) -> Iterator[str]:
    rows = []
    for verdict in verdicts(results):
        target, met = verdict.target, {None: "not measured", True: "yes", False: "**no**"}[verdict.is_met]
        share = f" ({verdict.num_met} of {verdict.num_cases} cases)" if verdict.num_cases > 1 else ""
        rows.append(
            (
                target.text,
                words.seconds(target.limit_s),
                words.gap(target.relative_gap),
                words.spread(verdict.worst),
                words.gap(verdict.worst_gap),
                met + share,
            )
        )
    yield "### Targets"
    yield ""
    yield from markdown(("target", "CPU, median", "gap", "measured: median (p95), worst case", "gap", "met"), rows)


def _header(result: SuiteResult) -> Iterator[str]:
    env, protocol = result.environment, result.protocol
    memory = "" if env.memory_bytes is None else f", {env.memory_bytes / 2**30:.0f} GiB"
    versions = ", ".join(f"{name} {version}" for name, version in env.versions.items())
    changed = ", with changes" if env.dirty else ""
    load = "unknown" if env.load is None else f"{env.load:.2f}"
    yield f"### {protocol.suite[:_TITLE]}, gap {words.gap(protocol.relative_gap)}, {result.started}"
    yield ""
    yield (
        f"{env.cpu}, {env.num_cores} cores{memory}, load {load} at the start; {env.system}, Python {env.python}; "
        f"{versions}; commit {env.commit[:12]}{changed}. {protocol.num_runs} runs of seeds "
        f"{', '.join(map(str, protocol.seeds))}, limit {protocol.limit_s:g} s, {protocol.threads} thread. "
        f"`{result.command}`"
    )


def _ratio_table(result: SuiteResult) -> Iterator[str]:
    """Ratios against the reference by group of cases: median, smallest and largest."""
    groups: dict[tuple[str, str], list[Ratio]] = {}
    for of_case in by_case(result):
        base = of_case.get(REFERENCE)
        for solver, summary in of_case.items():
            found = None if base is None or solver == REFERENCE else ratio(base.runs, summary.runs)
            if found is not None:
                group = summary.case.name.rpartition("/")[0]
                groups.setdefault((group, solver), []).append(found)
    rows = []
    for (group, solver), found_ratios in groups.items():
        values = [item.median for item in found_ratios]
        cells = [_pooled(found_ratios, value) for value in (float(np.median(values)), min(values), max(values))]
        rows.append((group, solver, str(len(values)), *map(words.times, cells)))
    if rows:
        yield ""
        yield f"How many times less CPU than {REFERENCE}, over the cases that were proven (≥: at least)."
        yield ""
        yield from markdown(("cases", "solver", "number", "median", "least", "most"), rows)


def _pooled(ratios: Sequence[Ratio], value: float) -> Ratio:
    """A rank statistic of the ratios: lower bounds that lie above it do not touch it, unless it is the largest."""
    largest = value == max(item.median for item in ratios)
    return Ratio(
        median=value, is_lower_bound=any(item.is_lower_bound and (largest or item.median <= value) for item in ratios)
    )


def _latency_table(result: SuiteResult) -> Iterator[str]:
    """CPU side by side, and the ratios against the reference."""
    solvers = list(dict.fromkeys(run.solver for run in result.runs))
    others = [solver for solver in solvers if solver != REFERENCE] if REFERENCE in solvers else []
    rows = []
    for of_case in by_case(result):
        base = of_case.get(REFERENCE)
        cells = [words.cpu(of_case.get(solver)) for solver in solvers]
        ratios = [
            words.times(ratio(base.runs, of_case[solver].runs)) if base and solver in of_case else ""
            for solver in others
        ]
        num_runs = max(len(summary.runs) for summary in of_case.values())
        rows.append((next(iter(of_case.values())).case.name, str(num_runs), *cells, *ratios))
    yield (
        f"CPU from snapshot to checked plan: median (p95). {words.UNPROVEN} not proven within the gap in every "
        "run. "
        f"`{REFERENCE}/x`: median of the ratios on the same instance in the same round, at least (≥) where "
        f"{REFERENCE} ended at its limit."
    )
    yield ""
    yield from markdown(("case", "runs", *solvers, *(f"{REFERENCE}/{solver}" for solver in others)), rows)


def _proof_table(result: SuiteResult) -> Iterator[str]:
    """Objective, bound, gap and check of every case and solver; of the first seed where one number is meant."""
    rows = []
    for summary in summaries(result):
        first = summary.runs[0]
        ending = first.termination or first.status.value
        rows.append(
            (
                summary.case.name,
                summary.solver,
                f"{summary.num_proven}/{len(summary.runs)}",
                ending if first.limit is None else f"{ending}, {first.limit}",
                words.number(first.objective),
                words.number(first.bound),
                words.gap(summary.worst_gap),
                f"{summary.num_checked}/{len(summary.runs)}",
                words.spread(summary.wall),
                words.spread(summary.spread(lambda run: run.first_incumbent_s)),
                words.mebibytes(_median(summary.spread(lambda run: run.peak_memory_bytes))),
                words.number(first.num_columns),
            )
        )
    yield "Objective, bound and ending are those of the first seed; the gap is the largest of all runs."
    yield ""
    head = ("case", "solver", "proven", "ending", "objective", "bound", "gap", "checked")
    yield from markdown((*head, "wall", "first incumbent", "peak MiB", "columns"), rows)


def _phase_table(result: SuiteResult) -> Iterator[str]:
    every = summaries(result)
    names = list(dict.fromkeys(name for summary in every for name in summary.phases()))
    rows = [
        (
            summary.case.name,
            summary.solver,
            *(words.seconds(summary.phases().get(name)) for name in names),
        )
        for summary in every
        if summary.phases()
    ]
    yield "Median CPU of the phases."
    yield ""
    yield from markdown(("case", "solver", *names), rows)


def _modelling_table(result: SuiteResult) -> Iterator[str]:
    rows = []
    for summary in summaries(result):
        found = [run for run in summary.runs if run.modelling_cpu_s]
        if found:
            declare, compile_ = (
                Spread.of(run.modelling_cpu_s.get(name) for run in found) for name in ("declare", "compile")
            )
            build = summary.phase_cpu("build")
            columns = words.number(found[0].num_columns)
            rows.append(
                (summary.case.name, columns, words.spread(declare), words.spread(compile_), words.spread(build))
            )
    if rows:
        yield "The model through its modelling language (CVXPY or Pyomo), by itself, beside the phase `build`."
        yield ""
        yield from markdown(("case", "columns", "declare", "compile", "build"), rows)


def _median(spread: Spread | None) -> float | None:
    return None if spread is None else spread.median


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
