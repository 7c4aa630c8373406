"""Who is governed, and what the connection notes of a job where Slurm keeps it.

sbatch --begin=now+5minutes --comment=stowplan                     of a user: this job is ours to place
sbatch --begin=now+5minutes --comment='stowplan: tp=8 pp=4 dp=16'  and Arnold places it
sbatch --comment='stowplan: off'                                   not this one, although its partition or QOS is ours
AdminComment=[stowplan kept nodes=1-0 misses=0]                    ours: it waits for us until its begin
AdminComment=[stowplan sent nodes=1-0 misses=0 at=1795626018]      ours: it was sent to nodes
AdminComment=[stowplan left]                                       ours: Slurm has it, we could not place it

Jobs are kept from starting by their begin, a few minutes ahead and renewed: one whose connection is gone becomes
eligible by itself, and is scheduled by Slurm alone. `nodes` is the least and the most number of nodes before we said
one (0: no limit).
"""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from models.workload import Parallelism
from stowplan.errors import InputError

# A begin that is no further ahead is there to keep the job from starting before we see it; one that is, is meant.
SOON_S = 600.0
_MARK = re.compile(
    r"\s*\[stowplan (?P<stage>kept|sent|left)(?: nodes=(?P<least>\d+)-(?P<most>\d+))?(?: misses=(?P<misses>\d+))?"
    r"(?: at=(?P<at>\d+))?\]"
)
_ASKS = re.compile(r"(?:^|[\s,;])stowplan\b(?P<rest>[^,;]*)", re.IGNORECASE)
_DEGREE = re.compile(r"\b(tp|pp|dp)=(\d{1,6})\b", re.IGNORECASE)
_OFF = re.compile(r"^\s*:\s*off\b", re.IGNORECASE)


class Stage(StrEnum):
    """kept: the job waits for us. sent: to nodes. left: to Slurm, for good."""

    KEPT = "kept"
    SENT = "sent"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What we noted of a job. `misses`: how often it did not start where it was sent; `at_s`: when it was sent, in
    seconds since 1970."""

    stage: Stage
    least_nodes: int = 1
    most_nodes: int = 0
    misses: int = 0
    at_s: int = 0

    def text(self) -> str:
        """As it stands in an AdminComment."""
        if self.stage is Stage.LEFT:
            return f"[stowplan {self.stage}]"
        at = f" at={self.at_s}" if self.stage is Stage.SENT else ""
        return f"[stowplan {self.stage} nodes={self.least_nodes}-{self.most_nodes} misses={self.misses}{at}]"


def read_mark(admin_comment: str) -> tuple[Mark | None, str]:
    """Our note in an AdminComment, and what others have written there."""
    found = _MARK.search(admin_comment)
    if found is None:
        return None, admin_comment
    rest = admin_comment[: found.start()] + admin_comment[found.end() :]
    numbers = {name: int(found[name] or default) for name, default in (("least", 1), ("most", 0), ("misses", 0))}
    mark = Mark(
        stage=Stage(found["stage"]),
        least_nodes=numbers["least"],
        most_nodes=numbers["most"],
        misses=numbers["misses"],
        at_s=int(found["at"] or 0),
    )
    return mark, rest


def admin_comment(mark: Mark | None, others: str) -> str:
    """An AdminComment with our note, or without."""
    return " ".join(part for part in (others.strip(), "" if mark is None else mark.text()) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Who has opted in: jobs of `partitions`, those of `qos`, and with `comments` those whose comment says `stowplan`.

    lease_s: for how long a job that waits is kept from starting, unless that is renewed. patience_s: how long one may
    take to start where it was sent. max_misses: after so many that did not it is left to Slurm. may_requeue: jobs that
    run may lose their GPUs to others, as the policy says, if Slurm may requeue them.

    Raises
    ------
    InputError
        When nobody could be governed, or a time is none.
    """

    partitions: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    comments: bool = True
    lease_s: float = 600.0
    patience_s: float = 60.0
    max_misses: int = 3
    may_requeue: bool = False

    def __post_init__(self) -> None:
        if not (self.partitions or self.qos or self.comments):
            raise InputError("nobody is governed; name a partition or a QOS, or have comments count")
        if not 5 <= self.lease_s <= 86_400:
            raise InputError(f"the lease is {self.lease_s:g} s; must be from 5 to 86400")
        if not 1 <= self.patience_s <= 3600:
            raise InputError(f"the patience is {self.patience_s:g} s; must be from 1 to 3600")

    def govern(self, partition: str, qos: str, comment: str) -> bool:
        """Whether a job has opted in, and not out."""
        asks = _ASKS.search(comment)
        if asks is not None and _OFF.match(asks["rest"]):
            return False
        by_partition = bool(self.partitions) and set(partition.split(",")) <= set(self.partitions)
        return by_partition or qos in self.qos or (self.comments and asks is not None)


def parallelism_of(comment: str) -> Parallelism | None:
    """Degrees that a comment says after `stowplan:`; those that are left out are 1. None where it says none."""
    asks = _ASKS.search(comment)
    said = {} if asks is None else {name.lower(): int(value) for name, value in _DEGREE.findall(asks["rest"])}
    if not said or 0 in said.values():
        return None
    return replace(Parallelism(tp=1, pp=1, dp=1), **said)
