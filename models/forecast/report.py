"""How well a forecaster did on the last part of its history, beside predictors that need no learning."""

from collections.abc import Mapping
from dataclasses import dataclass

from models.forecast.scores import CLASS_S, COVERED, NUM_CLASSES, PROBABILITIES, Score
from stowplan.errors import InputError, Issue

FORECASTER = "forecaster"
TRIVIAL = "history"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastReport:
    """Figures of a test; `scores`: of the forecaster first. Jobs count that ended.

    `num_learned` jobs were learned from, by `num_held_out` the quantiles were calibrated, `num_tested` came after them;
    each by submission. `num_running` of them all ran when the history ended: they were learned from as far as they
    went, and not tested. `left_out` counts the jobs that say nothing of durations, by reason. `observed` of a score is
    by `probabilities`; classes are of `class_s` seconds, the last of `num_classes` is open.
    """

    num_learned: int
    num_held_out: int
    num_tested: int
    num_running: int
    left_out: Mapping[str, int]
    scores: tuple[Score, ...]
    probabilities: tuple[float, ...] = PROBABILITIES
    covered: float = COVERED
    class_s: float = CLASS_S
    num_classes: int = NUM_CLASSES

    def of(self, predictor: str) -> Score:
        """The score of a predictor."""
        return next(score for score in self.scores if score.predictor == predictor)

    def refuse_worse(self) -> None:
        """Refuse a forecaster that is no better than the quantiles of the history.

        Raises
        ------
        InputError
            With the figures.
        """
        own, trivial = self.of(FORECASTER), self.of(TRIVIAL)
        if own.pinball < trivial.pinball:
            return
        detail = (
            f"on the last {self.num_tested:,} jobs the forecaster's pinball loss is {own.pinball:.4f}, that of the "
            f"quantiles of the history {trivial.pinball:.4f} (coverage of the 90 % quantile {own.coverage_90:.1%} and "
            f"{trivial.coverage_90:.1%}): it is not better. A longer history, or one that names users, queues or time "
            f"limits, may help; until then use these quantiles"
        )
        raise InputError(
            "the forecaster is refused", [Issue(code="forecaster_refused", pointer="/jobs", detail=detail)]
        )
