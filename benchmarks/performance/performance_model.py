"""How good the predictions of iteration times are: `python -m benchmarks performance-model noise | arena`."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from benchmarks.performance import performance_arena, performance_noise
from benchmarks.rows import Row, show, write


class Question(StrEnum):
    """What predictions are held against."""

    NOISE = "noise"
    ARENA = "arena"


def main(
    question: Annotated[Question, typer.Argument(help="Noise on measurements, or those of Arena's artifact.")],
    seeds: Annotated[int, typer.Option(help="Of the noise, per run, from 0 on.")] = 50,
) -> None:
    """Measure how good the predictions of iteration times are."""
    if question is Question.NOISE:
        _report("performance_noise", performance_noise.PROTOCOL, list(performance_noise.rows(seeds)))
        return
    if not performance_arena.TABLE.is_file():
        sys.exit(f"skipped: the published data are not there ({performance_arena.TABLE.name} beside the checkout)")
    measured = performance_arena.cases()
    without = sum(not case.plans for case in measured)
    _report("performance_arena", performance_arena.PROTOCOL, list(performance_arena.rows(measured)))
    print(f"{len(measured)} rows; in {without} of them no symmetric plan fits into memory by the model")


def _report(name: str, protocol: str, rows: list[Row]) -> None:
    show(name, rows)
    print(write(name, protocol, rows))
