"""Priors fitted to published rows: least squares of the logarithms of times, with priors of their own.

Every parameter starts from what is usually said of it, with a standard deviation of its logarithm: a few rows move it
little. Rows of a source with many count less each, so that no source decides alone; outliers count by their distance
(soft L1).
"""

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from benchmarks.performance.published_steps.rows import Case, predicted_s
from models.performance.iteration.priors import FILE, Priors
from stowplan.arrays import FloatVector

# Standard deviation of the logarithm of a measured time that the model explains; rows of a source that count whole.
_ERROR = 0.1
_FULL_ROWS = 12
# Of the least squares, and of the differences that stand for derivatives: far below what rows tell apart.
_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One figure of the file, by its keys; `usual` value and standard deviation of the logarithm."""

    keys: tuple[str, ...]
    usual: float
    deviation: float


PARAMETERS = (
    Parameter(keys=("common", "memory"), usual=0.85, deviation=0.07),
    Parameter(keys=("common", "link"), usual=0.75, deviation=0.2),
    Parameter(keys=("common", "network"), usual=0.75, deviation=0.15),
    Parameter(keys=("common", "misaligned"), usual=0.1, deviation=0.7),
    Parameter(keys=("common", "launch_s"), usual=1e-4, deviation=0.7),
    Parameter(keys=("common", "fp8_traffic"), usual=1.7, deviation=0.3),
    Parameter(keys=("common", "scale_loss"), usual=0.005, deviation=0.7),
    Parameter(keys=("gpu", "volta", "matrix"), usual=0.75, deviation=0.15),
    Parameter(keys=("gpu", "ampere", "matrix"), usual=0.75, deviation=0.15),
    Parameter(keys=("gpu", "hopper", "matrix"), usual=0.6, deviation=0.2),
    Parameter(keys=("gpu", "hopper", "fp8"), usual=0.6, deviation=0.2),
    Parameter(keys=("gpu", "ampere", "attention"), usual=0.3, deviation=0.3),
    Parameter(keys=("gpu", "hopper", "attention"), usual=0.2, deviation=0.3),
    Parameter(keys=("software", "megatron-core", "attention"), usual=1.8, deviation=0.2),
    Parameter(keys=("software", "megatron-core", "tensor_exposed"), usual=0.5, deviation=0.4),
    Parameter(keys=("software", "torch-eager", "traffic"), usual=1.8, deviation=0.2),
)


def with_values(values: Sequence[float]) -> dict[str, Any]:
    """The shipped tables with other values of the parameters."""
    document = tomllib.loads(FILE.read_text(encoding="utf-8"))
    for parameter, value in zip(PARAMETERS, values, strict=True):
        table = document
        for key in parameter.keys[:-1]:
            table = table[key]
        table[parameter.keys[-1]] = float(value)
    return document


def fitted(cases: Sequence[Case], start: Sequence[float] | None = None) -> list[float]:
    """Values of the parameters, fitted to the rows, all of which have a time; `start`: values near them."""
    usual = np.log([parameter.usual for parameter in PARAMETERS])
    deviation = np.array([parameter.deviation for parameter in PARAMETERS])
    measured = np.log([case.known_s for case in cases])
    counts = Counter(case.source for case in cases)
    weight = np.sqrt([min(1.0, _FULL_ROWS / counts[case.source]) for case in cases]) / _ERROR

    def residuals(values: FloatVector) -> FloatVector:
        known = Priors.of(with_values(np.exp(values).tolist()))
        predicted = np.log([predicted_s(case, known) for case in cases])
        return np.concatenate([(predicted - measured) * weight, (values - usual) / deviation])

    found = least_squares(
        residuals,
        usual if start is None else np.log(start),
        loss="soft_l1",
        diff_step=np.full(len(usual), _TOLERANCE),
        x_scale=deviation,
        ftol=_TOLERANCE,
        xtol=_TOLERANCE,
    )
    values: list[float] = np.exp(found.x).tolist()
    return values


def text_of(document: Mapping[str, Any]) -> str:
    """The tables as TOML, figures with three digits, below the comment that the file begins with."""
    head = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    lines = list(head)
    for section, tables in document.items():
        nested = {section: tables} if section == "common" else {f"{section}.{k}": v for k, v in tables.items()}
        for name, table in nested.items():
            lines += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(f'"{part}"' for part in value) + "]"
    return repr(float(f"{value:.3g}"))
