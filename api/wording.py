"""Numbers and outcomes in words, the same in pictures and on terminals."""

from models.plan import PlanOutcome
from solver.result import Limit

# A gap below this is rounding of the solver.
_NO_GAP = 1e-9


def counted(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


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
    reason, limit = outcome.termination.replace("_", " "), outcome.limit
    if limit is None:
        return reason
    return f"{reason} ({limit})" if limit in (Limit.INTERRUPTED, Limit.DEADLINE) else f"{reason} ({limit} limit)"
