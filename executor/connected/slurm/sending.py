"""The commands that carry out what is decided, each noted in the journal before it runs."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from executor.connected.journal import Journal
from executor.connected.slurm.client import SlurmClient
from executor.connected.slurm.observing import Entry, Governed
from executor.connected.slurm.terms import Mark, Stage, Terms, admin_comment
from executor.slurm.actions import SteerJob
from models.plan import JobAllocation

# Ids in a command: it stays below what a command line may have.
_AT_ONCE = 200


class Sender:
    """Sends changes of jobs; dry, if the journal is, and then each change once."""

    def __init__(self, client: SlurmClient, terms: Terms, journal: Journal) -> None:
        self._client, self._terms, self._journal = client, terms, journal
        self._noted: set[tuple[str, ...]] = set()

    @property
    def is_dry(self) -> bool:
        """Whether nothing is changed."""
        return self._journal.is_dry

    def send(self, item: Governed, allocation: JobAllocation, at_s: float) -> None:
        """Let a job start, on these nodes and no others."""
        nodes = tuple(part.node for part in allocation.gpus)
        mark = Mark(**_asked(item.entry), stage=Stage.SENT, misses=_misses(item.entry), at_s=int(at_s))
        steer = SteerJob(job_id=allocation.job_id, nodes=nodes, at_once=True)
        why = f"{allocation.job_id} starts on {len(nodes)} nodes: the plan has its {allocation.num_gpus} GPUs there"
        self._run(_update(steer.job_id, *steer.updates(), _comment(mark, item.entry)), why)

    def keep(self, items: Iterable[Governed], num_nodes: int) -> None:
        """Have jobs wait for us until their lease is over, wherever they were sent before; one that did not start too
        often is left to Slurm."""
        leases: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
        for item in items:
            entry = item.entry
            misses = _misses(entry) + item.is_late
            if misses >= self._terms.max_misses:
                self.leave(item, num_nodes, f"{misses} times it did not start")
                continue
            mark = Mark(**_asked(entry), stage=Stage.KEPT, misses=misses)
            changes = [] if mark == entry.mark else [*_reset(entry, num_nodes), _comment(mark, entry)]
            leases[(f"StartTime=now+{self._terms.lease_s:.0f}", *changes)][entry.target] = None
        for words, targets in leases.items():
            for some in _batches(list(targets)):
                why = f"kept from starting for {self._terms.lease_s:.0f} s, until placed"
                self._run(_update(",".join(some), *words), why)

    def leave(self, item: Governed, num_nodes: int, why: str) -> None:
        """Leave a job to Slurm, for good."""
        words = (*_reset(item.entry, num_nodes), "StartTime=now", _comment(Mark(stage=Stage.LEFT), item.entry))
        self._run(_update(item.entry.target, *words), f"{item.entry.target} is left to Slurm: {why}")

    def stop(self, item: Governed, num_nodes: int) -> None:
        """Have a job give its GPUs back and wait. Slurm has it wait for two minutes itself, in which we keep it."""
        job_id = item.job.id
        mark = Mark(**_asked(item.entry), stage=Stage.KEPT)
        why = f"{job_id} gives its GPUs to others, as the policy says"
        self._run(_update(job_id, _comment(mark, item.entry)), why)
        self._run(("scontrol", "requeue", job_id), why)
        words = (*_reset(item.entry, num_nodes), f"StartTime=now+{self._terms.lease_s:.0f}")
        self._run(_update(job_id, *words), why)

    def let_go(self, entries: Iterable[Entry], num_nodes: int) -> int:
        """Leave jobs to Slurm as they were before us; how many records of its queue."""
        groups: dict[tuple[str, ...], dict[str, None]] = defaultdict(dict)
        for entry in entries:
            groups[(*_reset(entry, num_nodes), "StartTime=now", _comment(None, entry))][entry.target] = None
        for words, targets in groups.items():
            for some in _batches(list(targets)):
                self._run(_update(",".join(some), *words), "let go: Slurm schedules it alone")
        return sum(map(len, groups.values()))

    def _run(self, words: tuple[str, ...], why: str) -> None:
        if self.is_dry:
            # But for the moment, which our note has.
            change = tuple(word for word in words if not word.startswith("AdminComment="))
            if change in self._noted:
                return
            self._noted.add(change)
        self._journal.note(f"{shlex.join(words)}   # {why}", {"command": list(words), "why": why})
        if not self.is_dry:
            self._client.run(words)


def _update(target: str, *changes: str) -> tuple[str, ...]:
    return ("scontrol", "update", f"JobId={target}", *changes)


def _asked(entry: Entry) -> dict[str, int]:
    return {"least_nodes": entry.least_nodes, "most_nodes": entry.most_nodes}


def _misses(entry: Entry) -> int:
    return 0 if entry.mark is None else entry.mark.misses


def _comment(mark: Mark | None, entry: Entry) -> str:
    return f"AdminComment={admin_comment(mark, entry.others)}"


def _reset(entry: Entry, num_nodes: int) -> Sequence[str]:
    """What a job asked for before it was sent; Slurm cannot be told that there is no most any more."""
    if not entry.sent_to:
        return ()
    return ("ReqNodeList=", f"NumNodes={entry.least_nodes}-{entry.most_nodes or num_nodes}")


def _batches(targets: Sequence[str]) -> Iterator[Sequence[str]]:
    """Some ids at a time; tasks in brackets each alone, as scontrol wants it."""
    plain = [target for target in targets if "[" not in target]
    for first in range(0, len(plain), _AT_ONCE):
        yield plain[first : first + _AT_ONCE]
    yield from ([target] for target in targets if "[" in target)
