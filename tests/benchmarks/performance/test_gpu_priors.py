"""Priors of the native engine are those that its steps tell, and are as good as is said."""

import pytest

from benchmarks.paths import ROOT
from benchmarks.performance.gpu_priors import figures, fitted, native_steps
from benchmarks.rows import Row
from models.performance.iteration.priors import priors
from models.software import Software

_STEPS = native_steps()


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(figures(_STEPS))


def test_what_is_shipped_is_what_is_fitted() -> None:
    shipped = priors().software[Software.NATIVE]
    # Figures of the file have three digits.
    assert fitted(_STEPS) == pytest.approx({"matrix": shipped.matrix, "attention": shipped.attention}, rel=5e-3)


@pytest.mark.parametrize("card", ["h200", "h100"])
def test_figures_of_the_readme_are_those_of_the_steps(rows: list[Row], card: str) -> None:
    own = [row for row in rows if row["card"] == card]
    said = " | ".join(f"{row['median %']:.1f}, {row['worst %']:+.0f} %" for row in own)
    line = f"| {card.upper()} | {own[0]['rows']} | {said} |\n"
    assert line in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


def test_a_card_and_models_that_told_nothing_are_predicted_as_well(rows: list[Row]) -> None:
    assert max(float(str(row["median %"])) for row in rows) < 10
