"""What a result proves, as one sentence for people."""

from solver.result import Limit, SolveResult, TerminationReason

_PROOFS = {
    TerminationReason.INFEASIBLE: "proven that there is no plan",
    TerminationReason.UNBOUNDED: "proven that the objective has no bound",
    TerminationReason.INFEASIBLE_OR_UNBOUNDED: "proven that there is no best plan",
}
# At a deadline a worker is asked to stop, too; it does not know why.
_ENDS = {
    Limit.INTERRUPTED: "asked to stop",
    Limit.DEADLINE: "stopped at the deadline of the worker",
    Limit.OTHER: "ended",
}
# A gap below this is rounding of the solver.
_NO_GAP = 1e-9


def certificate_of(result: SolveResult) -> str:
    """What proves the answer, or what ended the solve before it was proved, and the solver's own words."""
    words = f"{_verdict(result)} by {result.solver} ({result.solver_version})"
    return f"{words}: {result.message}" if result.message else words


def _verdict(result: SolveResult) -> str:
    reason, limit, gap = result.termination, result.limit, result.relative_gap
    if reason is TerminationReason.OPTIMAL:
        return f"proven optimal{_within(gap)}"
    if limit is not None or reason is TerminationReason.FEASIBLE:
        end = "ended" if limit is None else _ENDS.get(limit, f"ended at the {limit} limit")
        found = f"a plan{_within(gap)} found" if gap is not None else "a plan without a bound found"
        return f"{end}, {found if reason.has_incumbent else 'no plan found'}"
    return _PROOFS.get(reason, f"ended with: {reason.replace('_', ' ')}")


def _within(gap: float | None) -> str:
    return "" if gap is None or gap < _NO_GAP else f" within {100 * gap:.2g} %"
