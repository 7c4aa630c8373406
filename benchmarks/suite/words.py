"""Numbers as people read them."""

from benchmarks.suite.summary import Ratio, Spread, Summary

_MILLI = 1e-3
NOTHING = "-"
UNPROVEN = "*"


def seconds(value: float | None) -> str:
    """`12.3 ms`, `1.23 s`, `75 s`."""
    if value is None:
        return NOTHING
    if value < 1.0:
        return f"{value / _MILLI:.3g} ms" if value < 0.1 else f"{value / _MILLI:.0f} ms"
    return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"


def spread(value: Spread | None) -> str:
    """Median and 95th percentile."""
    if value is None:
        return NOTHING
    return seconds(value.median) if value.num == 1 else f"{seconds(value.median)} ({seconds(value.p95)})"


def gap(value: float | None) -> str:
    """A relative gap; what rounding explains is 0."""
    if value is None:
        return NOTHING
    return "0" if value < 1e-9 else f"{value:.1e}"


def number(value: float | None) -> str:
    """Six significant digits."""
    return NOTHING if value is None else f"{value:.6g}"


def times(value: Ratio | None) -> str:
    """How many times faster."""
    if value is None:
        return NOTHING
    return f"{'≥ ' if value.is_lower_bound else ''}{value.median:.3g}"


def mebibytes(value: float | None) -> str:
    """Memory."""
    return NOTHING if value is None else f"{value / 2**20:.0f}"


def cpu(summary: Summary | None) -> str:
    """Median and 95th percentile of the CPU, or how the runs ended; marked where not every run proved its answer."""
    if summary is None:
        return ""
    mark = "" if summary.is_proven else f" {UNPROVEN}"
    if summary.cpu is None:
        first = summary.runs[0]
        return f"{first.limit or first.termination or first.status.value}{mark}"
    return spread(summary.cpu) + mark
