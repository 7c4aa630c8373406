"""Several solvers on one instance, as clients ask for it and see it."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic.config import JsonDict

from api.schemas.base import Document
from api.schemas.parameters import PARAMETERS
from api.schemas.plan import FailureDoc, ModelSizeDoc, SolverDoc, TerminationDoc
from api.schemas.request import LimitsDoc, PolicyName, SnapshotSource, SolverName
from solver.registry import SOLVER_NAMES
from solver.sense import Sense

_PARAMETERS: JsonDict = {
    "anyOf": [{"$ref": f"#/components/schemas/{kind.__name__}"} for kind in dict.fromkeys(PARAMETERS.values())]
}


class ComparisonBody(Document):
    """One instance and the solvers that shall try it, each under the same options."""

    policy: PolicyName
    snapshot: SnapshotSource
    parameters: dict[str, Any] = Field(default_factory=dict, json_schema_extra=_PARAMETERS)
    """Parameters of the policy, as for a plan."""
    options: LimitsDoc = LimitsDoc()
    """Limits and settings of every solve, as for a plan."""
    solvers: Annotated[tuple[SolverName, ...], Field(min_length=1, max_length=len(SOLVER_NAMES))]
    """In the order in which they run; each at most once."""


COMPARISON_BODY = TypeAdapter(ComparisonBody)


class ComparisonStatus(StrEnum):
    """Life of a comparison: queued, running, and then one of the final states.

    succeeded: every solver had its turn and no answer contradicts another. failed: an error of ours, first of all
    answers that contradict each other. canceled: by a client; what has been measured is kept. interrupted: the
    service stopped meanwhile.
    """

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    INTERRUPTED = "interrupted"

    @property
    def final(self) -> bool:
        """Whether nothing more will happen."""
        return self not in (ComparisonStatus.QUEUED, ComparisonStatus.RUNNING)


class HistoryPointDoc(Document):
    """Best objective and bound known at a moment of a solve; null where nothing was known yet."""

    elapsed_ms: float
    """From the start of the solve."""
    objective: float | None
    bound: float | None


class SolverRunDoc(Document):
    """One row: a solver on the instance in a fresh process. Milliseconds are wall-clock unless the name says `cpu`."""

    solver: str
    """As it was asked for."""
    solver_used: SolverDoc | None = None
    """What answered, such as HiGHS for `auto`; null when nothing did."""
    termination: TerminationDoc | None = None
    sense: Sense | None = None
    objective: float | None = None
    bound: float | None = None
    relative_gap: float | None = None
    proven_optimal: bool = False
    """Within the requested gap."""
    verified: bool = False
    """The plan passed a check that knows no solver."""
    certificate: str | None = None
    """What proves the answer, or what ended the solve."""
    phases_ms: dict[str, float] = Field(default_factory=dict)
    phases_cpu_ms: dict[str, float] = Field(default_factory=dict)
    total_ms: float | None = None
    """All phases."""
    cpu_ms: float | None = None
    """CPU time of all phases, threads of the solver included."""
    first_incumbent_ms: float | None = None
    """From the start of the solve to the first plan found."""
    peak_memory_bytes: int | None = None
    """Largest resident set of the worker process, about 140 MB of which is there before it begins."""
    size: ModelSizeDoc | None = None
    history: tuple[HistoryPointDoc, ...] = ()
    """How objective and bound came together, from the start of the solve to its end."""
    failure: FailureDoc | None = None
    """Why there is no outcome: the worker died, was killed at its deadline, or refused the solver."""


class AgreementDoc(Document):
    """Whether all answers can be right."""

    agree: bool | None
    """Null when fewer than two solvers proved their answer."""
    num_proven: int
    statement: str
    errors: tuple[str, ...]
    """Every contradiction, and every answer that failed the check: errors of ours."""


class InstanceSizeDoc(Document):
    """Size of the snapshot."""

    num_nodes: int
    num_gpus: int
    num_jobs: int


class UsedLimitsDoc(Document):
    """The options of every solve, defaults filled in."""

    time_limit_s: float
    relative_gap: float
    threads: int
    seed: int


class ComparisonResultDoc(Document):
    """What several solvers made of one instance."""

    policy: str
    instance: InstanceSizeDoc
    solvers: tuple[str, ...]
    options: UsedLimitsDoc
    version: str
    """Version of Stowplan that ran the solvers."""
    runs: tuple[SolverRunDoc, ...] = ()
    """One row per solver that has had its turn, in the order asked for."""
    agreement: AgreementDoc | None = None
    """Null until the comparison is final."""


class ComparisonTimesDoc(Document):
    """When each state was reached (UTC); null: not reached."""

    queued: datetime
    running: datetime | None = None
    finished: datetime | None = None


class ComparisonLinksDoc(Document):
    """Where to go from here (paths)."""

    self: str
    figure: str | None
    """Null while there is nothing to draw."""
    figure_png: str | None = None


class ComparisonSummary(Document):
    """One line of the list of comparisons."""

    id: str
    status: ComparisonStatus
    policy: str
    solvers: tuple[str, ...]
    times: ComparisonTimesDoc
    links: ComparisonLinksDoc


class ComparisonDoc(ComparisonResultDoc, ComparisonSummary):
    """A comparison: its life and its rows."""

    longest_s: float
    """It ends at the latest this many seconds after it began to run."""
    input_hash: str = Field(examples=["sha256:9f2c"])
    """SHA-256 of the input with defaults filled in."""
    failure: FailureDoc | None = None


class ComparisonPageQuery(BaseModel):
    """Query parameters of the list of comparisons. Not strict: what stands in a URL is text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """Comparisons per page."""
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """Cursor of the next page; see `next`."""


class ComparisonList(Document):
    """A page of comparisons, newest first."""

    comparisons: tuple[ComparisonSummary, ...]
    next: str | None
    """Path of the next page; null on the last one."""
