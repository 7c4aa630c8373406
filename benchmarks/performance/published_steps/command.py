"""`python -m benchmarks published-steps`: iteration times and memory of published runs, predicted and measured.

Without options the shipped priors are held against all rows. `--validate` fits the priors to all sources but one, and
predicts that one, source by source; `--fit` writes priors that are fitted to all rows to
`models/performance/iteration/priors.toml`. `--plans` has the jobs of current software planned on as many GPUs, and
shows the plan beside the published one.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import numpy as np
import typer

from benchmarks.performance.published_steps.figures import (
    Errors,
    after_one_point,
    by_set,
    memory_figures,
    rankings,
    summary,
)
from benchmarks.performance.published_steps.fit import fitted, text_of, with_values
from benchmarks.performance.published_steps.plans import chosen_rows
from benchmarks.performance.published_steps.rows import TABLE, Case, cases, predicted_s
from benchmarks.rows import Row, show, write
from models.performance.iteration.priors import FILE, Priors
from stowplan.arrays import FloatVector

PROTOCOL = (
    "Errors are |predicted / measured - 1| of the iteration time. A source is a project or paper: `validated` rows are "
    "predicted by priors that were fitted to all other sources. `one point`: another row of the same source, model "
    "family and GPU told the level. Rankings: five or more plans of one model on as many GPUs."
)

CHOSEN = (
    "Jobs of NeMo, Megatron-Core and torchtitan as published, on as many GPUs: the published plan, and the best of "
    "the planner with stages of equal degrees, with the same precision, checkpointing and sharding but any degrees, "
    "parts of stages and micro-batches. Both times are predicted; `faster by` is their ratio. `runs there`: all stages "
    "have the same degrees."
)


def main(
    validate: Annotated[bool, typer.Option("--validate", help="Fit to all other sources for each source.")] = False,
    fit: Annotated[bool, typer.Option("--fit", help="Write priors that are fitted to all rows.")] = False,
    plans: Annotated[bool, typer.Option("--plans", help="Plan the jobs of current software ourselves.")] = False,
) -> None:
    """Hold predictions against published step times and memory of real training."""
    if not TABLE.is_file():
        sys.exit(f"skipped: the published data are not there ({TABLE.name} beside the checkout)")
    found, left = cases()
    timed = [case for case in found if case.measured_s is not None]
    if plans:
        chosen = list(chosen_rows(timed))
        show("published plans and ours", chosen)
        print(write("published_plans", CHOSEN, chosen))
        return
    rows = list(_rows("shipped", timed, _errors(timed, None)))
    if fit or validate:
        values = fitted(timed)
        errors = _errors(timed, Priors.of(with_values(values)))
        rows += _rows("fitted", timed, errors)
        if validate:
            rows += _rows("validated", timed, validated(timed, values))
        if fit:
            FILE.write_text(text_of(with_values(values)), encoding="utf-8")
    show("published steps", rows)
    memory = memory_figures(found)
    show("memory", [memory])
    print(f"{len(left)} rows cannot be expressed: " + "; ".join(sorted({why.split(":")[0] for _, why in left})))
    print(write("published_steps", PROTOCOL, [*rows, memory]))


def validated(timed: Sequence[Case], start: Sequence[float]) -> FloatVector:
    """Errors of rows by priors that were fitted to all other sources."""
    errors = np.zeros(len(timed))
    for source in sorted({case.source for case in timed}):
        others = [case for case in timed if case.source != source]
        own = [k for k, case in enumerate(timed) if case.source == source]
        errors[own] = _errors([timed[k] for k in own], Priors.of(with_values(fitted(others, start))))
    return errors


def _errors(timed: Sequence[Case], known: Priors | None) -> FloatVector:
    return np.array([predicted_s(case, known) / case.known_s - 1.0 for case in timed])


def _rows(name: str, timed: Sequence[Case], errors: FloatVector) -> list[Row]:
    """Figures of all rows, and of every set."""
    groups = rankings(timed, errors)
    totals = {f"{name}: all": Errors.of(errors), f"{name}: one point": Errors.of(after_one_point(timed, errors))}
    rows = summary(totals | {f"{name}: {key}": found for key, found in by_set(timed, errors).items()})
    nothing = {"correlation": None, "mean loss %": None, "worst loss %": None}
    ranked = {
        "correlation": float(np.mean([group.correlation for group in groups])),
        "mean loss %": 100 * float(np.mean([group.loss for group in groups])),
        "worst loss %": 100 * max(group.loss for group in groups),
    }
    return [row | (ranked if k == 0 and groups else nothing) for k, row in enumerate(rows)]
