"""The commands that carry out what is decided, each noted in the journal before it runs."""

import logging
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from executor.connected.journal import Journal
from executor.connected.slurm.client import SlurmClient, SlurmRefusedError
from executor.connected.slurm.observing import Entry, Governed
from executor.connected.slurm.terms import Mark, Stage, Terms, admin_comment
from executor.slurm.actions import SteerJob
from models.plan import JobAllocation
from models.wording import counted

# Ids in a command: it stays below what a command line may have.
_AT_ONCE = 200
_TASKS_AT_ONCE = 1000
_logger = logging.getLogger("stowplan.executor.connected.slurm.sending")


class Sender:
    """Sends changes of jobs; dry, if the journal is, and then each change once."""

    def __init__(self, client: SlurmClient, terms: Terms, journal: Journal) -> None:
        self._client, self._terms, self._journal = client, terms, journal
        self._noted: set[tuple[str, ...]] = set()

    @property
    def is_dry(self) -> bool:
        """Whether nothing is changed."""
        return self._journal.is_dry

    def send(self, item: Governed, allocation: JobAllocation, at_s: float, num_nodes: int) -> None:
        """Let a job start, on these nodes and no others; one that did not too often is left to Slurm."""
        if self._is_hopeless(item, num_nodes):
            return
        nodes = tuple(part.node for part in allocation.gpus)
        mark = Mark(**_asked(item.entry), stage=Stage.SENT, misses=_misses(item), at_s=int(at_s))
        steer = SteerJob(job_id=allocation.job_id, nodes=nodes, at_once=True)
        why = f"{allocation.num_gpus} GPUs on {counted(len(nodes), 'node')}, as planned"
        self._run(_update(steer.job_id, *steer.updates(), _comment(mark, item.entry)), why)

    def keep(self, items: Iterable[Governed], num_nodes: int) -> None:
        """Have jobs wait for us until their lease is over, wherever they were sent before."""
        changes: dict[str, tuple[str, ...]] = {}
        tasks: dict[str, list[str]] = defaultdict(list)
        for item in items:
            if self._is_hopeless(item, num_nodes):
                continue
            entry, mark = item.entry, Mark(**_asked(item.entry), stage=Stage.KEPT, misses=_misses(item))
            new = () if mark == entry.mark else (*_reset(entry, num_nodes), _comment(mark, entry))
            changes[entry.target] = (f"StartTime=now+{self._terms.lease_s:.0f}", *new)
            if "[" in entry.target:
                tasks[entry.target].append(item.job.id.partition("_")[2])
        for target, some in tasks.items():
            # Others of the array were sent a moment ago.
            words, array = changes.pop(target), target.partition("_")[0]
            for k in range(0, len(some), _TASKS_AT_ONCE):
                changes[f"{array}_[{','.join(some[k : k + _TASKS_AT_ONCE])}]"] = words
        self._run_each(changes, f"kept from starting for {self._terms.lease_s:.0f} s, until placed")

    def _is_hopeless(self, item: Governed, num_nodes: int) -> bool:
        misses = _misses(item)
        if misses >= self._terms.max_misses:
            self.leave(item, num_nodes, f"{misses} times it did not start")
        return misses >= self._terms.max_misses

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
        changes = {
            entry.target: (*_reset(entry, num_nodes), "StartTime=now", _comment(None, entry)) for entry in entries
        }
        self._run_each(changes, "let go: Slurm schedules it alone")
        return len(changes)

    def _run_each(self, changes: Mapping[str, tuple[str, ...]], why: str) -> None:
        """Change jobs, those together that are changed alike."""
        groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for target, words in changes.items():
            groups[words].append(target)
        for words, targets in groups.items():
            # scontrol takes one job where it is told how many nodes, and tasks in brackets alone.
            is_each = any(word.startswith("NumNodes=") for word in words)
            alone = [target for target in targets if is_each or "[" in target]
            plain = [] if is_each else [target for target in targets if "[" not in target]
            for some in (*(plain[k : k + _AT_ONCE] for k in range(0, len(plain), _AT_ONCE)), *([one] for one in alone)):
                try:
                    self._run(_update(",".join(some), *words), why)
                except SlurmRefusedError as error:
                    # One may be over by now, which is nothing to the others.
                    _logger.warning("%s", error.detail)

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


def _misses(item: Governed) -> int:
    return (0 if item.entry.mark is None else item.entry.mark.misses) + item.is_late


def _comment(mark: Mark | None, entry: Entry) -> str:
    return f"AdminComment={admin_comment(mark, entry.others)}"


def _reset(entry: Entry, num_nodes: int) -> Sequence[str]:
    """What a job asked for before it was sent; Slurm cannot be told that there is no most any more."""
    if not entry.sent_to:
        return ()
    return ("ReqNodeList=", f"NumNodes={entry.least_nodes}-{entry.most_nodes or num_nodes}")
