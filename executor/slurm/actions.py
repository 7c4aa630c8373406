"""What can be done to a queue of Slurm, a command each, and the words of these commands.

Tried with Slurm 22.05. A job that waits takes nodes, a number of nodes and a number of GPUs per node whether it is on
hold or not, and a priority only when it is not; one that runs takes no nodes. `ReqNodeList` is a set: neither the order
of nodes nor the indices of GPUs can be said. Times are those of UTC: run the commands with `TZ=UTC` (`ENVIRONMENT`).
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType

from executor.hosts import HOST, HOST_FORM
from stowplan.errors import InputError, Issue
from topology.readers.hostlist import fold_hostlist, hostlist_order

ENVIRONMENT: Mapping[str, str] = MappingProxyType({"TZ": "UTC"})
# Above what priority/basic gives, which is 0xffff0000 and below.
TOP_PRIORITY = 4_294_967_000
# scontrol 22.05 takes no component of a heterogeneous job (7+1), and of the job (7) the first component alone.
JOB_ID = re.compile(r"[1-9]\d{0,9}(?:_\d{1,10})?", re.ASCII)
# Of reservations, users and accounts: no list, no second word, nothing that takes away (-) or adds (+).
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}")
_S_PER_MINUTE = 60.0
Words = tuple[str, ...]


class StopBy(StrEnum):
    """How a job that runs gives its nodes back. requeue: it waits then, on hold, and starts from its begin; cancel: it
    is over."""

    REQUEUE = "requeue"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopJob:
    """A job gives its nodes back."""

    job_id: str
    by: StopBy

    def words(self) -> Words:
        """The command."""
        if self.by is StopBy.CANCEL:
            return ("scancel", self.job_id)
        return ("scontrol", "requeuehold", "Incomplete", self.job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldJob:
    """A job waits until it is released; one that runs meanwhile runs on."""

    job_id: str

    def words(self) -> Words:
        """The command."""
        return ("scontrol", "hold", self.job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteerJob:
    """A job that waits may have these nodes and no others, all of them.

    `gpus_per_node`, `num_gpus`: what it asks for from now on, where that is not what it asked for itself, or has to be
    said (None: it stays). `reservation`: it starts in this one. `at_once`: also where Slurm has it wait until a time,
    as it does for two minutes with a job that was requeued.
    """

    job_id: str
    nodes: tuple[str, ...]
    gpus_per_node: int | None = None
    num_gpus: int | None = None
    reservation: str | None = None
    at_once: bool = False

    def updates(self) -> Words:
        """What is changed, but for the GPUs that the job asks for."""
        count = len(self.nodes)
        return (
            f"NumNodes={count}-{count}",
            f"ReqNodeList={node_list(self.nodes)}",
            *([] if self.reservation is None else [f"ReservationName={self.reservation}"]),
            *(["StartTime=now"] if self.at_once else []),
        )

    def requests(self, gpu_type: str = "", *, per_job: bool = False) -> Words:
        """What the job asks for.

        Parameters
        ----------
        gpu_type
            What it calls the GPUs that it asked for: of a job that named no type Slurm takes a number without one, of
            others nothing else than theirs.
        per_job
            Whether it asked for a number in all (`--gpus`), which has to go with the one per node.
        """
        kind = f"{gpu_type}:" if gpu_type else ""
        return (
            *([f"TresPerJob=gres:gpu:{kind}{self.num_gpus}"] if per_job and self.num_gpus is not None else []),
            *([] if self.gpus_per_node is None else [f"Gres=gpu:{kind}{self.gpus_per_node}"]),
        )

    def words(self, gpu_type: str = "", *, per_job: bool = False) -> Words:
        """The command; parameters as those of `requests`."""
        asked = self.requests(gpu_type, per_job=per_job)
        return ("scontrol", "update", f"JobId={self.job_id}", *self.updates(), *asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseJob:
    """A job that is on hold may start."""

    job_id: str

    def words(self) -> Words:
        """The command."""
        return ("scontrol", "release", self.job_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankJob:
    """A job that is not on hold gets a priority; it keeps this one, and no plugin changes it."""

    job_id: str
    priority: int

    def words(self) -> Words:
        """The command."""
        return ("scontrol", "update", f"JobId={self.job_id}", f"Priority={self.priority}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reserve:
    """Nodes are kept for users or accounts, or for maintenance, whatever runs there now.

    Times are seconds from the moment of a snapshot, at `taken_at_s` since 1970 (None: the moment at which the command
    runs); `until_s` None: for ever, of which Slurm makes a year. `soft`: others may be over the same nodes.
    `replaces`: a reservation of that name is changed; without it, it stays as it is.
    """

    name: str
    nodes: tuple[str, ...]
    from_s: float
    until_s: float | None
    taken_at_s: float | None = None
    users: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    maintenance: bool = False
    soft: bool = False
    replaces: bool = False

    def words(self, *, exists: bool = False) -> Words:
        """The command, which changes what `exists`."""
        command = ("scontrol", "update") if exists else ("scontrol", "create", "reservation")
        return (*command, f"ReservationName={self.name}", *self.settings())

    def settings(self) -> Words:
        """What it is."""
        flags = [*(["maint"] if self.maintenance else []), *(["overlap"] if self.soft else []), "ignore_jobs"]
        return (
            *(f"Nodes={node_list(self.nodes)}", *self._times()),
            *([f"Users={','.join(self.users)}"] if self.users else []),
            *([f"Accounts={','.join(self.accounts)}"] if self.accounts else []),
            f"Flags={','.join(flags)}",
        )

    def _times(self) -> Words:
        """Slurm refuses a start that is past."""
        start = "StartTime=now" if self.from_s <= 0.0 else f"StartTime={self._moment(self.from_s)}"
        if self.until_s is None:
            return (start, "Duration=UNLIMITED")
        if self.taken_at_s is None:
            return (start, f"Duration={math.ceil((self.until_s - max(0.0, self.from_s)) / _S_PER_MINUTE)}")
        return (start, f"EndTime={self._moment(self.until_s)}")

    def _moment(self, at_s: float) -> str:
        if self.taken_at_s is None:
            return f"now+{math.ceil(at_s)}"
        return datetime.fromtimestamp(math.ceil(self.taken_at_s + at_s), UTC).strftime("%Y-%m-%dT%H:%M:%S")


SlurmAction = StopJob | HoldJob | SteerJob | ReleaseJob | RankJob | Reserve


def node_list(nodes: tuple[str, ...]) -> str:
    """Nodes as one word, which Slurm reads as a set.

    Raises
    ------
    InputError
        When a name is that of no host: it might be a list, or more.
    """
    for node in nodes:
        if not HOST.fullmatch(node):
            raise InputError(f"{node!r} is no node of Slurm; {HOST_FORM}")
    return fold_hostlist(sorted(nodes, key=hostlist_order))


def job_issues(job_id: str, pointer: str) -> list[Issue]:
    """Why an id is none of a job that Slurm can be told of."""
    if JOB_ID.fullmatch(job_id):
        return []
    detail = (
        f"{job_id!r} is no job that scontrol takes; must be a number, or a task of an array such as 5_2. A job that "
    )
    detail += "Slurm does not have is exported by itself, as a batch script (to slurm)"
    return [Issue(code="not_a_slurm_job", pointer=pointer, detail=detail)]
