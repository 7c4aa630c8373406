"""All cases by name, and the suites that choose among them."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType

from benchmarks.suite.case import Case
from benchmarks.suite.cases.ahead import ahead_cases
from benchmarks.suite.cases.arena import arena_cases
from benchmarks.suite.cases.arnold import arnold_cases
from benchmarks.suite.cases.elasticflow import elasticflow_cases
from benchmarks.suite.cases.gang import gang_cases
from benchmarks.suite.cases.gavel import gavel_cases
from benchmarks.suite.cases.horizon import horizon_cases
from benchmarks.suite.cases.planners import planner_cases
from benchmarks.suite.cases.sia import sia_cases
from benchmarks.suite.cases.suika import suika_cases
from benchmarks.suite.external import EXTERNAL_SOLVERS
from benchmarks.suite.planner_run import PLANNER
from models.policies import POLICIES
from solver.registry import EXACT
from stowplan.errors import InputError

# Patterns of case names, as of the shell.
SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "smoke": (
            "sia/waiting/64x*",
            "arnold/table1/ii-scarce",
            "ahead/small",
            "arena*/generated/throughput-load0.5",
            "suika*/racks/2x0.9",
            "gang*/fifo/64x40",
            "gavel*/fair/96",
            "elasticflow*/96",
            "horizon/running/64x20",
            "grid/a100-40gb/2",
            "exhaustive/a100-40gb/2",
            "incremental/a100-40gb/2",
        ),
        "targets": (
            "sia/recorded/sia2048_*",
            "sia/fitted/2048",
            "sia/waiting/10240x*",
            "sia/waiting/100000x*",
            "arnold/hard/*",
            "arnold/scale/10000n*",
            "arnold/table1/iii-*",
        ),
        "sia": ("sia/*",),
        "arnold": ("arnold/*",),
        "ahead": ("ahead/*",),
        "arena": ("arena/*", "arena-ilp/*"),
        "suika": ("suika/*", "suika-ilp/*"),
        "gang": ("gang/*", "gang-ilp/*"),
        "gavel": ("gavel/*", "gavel-ilp/*"),
        "elasticflow": ("elasticflow/*", "elasticflow-ilp/*"),
        "horizon": ("horizon/*",),
        "planners": ("grid/*", "exhaustive/*", "incremental/*"),
        "full": ("*",),
    }
)

_WARM_UP: Mapping[str, str] = MappingProxyType(
    {
        "sia": "sia/waiting/64x20x3",
        "arnold": "arnold/table1/i-scarce",
        "ahead": "ahead/small",
        **{name: f"{name}/generated/throughput-load0.5" for name in ("arena", "arena-ilp")},
        **{name: f"{name}/racks/2x0.9" for name in ("suika", "suika-ilp")},
        **{name: f"{name}/fifo/64x40" for name in ("gang", "gang-ilp")},
        **{name: f"{name}/fair/96" for name in ("gavel", "gavel-ilp")},
        **{name: f"{name}/96" for name in ("elasticflow", "elasticflow-ilp")},
        "horizon": "horizon/running/64x20",
        **{name: f"{name}/a100-40gb/2" for name in ("grid", "exhaustive", "incremental")},
    }
)


@cache
def all_cases() -> Mapping[str, Case]:
    """Every case that can be made on this machine, by name."""
    kinds = (
        *(sia_cases(), arnold_cases(), ahead_cases(), arena_cases(), suika_cases()),
        *(gang_cases(), gavel_cases(), elasticflow_cases(), horizon_cases(), planner_cases()),
    )
    return MappingProxyType({case.name: case for cases in kinds for case in cases})


def find_case(name: str) -> Case:
    """The case of this name.

    Raises
    ------
    InputError
        When there is none.
    """
    if name not in all_cases():
        raise InputError(f"no case is called {name!r}; `python -m benchmarks list` names them")
    return all_cases()[name]


def chosen_cases(patterns: Iterable[str]) -> tuple[Case, ...]:
    """Cases whose name matches any of the patterns, in the order of the registry.

    Raises
    ------
    InputError
        When a pattern matches none.
    """
    patterns = tuple(patterns)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in all_cases()):
            raise InputError(f"no case matches {pattern!r}; `python -m benchmarks list` names them")
    return tuple(case for name, case in all_cases().items() if any(fnmatchcase(name, pattern) for pattern in patterns))


def suite_cases(suite: str) -> tuple[Case, ...]:
    """Cases of a suite; patterns that need data which are not there are left out.

    Raises
    ------
    InputError
        For an unknown suite.
    """
    if suite not in SUITES:
        raise InputError(f"no suite is called {suite!r}; there are {', '.join(SUITES)}")
    present = [pattern for pattern in SUITES[suite] if any(fnmatchcase(name, pattern) for name in all_cases())]
    return chosen_cases(present)


def solvers_for(problem: str, names: Iterable[str]) -> tuple[str, ...]:
    """Those of the solvers that apply to the problem.

    An exact algorithm solves the problem of one policy, which has no use for the decomposition. A heuristic answers
    itself, and a solver bounds it: no external one can. A planner of 3D plans needs none.
    """
    if problem not in POLICIES:
        return (PLANNER,)
    policy = POLICIES[problem]
    excluded = {EXACT, "decomposition"} - set(policy.algorithms) if policy.algorithms else {EXACT}
    if policy.is_heuristic:
        excluded |= EXTERNAL_SOLVERS.keys()
    return tuple(name for name in names if name not in excluded)


def warm_up_case(problem: str) -> Case:
    """A small case of the problem: planned before the clock runs, so that nothing is loaded while it does."""
    return find_case(_WARM_UP[problem])


def answers_heuristically(problem: str) -> bool:
    """Whether an answer with a gap is the end of the algorithm, not that of its time."""
    return problem not in POLICIES or POLICIES[problem].is_heuristic
