"""What the command line prints of variants: their figures side by side, then what happens to jobs."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from api.cli.console import print_issues
from api.common.wording import ending_words, number
from api.schemas.plan import OutcomeDoc
from api.schemas.problem import IssueDoc
from api.schemas.what_if import JobDifferenceDoc, JobPlaceDoc, PlacementFiguresDoc, PlanDifferenceDoc, VariantAnswer
from models.what_if.difference import JobChange
from models.wording import counted
from solver.sense import Sense
from stowplan.errors import Issue

_MAX_JOBS_SHOWN = 30
_MAX_NODES_SHOWN = 4
_DAY_S = 86_400.0
_NOTHING = "-"

Answered = tuple[VariantAnswer, OutcomeDoc | None]
"""A variant, and what planning it ended with (None: rules forbid it)."""


def print_what_if(screen: Console, base: OutcomeDoc, variants: Sequence[Answered]) -> None:
    """Everything about the variants that fits a terminal."""
    screen.print(_figures(base, variants))
    for answer, outcome in variants:
        screen.print()
        screen.print(f"[bold]{escape(answer.variant.name)}[/]", soft_wrap=True)
        if outcome is None:
            place = answer.variant.place
            screen.print(f"  rules forbid {escape(repr(place.job)) if place else 'it'} there:")
            print_issues(screen, [_issue(issue) for issue in answer.forbidden])
        elif answer.difference is None:
            screen.print("  no plan to compare: one of the two has none")
            for job in outcome.unplaced:
                screen.print(f"  {escape(job.job_id)}: {escape(job.detail)}; {escape(job.remedy)}", soft_wrap=True)
        else:
            _print_difference(screen, answer, answer.difference, base.sense)


def _figures(base: OutcomeDoc, variants: Sequence[Answered]) -> Table:
    """A column for the base and one for each variant."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    table.add_column("base", justify="right")
    for answer, _ in variants:
        table.add_column(escape(answer.variant.name), justify="right", overflow="fold")
    outcomes = [base, *(outcome for _, outcome in variants)]
    differences = [answer.difference for answer, _ in variants]
    for name, cells in _rows(outcomes):
        table.add_row(name, *(escape(cell) for cell in cells))
    moves = [_NOTHING if each is None else _moves(each) for each in differences]
    table.add_row("jobs that change", "", *moves)
    ratios = [_NOTHING if each is None or each.goodput_ratio is None else each.goodput_ratio for each in differences]
    if any(isinstance(ratio, float) for ratio in ratios):
        words = (f"{100 * ratio - 100:+.2f} %" if isinstance(ratio, float) else ratio for ratio in ratios)
        table.add_row("goodput of jobs in both", "", *words)
    if any(answer.variant.place is not None for answer, _ in variants):
        table.add_row("price of the place", "", *(number(answer.price) for answer, _ in variants))
    return table


def _rows(outcomes: Sequence[OutcomeDoc | None]) -> Iterator[tuple[str, list[str]]]:
    """Name and a cell for every plan: how it ended, its objective by term, jobs, GPUs, spreads."""
    ended = [each.termination if each is not None else None for each in outcomes]
    yield "status", ["forbidden" if end is None else ending_words(end.reason, end.limit) for end in ended]
    yield "objective", [_NOTHING if each is None else number(each.objective) for each in outcomes]
    yield "bound", [_NOTHING if each is None else number(each.bound) for each in outcomes]
    terms = [_sums([(term.term, term.value) for term in each.score]) if each else {} for each in outcomes]
    for name in dict.fromkeys(name for each in terms for name in each):
        yield f"  {escape(name)}", [number(each.get(name)) for each in terms]
    placed = [None if each is None else len(each.allocations) + len(each.ahead) for each in outcomes]
    yield "jobs with GPUs or a start", [_NOTHING if count is None else str(count) for count in placed]
    gpus = [_sums([(job.gpu_type, job.num_gpus) for job in each.allocations]) if each else {} for each in outcomes]
    for kind in dict.fromkeys(kind for each in gpus for kind in each):
        counts = zip(outcomes, gpus, strict=True)
        yield f"GPUs {escape(kind)}", [_NOTHING if each is None else f"{own.get(kind, 0):.0f}" for each, own in counts]


def _sums(values: Sequence[tuple[str, float]]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for name, value in values:
        sums[name] = sums.get(name, 0.0) + value
    return sums


def _moves(difference: PlanDifferenceDoc) -> str:
    found = difference.num_by_change
    counts = [f"{found[change]} {change.value}" for change in JobChange if change in found]
    return ", ".join(counts) or "none"


def _print_difference(
    screen: Console, answer: VariantAnswer, difference: PlanDifferenceDoc, sense: Sense | None
) -> None:
    objective = difference.objective
    if difference.same:
        screen.print("  the plans give the same")
    elif objective.difference is not None:
        screen.print(f"  the objective (to {sense}) changes by {objective.difference:+.6g}{_range(difference)}")
    for note in objective.notes:
        screen.print(f"  {escape(note)}", soft_wrap=True)
    if answer.price is not None and answer.variant.place is not None:
        job = escape(answer.variant.place.job)
        if objective.difference is not None:
            words = f"price of {job} there: {number(answer.price)} of the objective"
        else:
            does = "lose" if answer.price >= 0 else "gain"
            words = f"with {job} there, the terms of the other jobs {does} {number(abs(answer.price))} of the objective"
        screen.print(f"  {words}", soft_wrap=True)
    for row in difference.spreads:
        screen.print(f"  spread of {escape(row.job_id)}: {_spread(row.base)} -> {_spread(row.other)}")
    if difference.jobs:
        screen.print(_jobs(difference.jobs))
    rest = len(difference.jobs) - _MAX_JOBS_SHOWN
    if rest > 0:
        screen.print(f"  and {counted(rest, 'job')} more; --json lists all")


def _range(difference: PlanDifferenceDoc) -> str:
    """What the bounds leave open, where that is anything."""
    objective = difference.objective
    if objective.least is None or objective.most is None or objective.most - objective.least < 1e-6:
        return ""
    return f"; of the best plans there are, by {objective.least:+.6g} to {objective.most:+.6g}"


def _spread(figures: PlacementFiguresDoc | None) -> str:
    if figures is None:
        return "none"
    spread = figures.minipod_spread
    return f"DP {spread.dp}, PP {spread.pp} of {counted(figures.num_minipods_used, 'minipod')}"


def _jobs(jobs: Sequence[JobDifferenceDoc]) -> Table:
    table = Table("  job", "change", "base", "then", "why", box=None, pad_edge=False, header_style="bold")
    order = list(JobChange)
    for job in sorted(jobs, key=lambda job: order.index(job.change))[:_MAX_JOBS_SHOWN]:
        words = (f"  {job.job_id}", job.change.value, _place(job.base), _place(job.other), job.reason or "")
        table.add_row(*(escape(word) for word in words))
    return table


def _place(place: JobPlaceDoc | None) -> str:
    """`8 a100 on n1, n2`."""
    if place is None:
        return _NOTHING
    names = list(place.nodes)
    shown = ", ".join(names[:_MAX_NODES_SHOWN])
    rest = len(names) - _MAX_NODES_SHOWN
    where = shown if rest <= 0 else f"{shown}, +{counted(rest, 'node')}"
    start = "" if place.start_s is None else f", from {place.start_s / _DAY_S:.2f} d"
    goodput = "" if place.goodput is None else f", {number(place.goodput)}"
    return f"{place.num_gpus} {place.gpu_type} on {where}{start}{goodput}"


def _issue(issue: IssueDoc) -> Issue:
    return Issue(**dict(issue))
