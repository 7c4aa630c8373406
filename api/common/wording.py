"""Numbers and outcomes in words, the same in pictures and on terminals."""

from collections.abc import Sequence

from models.plan import PlanOutcome
from models.wording import size_of
from solver.result import Limit, TerminationReason

# A gap below this is rounding of the solver.
_NO_GAP = 1e-9


def percent(share: float | None) -> str:
    """A relative gap in per cent, `-` where nothing is known."""
    if share is None:
        return "-"
    return "0 %" if share < _NO_GAP else f"{100 * share:.3g} %"


def number(value: float | None) -> str:
    """A value of the objective, `-` where nothing is known."""
    return "-" if value is None else f"{value:.6g}"


def termination_words(outcome: PlanOutcome) -> str:
    """Why the solve ended: `optimal`, `feasible (time limit)`, `feasible (interrupted)`."""
    return ending_words(outcome.termination, outcome.limit)


def ending_words(termination: TerminationReason, limit: Limit | None) -> str:
    """The same from its parts."""
    reason = termination.replace("_", " ")
    if limit is None or limit is Limit.OTHER:
        return reason
    return f"{reason} ({limit})" if limit in (Limit.INTERRUPTED, Limit.DEADLINE) else f"{reason} ({limit} limit)"


def duration(milliseconds: float | None) -> str:
    """`0.430 ms`, `88.7 ms`, `2.20 s`; `-` where nothing is known."""
    if milliseconds is None:
        return "-"
    value, unit = (milliseconds / 1e3, "s") if milliseconds >= 999.5 else (milliseconds, "ms")
    return f"{value:.0f} {unit}" if value >= 99.95 else f"{value:#.3g} {unit}"


def memory(num_bytes: int | None) -> str:
    """A size as `size_of` has it; `-` where nothing is known."""
    return "-" if num_bytes is None else size_of(num_bytes)


def degree_words(degrees: Sequence[tuple[int, int]]) -> str:
    """`PP2 DP4 TP8` from (DP, TP) of every stage, `PP3, mixed` where they differ."""
    if len(set(degrees)) > 1:
        return f"PP{len(degrees)}, mixed"
    dp, tp = degrees[0]
    return f"PP{len(degrees)} DP{dp} TP{tp}"
