"""The result fails closed; so do the options and the progress that is merged."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.monitor import Progress
from solver.options import SolveOptions
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.sense import Sense
from solver.worker import merged
from stowplan.errors import InputError

OPTIMAL = SolveResult(
    termination=TerminationReason.OPTIMAL,
    limit=None,
    sense=Sense.MINIMIZE,
    incumbent=np.ones(1),
    objective=4.0,
    bound=3.0,
    statistics=SolveStatistics(),
    solver="none",
    solver_version="0",
)
NOTHING = replace(
    OPTIMAL,
    termination=TerminationReason.NO_SOLUTION_FOUND,
    limit=Limit.TIME,
    incumbent=None,
    objective=None,
    bound=None,
)

INCONSISTENT: list[tuple[SolveResult, dict[str, Any]]] = [
    (OPTIMAL, {"incumbent": None, "objective": None}),
    (OPTIMAL, {"incumbent": None}),
    (OPTIMAL, {"objective": None}),
    (OPTIMAL, {"objective": np.nan}),
    (OPTIMAL, {"objective": np.inf}),
    (OPTIMAL, {"bound": None}),
    (OPTIMAL, {"bound": -np.inf}),
    (OPTIMAL, {"bound": 4.1}),
    (OPTIMAL, {"sense": Sense.MAXIMIZE}),
    (OPTIMAL, {"limit": Limit.TIME}),
    *((OPTIMAL, {"termination": reason}) for reason in TerminationReason if not reason.has_incumbent),
    (NOTHING, {"limit": None}),
    (NOTHING, {"incumbent": np.ones(1), "objective": 1.0}),
    (NOTHING, {"objective": 0.0}),
    (NOTHING, {"termination": TerminationReason.INFEASIBLE}),
]


def test_a_heuristic_may_end_by_itself_with_a_gap() -> None:
    assert replace(OPTIMAL, termination=TerminationReason.FEASIBLE, bound=1.0).limit is None


@pytest.mark.parametrize(("consistent", "change"), INCONSISTENT)
def test_inconsistent_results_raise(consistent: SolveResult, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        replace(consistent, **change)


def test_gap() -> None:
    assert OPTIMAL.relative_gap == 0.25
    assert NOTHING.relative_gap is None
    assert replace(OPTIMAL, bound=None, termination=TerminationReason.FEASIBLE, limit=Limit.TIME).relative_gap is None
    assert replace(OPTIMAL, objective=0.0, bound=0.0).relative_gap == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_limit_s": 0.0},
        {"time_limit_s": np.inf},
        {"time_limit_s": np.nan},
        {"relative_gap": -1e-9},
        {"relative_gap": np.nan},
        {"threads": 0},
        {"seed": -1},
        {"seed": 2**31},
    ],
)
def test_wrong_options_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        SolveOptions(**wrong)


def test_merged_progress_keeps_the_newest_of_everything() -> None:
    point = np.ones(2)
    first = Progress(elapsed_s=1.0, objective=5.0, bound=1.0, incumbent=point, num_nodes=3)
    last = merged(first, Progress(elapsed_s=2.0, bound=2.0))
    assert (last.elapsed_s, last.objective, last.bound, last.num_nodes) == (2.0, 5.0, 2.0, 3)
    assert last.incumbent is point
    assert merged(None, first) is first
