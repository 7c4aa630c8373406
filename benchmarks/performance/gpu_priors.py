"""Priors of the native engine, from what `gpu-steps` has measured.

    python -m benchmarks gpu-priors [--fit]      needs no GPU; --fit: into `priors.toml`

No published step is of this engine. Fitted are the shares of the peak that its attention and its other products reach,
over those of the family of GPUs, to all steps that count; shown are errors of the shipped ones, and of those that were
fitted to steps of the other card or of other models.
"""

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from scipy.optimize import least_squares

from benchmarks.paths import RESULTS
from benchmarks.performance.gpu_steps import Measured, counts
from benchmarks.performance.published_steps.fit import text_of
from benchmarks.rows import Row, show
from executor.training_options import EngineName
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.priors import FILE, Priors
from models.software import Software
from models.transformer import Precision
from stowplan.arrays import FloatVector
from stowplan.records import from_document
from topology.gpu_catalogue import find_product, gpu_type_of

_FITTED = ("matrix", "attention")
# Standard deviation of the logarithm of a measured time that the model explains, as of published ones.
_ERROR = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step that was measured on a GPU."""

    gpu_type: str
    measured: Measured

    def error(self, known: Priors) -> float:
        """Logarithm of predicted over measured time."""
        case, kind = self.measured.case, gpu_type_of(find_product(self.gpu_type), Precision.BF16)
        model = virtual_model(case.transformer, kind, 1, 1, known=known)
        return float(np.log(model.iteration(case.plan(self.gpu_type)).total_s / (self.measured.step_s or 0.0)))


def main(
    fit: Annotated[bool, typer.Option("--fit", help="Write priors that are fitted to all steps.")] = False,
) -> None:
    """Hold priors of the native engine against steps of one GPU."""
    steps = native_steps()
    if fit:
        FILE.write_text(text_of(with_values(fitted(steps))), encoding="utf-8")
    show("native engine on one GPU, predicted over measured", list(figures(steps)))


def figures(steps: Sequence[Step]) -> Iterator[Row]:
    """Errors of steps of every card by the shipped priors, and by those that the card or the model had no part in."""
    shipped = Priors.of(tomllib.loads(FILE.read_text(encoding="utf-8")))
    by_card = {card: without(steps, gpu_type=card) for card in dict.fromkeys(step.gpu_type for step in steps)}
    by_model = {name: without(steps, model=name) for name in dict.fromkeys(step.measured.case.model for step in steps)}
    for card, known in by_card.items():
        own = [step for step in steps if step.gpu_type == card]
        yield _row(card, "shipped", [step.error(shipped) for step in own])
        yield _row(card, "told by the other card", [step.error(known) for step in own])
        yield _row(card, "told by other models", [step.error(by_model[step.measured.case.model]) for step in own])


def without(steps: Sequence[Step], *, gpu_type: str | None = None, model: str | None = None) -> Priors:
    """Those that are fitted to all steps but those of a card, or of a model."""
    told = [step for step in steps if step.gpu_type != gpu_type and step.measured.case.model != model]
    return Priors.of(with_values(fitted(told)))


def native_steps() -> list[Step]:
    """Steps of the native engine on all cards, from the results of `gpu-steps`."""
    found = []
    for file in sorted(RESULTS.glob("gpu_steps*.json"), reverse=True):
        document = json.loads(file.read_text(encoding="utf-8"))
        measured = [from_document(Measured, row, str(file)) for row in document["measured"]]
        found += [Step(gpu_type=document["gpu_type"], measured=one) for one in measured]
    return [
        step
        for step in found
        if step.measured.case.engine is EngineName.NATIVE and counts(step.measured, step.gpu_type)
    ]


def fitted(steps: Sequence[Step]) -> dict[str, float]:
    """Least squares of the logarithms of times, outliers by their distance; by name."""

    def residuals(values: FloatVector) -> FloatVector:
        known = Priors.of(with_values(dict(zip(_FITTED, np.exp(values).tolist(), strict=True))))
        return np.array([step.error(known) for step in steps]) / _ERROR

    found = least_squares(residuals, np.zeros(len(_FITTED)), loss="soft_l1")
    return dict(zip(_FITTED, np.exp(found.x).tolist(), strict=True))


def with_values(values: Mapping[str, float]) -> dict[str, Any]:
    """The shipped tables with other values of the engine."""
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    document["software"][Software.NATIVE].update(values)
    return document


def _row(card: str, priors: str, logarithms: Sequence[float]) -> Row:
    errors = 100 * np.expm1(logarithms)
    worst = errors[np.argmax(np.abs(errors))]
    return {
        "card": card,
        "priors": priors,
        "rows": len(errors),
        "median %": float(np.median(np.abs(errors))),
        "worst %": float(worst),
    }
