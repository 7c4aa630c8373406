"""Results of a suite as they are written: raw numbers of every run, and what they were measured on.

The JSON document is the dataclasses here, field by field; `SCHEMA` changes when they do.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from stowplan.errors import InputError

SCHEMA = "stowplan-benchmark/1"
# Phases that are not on the way from the snapshot to the checked plan: the file that an external solver reads (a price
# of its executable, not of its algorithm), the plan that a planner starts from, and the reference that bounds it.
BESIDE = ("export", "base", "bound")


class Status(StrEnum):
    """How a run ended.

    answered: with an outcome, which may be that nothing was found. withheld: the plan failed the check. killed: the
    process did not end and was killed. failed: an error. not_installed: an external solver that is not on the path.
    """

    ANSWERED = "answered"
    WITHHELD = "withheld"
    KILLED = "killed"
    FAILED = "failed"
    NOT_INSTALLED = "not_installed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFacts:
    """A case, without the way to make it."""

    name: str
    problem: str
    series: str
    scale: int
    size: Mapping[str, float]
    source: str
    seeded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run in a process of its own. Seconds; None is not known.

    wall_s, cpu_s: per phase, in order; cpu_s counts all threads, for external solvers their processes too. `load` is
    what lies between the formulation and the search of the backend, such as preparing the matrix, or declaring the
    model where that is left until a solver asks for it. modelling_*: declaring and compiling the model in CVXPY or
    Pyomo, measured once more by itself.
    first_incumbent_s counts from the start of the solve. base_memory_bytes: resident before planning, input included;
    peak_memory_bytes: the largest so far when the plan was checked (of an external solver: of its process).
    trajectory: seconds since the start of the solve, objective, bound. load: of the machine, before the run. checked:
    whether the plan passed the independent check; None where there is no plan.
    """

    case: str
    seed: int
    run: int
    solver: str
    status: Status
    message: str = ""
    termination: str | None = None
    limit: str | None = None
    sense: str | None = None
    objective: float | None = None
    bound: float | None = None
    relative_gap: float | None = None
    checked: bool | None = None
    certificate: str = ""
    wall_s: Mapping[str, float] = field(default_factory=dict)
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    modelling_wall_s: Mapping[str, float] = field(default_factory=dict)
    modelling_cpu_s: Mapping[str, float] = field(default_factory=dict)
    first_incumbent_s: float | None = None
    base_memory_bytes: int | None = None
    peak_memory_bytes: int | None = None
    trajectory: tuple[tuple[float, float | None, float | None], ...] = ()
    load: float | None = None
    num_columns: int | None = None
    num_rows: int | None = None
    num_nonzeros: int | None = None
    num_nodes: int | None = None
    solver_version: str = ""

    @property
    def is_proven(self) -> bool:
        """Whether the answer is an optimum within the gap, and its plan passed the check."""
        return self.termination == "optimal" and self.checked is True

    @property
    def total_cpu_s(self) -> float | None:
        """CPU from snapshot to checked plan; None where there is no plan."""
        return _total(self.cpu_s) if self.checked else None

    @property
    def total_wall_s(self) -> float | None:
        """Wall clock from snapshot to checked plan; None where there is no plan."""
        return _total(self.wall_s) if self.checked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How it was measured."""

    suite: str
    solvers: tuple[str, ...]
    num_runs: int
    seeds: tuple[int, ...]
    limit_s: float
    relative_gap: float
    threads: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What it was measured on. `dirty`: the checkout differed from the commit."""

    cpu: str
    num_cores: int
    memory_bytes: int | None
    load: float | None
    system: str
    python: str
    versions: Mapping[str, str]
    commit: str
    dirty: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """A whole measurement. `started` is UTC, ISO 8601."""

    started: str
    command: str
    environment: Environment
    protocol: Protocol
    cases: tuple[CaseFacts, ...]
    runs: tuple[RunRecord, ...]

    def write(self, path: Path) -> None:
        """Write as JSON, at once or not at all."""
        text = json.dumps({"schema": SCHEMA} | asdict(self), indent=1, allow_nan=False)
        draft = path.with_name(f".{path.name}.part")
        draft.write_text(text + "\n", encoding="utf-8")
        draft.replace(path)


def read_result(path: Path) -> SuiteResult:
    """Read what `SuiteResult.write` has written.

    Raises
    ------
    InputError
        When the file cannot be read, is no result, or is one of another schema.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a result: {error}") from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != SCHEMA:
        raise InputError(f"{path} has the schema {schema!r}; this version reads {SCHEMA!r}")
    try:
        return SuiteResult(
            started=document["started"],
            command=document["command"],
            environment=Environment(**document["environment"]),
            protocol=Protocol(**_with_tuples(document["protocol"], "solvers", "seeds")),
            cases=tuple(CaseFacts(**case) for case in document["cases"]),
            runs=tuple(_run(run) for run in document["runs"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path} is not a complete result: {error!r}") from error


def phases_of(record: RunRecord) -> tuple[str, ...]:
    """Phases from snapshot to checked plan, in order."""
    return tuple(name for name in record.cpu_s if name not in BESIDE)


def _total(seconds: Mapping[str, float]) -> float:
    return sum(value for name, value in seconds.items() if name not in BESIDE)


def _run(document: Mapping[str, Any]) -> RunRecord:
    known = {f.name for f in fields(RunRecord)}
    unknown = sorted(document.keys() - known)
    if unknown:
        raise ValueError(f"a run has the unknown fields {unknown}")
    points = tuple((point[0], point[1], point[2]) for point in document.get("trajectory", ()))
    return RunRecord(**{**document, "status": Status(document["status"]), "trajectory": points})


def _with_tuples(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {**document, **{name: tuple(document[name]) for name in names}}
