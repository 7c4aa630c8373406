"""What readers of schedulers get, what they return, and what they have to say beside it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from models.workload import Job, Snapshot
from stowplan.errors import FileFormatError
from topology.calendar import CalendarEntry
from topology.cluster import Cluster, GpuType
from topology.node_readers import NodeFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDocument:
    """A text, and what it is called: the path of a file, or a name that a request gives it."""

    name: str
    text: str

    def fault(self, detail: str, *, pointer: str | None = None, line: int | None = None) -> FileFormatError:
        """The error for something that is wrong at a JSON pointer or a line (1-based), or with all of it."""
        if pointer is not None:
            return FileFormatError(f"{self.name}: {pointer or '/'}: {detail}")
        return FileFormatError.at(self.name, line, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDocument(SourceDocument):
    """A JSON document that is there already as `json.loads` would give it, in place of a text."""

    text: str = ""
    value: object


Documents = Mapping[str, Sequence[SourceDocument]]
"""Documents by role; a role that is absent and one without documents are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSource:
    """Where a scheduler is asked: a file with the ways to clusters, and the name of one of them (None: the usual)."""

    configuration: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOptions:
    """What documents do not say.

    `gpu_type`: the GPU of nodes whose documents do not name theirs (None: these are left out, or refused). `gpu_types`:
    facts of types by the name that documents use; the catalogue is asked for others, under the name that `gpu_products`
    gives for it. `minipod_tier`: None for
    `default_minipod_tier`. `taken_at_s`: the moment of the documents in seconds since 1970 (None: they say it
    themselves, as far as they do). `node_facts`: nodes from inside, by GPU type. `settings`: what only one format
    knows.
    """

    gpu_type: str | None = None
    gpu_types: tuple[GpuType, ...] = ()
    gpu_products: Mapping[str, str] = field(default_factory=dict)
    minipod_tier: str | None = None
    taken_at_s: float | None = None
    node_facts: Mapping[str, NodeFacts] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateJob:
    """A job as a scheduler has it.

    `job` is what is planned of it: `current` where it runs, `remaining_s` until its expected end (of one that waits:
    how long it may take), `priority` as rank (1 first), `queue`, `user`, `min_gpus`. What a snapshot has no place for:
    `num_nodes` and `gpus_per_node` where it asks for them, `account`, `qos`, `dependency`, and `priority_value` as the
    scheduler has it. `held`: why it cannot start now, whatever is free (None: it can, or it runs); `on_hold`: because
    somebody holds it, who may release it.
    """

    job: Job
    num_nodes: int | None = None
    gpus_per_node: int | None = None
    account: str | None = None
    qos: str | None = None
    dependency: str | None = None
    priority_value: float | None = None
    held: str | None = None
    on_hold: bool = False

    def is_held(self, released: Collection[str]) -> bool:
        """Whether it cannot start now, also if those on hold were `released`."""
        return self.held is not None and not (self.on_hold and self.job.id in released)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something that was left out or assumed at `count` places, of which the first one is told.

    `code` is stable; `document` names the document, `pointer` is a JSON pointer into it, or `line 7`.
    """

    code: str
    detail: str
    document: str
    pointer: str = ""
    count: int = 1


class Notes:
    """Collects notes: the first place of each code, and how many there are."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}
        self._counts: dict[str, int] = {}

    def add(self, code: str, document: SourceDocument, pointer: str, detail: str) -> None:
        """Note something at a place."""
        self._counts[code] = self._counts.get(code, 0) + 1
        if code not in self._notes:
            self._notes[code] = Note(code=code, detail=detail, document=document.name, pointer=pointer)

    def all(self) -> tuple[Note, ...]:
        """Every code once, in the order in which they came up."""
        return tuple(
            Note(code=code, detail=note.detail, document=note.document, pointer=note.pointer, count=self._counts[code])
            for code, note in self._notes.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterState:
    """A cluster, its jobs and its calendar at `taken_at_s`, seconds since 1970.

    Times of jobs and calendar are seconds from that moment. No two jobs have the same id.
    """

    cluster: Cluster
    jobs: tuple[StateJob, ...]
    taken_at_s: float
    calendar: tuple[CalendarEntry, ...] = ()
    notes: tuple[Note, ...] = ()

    def snapshot(self, released: Collection[str] = ()) -> Snapshot:
        """What is planned: the jobs that run, and those that could start now, also if those on hold were `released`.

        Raises
        ------
        InputError
            When jobs or calendar do not go with the cluster.
        """
        jobs = tuple(item.job for item in self.jobs if not item.is_held(released))
        return Snapshot(cluster=self.cluster, jobs=jobs, calendar=self.calendar)

    def held(self, released: Collection[str] = ()) -> tuple[StateJob, ...]:
        """What is not planned then: jobs that cannot start whatever is free."""
        return tuple(item for item in self.jobs if item.is_held(released))


def priority_ranks(values: Iterable[float]) -> dict[float, int]:
    """Ranks of priorities of which larger ones come first: the largest value has rank 1."""
    return {value: k + 1 for k, value in enumerate(sorted(set(values), reverse=True))}
