"""Results of `horizon-replays` as Markdown, for `benchmarks/README.md`."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from benchmarks.horizon.parts import PARTS
from benchmarks.rows import Row
from benchmarks.suite.report import markdown

MARKS = ("<!-- horizon-replays: begin -->", "<!-- horizon-replays: end -->")
_HEAD = (
    *("variant", "replays", "ended", "mean, h", "of the first", "median, h", "p99, h", "makespan, h"),
    *("restarts a job", "longest wait, h", "most unfair", "CPU a decision: p50, p95, p99", "gap: p50, most"),
)

Group = tuple[str, float]
"""Trace and load."""


def tables(found: Mapping[str, Sequence[Row]]) -> str:
    """A table for every part that was replayed."""
    return "\n".join(line for part, rows in found.items() for line in _of_part(part, rows))


def _of_part(part: str, rows: Sequence[Row]) -> Iterator[str]:
    title, first = PARTS[part].title, PARTS[part].first
    groups = list(dict.fromkeys(_group(row) for row in rows))
    has_all = [name for name in _variants(rows) if _groups(rows, name) == set(groups)]
    result = f"`results/horizon_replays_{part.replace('-', '_')}.json`"
    yield f"{title}, by {_commands(rows)} ({result}):"
    yield ""
    if len(groups) > 1 and len(has_all) > 1:
        of_all = [row for row in rows if row["variant"] in has_all]
        yield f"Means over all {len(groups)}; the longest of all waits."
        yield ""
        yield from markdown(_HEAD, (_line(name, of_all, first) for name in has_all))
        yield ""
        yield "<details><summary>One by one</summary>"
        yield ""
    for group in groups:
        of_group = [row for row in rows if _group(row) == group]
        trace, load = group
        yield f"{trace}{'' if load == 1 else f', load {load:g}'}; alone {fmean(_values(of_group, 'alone_h')):.3f} h:"
        yield ""
        yield from markdown(_HEAD, (_line(name, of_group, first) for name in _variants(of_group)))
        yield ""
    if len(groups) > 1 and len(has_all) > 1:
        yield "</details>"
        yield ""


def _line(name: str, rows: Sequence[Row], first: str) -> Sequence[str]:
    """Of one variant. The ratio to the first is the mean of those of the traces."""
    own = [row for row in rows if row["variant"] == name]
    ratios = [
        fmean(_values([row for row in own if _group(row) == group], "mean_h")) / base
        for group in dict.fromkeys(_group(row) for row in own)
        if (base := _base(rows, group, first))
    ]
    decision, gap = (
        [fmean(column) for column in zip(*_lists(own, key), strict=True)] for key in ("decision_ms", "gap")
    )
    kept = [row["retention"] for row in own if row.get("retention") is not None]
    return (
        f"`{name}`" + (f" (retention {fmean(map(float, map(str, kept))):.2f})" if kept else ""),
        str(len(own)),
        f"{sum(_values(own, 'ended')):.0f} of {sum(_values(own, 'jobs')):.0f}",
        f"{fmean(_values(own, 'mean_h')):.3f}",
        f"{fmean(ratios):.1%}" if ratios else "",
        f"{fmean(_values(own, 'median_h')):.3f}",
        f"{fmean(_values(own, 'p99_h')):.2f}",
        f"{fmean(_values(own, 'makespan_h')):.1f}",
        f"{fmean(_values(own, 'restarts')):.2f}",
        f"{max(_values(own, 'longest_wait_h')):.2f}",
        f"{max(_values(own, 'most_unfair')):.1f}",
        f"{decision[0]:.0f}, {decision[1]:.0f}, {decision[2]:.0f} ms",
        f"{gap[0]:.1e}, {max(values[-1] for values in _lists(own, 'gap')):.1e}",
    )


def _base(rows: Sequence[Row], group: Group, first: str) -> float | None:
    found = [row for row in rows if _group(row) == group and row["variant"] == first]
    return fmean(_values(found, "mean_h")) if found else None


def _commands(rows: Sequence[Row]) -> str:
    """The one that made most of the rows, and whether there are others."""
    commands = [str(row["command"]) for row in rows]
    most = max(dict.fromkeys(commands), key=commands.count)
    return f"`{most}`" if len(set(commands)) == 1 else f"`{most}` and others, which the result names row by row"


def _variants(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["variant"]) for row in rows))


def _groups(rows: Sequence[Row], name: str) -> set[Group]:
    return {_group(row) for row in rows if row["variant"] == name}


def _group(row: Row) -> Group:
    return str(row["trace"]), float(str(row["load"]))


def _values(rows: Sequence[Row], name: str) -> list[float]:
    return [float(str(row[name])) for row in rows]


def _lists(rows: Sequence[Row], name: str) -> list[list[float]]:
    found: Any = [row[name] for row in rows]
    return list(found)
