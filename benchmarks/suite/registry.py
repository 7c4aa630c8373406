"""All cases by name, and the suites that choose among them."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from types import MappingProxyType

from benchmarks.suite.case import Case, Problem
from benchmarks.suite.cases.arnold import arnold_cases
from benchmarks.suite.cases.sia import sia_cases
from stowplan.errors import InputError

# Patterns of case names, as of the shell.
SUITES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "smoke": ("sia/waiting/64x*", "arnold/table1/ii-scarce"),
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
        "full": ("*",),
    }
)


@cache
def all_cases() -> Mapping[str, Case]:
    """Every case that can be made on this machine, by name."""
    cases = {case.name: case for case in (*sia_cases(), *arnold_cases())}
    return MappingProxyType(cases)


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


def solvers_for(problem: Problem, names: Iterable[str]) -> tuple[str, ...]:
    """Those of the solvers that apply to the problem: each exact algorithm solves one problem only."""
    others = {Problem.SIA: "exact", Problem.ARNOLD: "decomposition"}
    return tuple(name for name in names if name != others[problem])
