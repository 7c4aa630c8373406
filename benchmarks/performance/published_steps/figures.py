"""How good predictions are: errors of times, after one calibration point, of the order of plans, of memory."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import spearmanr

from benchmarks.performance.published_steps.rows import Case
from stowplan.arrays import FloatVector

# Of the logarithms of what a site's level differs by, and of one measurement: how far one point moves predictions.
LEVEL_DEVIATION, POINT_DEVIATION = 0.15, 0.04
_MIN_PLANS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Of |predicted / measured - 1|: number of rows, median, p90, share within 20 %, and the median with its sign."""

    num_rows: int
    median: float
    p90: float
    within_20: float
    bias: float

    @classmethod
    def of(cls, errors: FloatVector) -> "Errors":
        """From predicted / measured - 1."""
        size = np.abs(errors)
        return cls(
            num_rows=len(errors),
            median=float(np.median(size)),
            p90=float(np.quantile(size, 0.9)),
            within_20=float(np.mean(size <= 0.2)),
            bias=float(np.median(errors)),
        )


def by_set(cases: Sequence[Case], errors: FloatVector) -> dict[str, Errors]:
    """Errors of every set of rows."""
    rows: dict[str, list[float]] = defaultdict(list)
    for case, error in zip(cases, errors.tolist(), strict=True):
        rows[case.set].append(error)
    return {name: Errors.of(np.array(found)) for name, found in sorted(rows.items())}


def after_one_point(cases: Sequence[Case], errors: FloatVector) -> FloatVector:
    """Errors of rows after another one of their (family, GPU, source) told the level: every row of these is the point
    in turn, so that a group of n gives n (n - 1) errors, of which n - 1 are kept, evenly by size."""
    groups: dict[object, list[int]] = defaultdict(list)
    for k, case in enumerate(cases):
        groups[case.source, case.family, case.gpu.name].append(k)
    kept = (LEVEL_DEVIATION / np.hypot(LEVEL_DEVIATION, POINT_DEVIATION)) ** 2
    found: list[FloatVector] = []
    for rows in groups.values():
        log = np.log1p(errors[rows])
        left = np.expm1(log[:, None] - kept * log[None, :])
        others = np.sort(left[~np.eye(len(rows), dtype=bool)])
        if len(rows) > 1:
            found.append(others[:: len(rows)][: len(rows)])
    return np.concatenate(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Plans of one model on as many GPUs: Spearman's correlation of predicted and measured times, and how much longer
    the plan takes that is predicted to be the fastest than the one that is."""

    name: str
    num_plans: int
    correlation: float
    loss: float


def rankings(cases: Sequence[Case], errors: FloatVector) -> list[Ranking]:
    """Rankings of all groups of five or more plans."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for k, case in enumerate(cases):
        groups[case.group].append(k)
    found = []
    for group, rows in groups.items():
        tokens = np.array([cases[k].scale * cases[k].plan.global_batch * cases[k].model.sequence_length for k in rows])
        measured = np.array([cases[k].known_s for k in rows]) / tokens
        predicted = measured * (1.0 + errors[rows])
        if len({plan_key(cases[k]) for k in rows}) < _MIN_PLANS:
            continue
        found.append(
            Ranking(
                name=" ".join(map(str, group)),
                num_plans=len(rows),
                correlation=float(spearmanr(predicted, measured).statistic),
                loss=float(measured[predicted.argmin()] / measured.min() - 1.0),
            )
        )
    return found


def plan_key(case: Case) -> tuple[object, ...]:
    """What makes a plan another one."""
    first, plan, model = case.plan.stages[0], case.plan, case.model
    return (
        plan.pp,
        first.dp,
        first.tp,
        plan.num_micro_batches,
        plan.virtual_stages,
        plan.context_parallel,
        plan.expert_parallel,
        model.checkpointing,
        model.zero_stage,
    )


def memory_figures(cases: Sequence[Case]) -> dict[str, float]:
    """Rows with and without the memory that the model expects: plans that ran and are refused, plans that ran out of
    memory and are passed, and predicted over measured memory where that was published."""
    fits = [case.performance().fits(case.plan) for case in cases]
    ran = [fit for case, fit in zip(cases, fits, strict=True) if case.ran]
    failed = [fit for case, fit in zip(cases, fits, strict=True) if not case.ran]
    ratios = [
        case.performance().reported_bytes(case.plan) / case.memory_bytes
        for case in cases
        if case.memory_bytes is not None
    ]
    return {
        "ran": len(ran),
        "refused %": 100 * (1 - float(np.mean(ran))),
        "ran out": len(failed),
        "passed": sum(failed),
        "memory known": len(ratios),
        "predicted / measured": float(np.median(ratios)),
        "median error %": 100 * float(np.median(np.abs(np.array(ratios) - 1.0))),
    }


def summary(errors: Mapping[str, Errors]) -> list[dict[str, object]]:
    """Rows of a table."""
    return [
        {
            "rows": name,
            "n": one.num_rows,
            "median %": 100 * one.median,
            "p90 %": 100 * one.p90,
            "within 20 %": 100 * one.within_20,
            "bias %": 100 * one.bias,
        }
        for name, one in errors.items()
    ]
