"""Decisions become patches: gangs are started whole, tried again where that failed, and given up where it goes on."""

from executor.connected.kubernetes.book import Book
from executor.connected.kubernetes.gangs import Gang, due_pods, uid_of
from executor.connected.kubernetes.sending import MAX_NOTE_BYTES, Sender
from executor.connected.kubernetes.told import Patience, Told
from executor.control.events import Event
from executor.kubernetes.placing import UnsayableError, hosts_of_pods
from models.cluster_state.kubernetes.client import ApiError
from models.plan import JobAllocation


class Starter:
    """Starts and stops what is decided, and notes it in the book. `events`: what came of it, until they are taken."""

    def __init__(self, book: Book, sender: Sender, patience: Patience) -> None:
        self._book, self._sender, self._patience = book, sender, patience
        self._events: list[Event] = []

    def take_events(self) -> list[Event]:
        """What came of starts, once: jobs that broke, or were given up."""
        events, self._events = self._events, []
        return events

    def place(self, allocation: JobAllocation) -> None:
        """Give a job its nodes; `reconcile` has its pods go there."""
        name, book = allocation.job_id, self._book
        told, gang = book.told[name], book.observed.gangs[name]
        book.ledger.release(name)
        book.ledger.take(name, allocation.gpus)
        told.since_s, told.due_s, told.failures = book.now_s, book.now_s, 0
        told.num_starts += 1
        try:
            told.nodes = tuple(hosts_of_pods(allocation.rank_gpus, gang.gpus))
            if len(",".join(told.nodes)) > MAX_NOTE_BYTES:
                raise UnsayableError("too_many_nodes", f"has {len(told.nodes)} nodes, whose names no annotation takes")
        except UnsayableError as error:
            self._give_up(name, gang, str(error))

    def stop(self, name: str) -> None:
        """Take a job's nodes: its pods are deleted, and made anew by their controllers."""
        self._delete(name, self._book.observed.gangs[name])
        self._book.wait_again(name)

    def reconcile(self) -> None:
        """Let go the pods of placed jobs that still wait: those of a new placement, of one that broke off half-way, and
        those that were made anew."""
        for name, told in tuple(self._book.told.items()):
            gang = self._book.observed.gangs.get(name)
            if told.nodes is None or gang is None or told.due_s > self._book.now_s:
                continue
            try:
                due = due_pods(gang, told.nodes, was_whole=len(told.started) >= len(told.nodes))
                self._sender.place(gang, told.nodes, due, self._book.observed.hostnames)
                told.failures = 0
                told.started |= {uid_of(pod.object) for pod, _ in due}
            except UnsayableError as error:
                self._give_up(name, gang, str(error))
            except ApiError as error:
                self._failed(name, told, gang, error)

    def _delete(self, name: str, gang: Gang) -> None:
        """Have the pods of a gang made anew; those that cannot be deleted are seen to run on, and told so."""
        try:
            self._sender.delete(gang.started)
        except ApiError as error:
            self._book.tell(name, f"cannot be deleted: {error.detail}")

    def _failed(self, name: str, told: Told, gang: Gang, error: ApiError) -> None:
        told.failures += 1
        if told.failures < self._patience.tries:
            told.due_s = self._book.now_s + self._patience.pause_s * 2.0 ** (told.failures - 1)
            self._book.tell(name, f"could not be started, and is tried again: {error.detail}")
            return
        self._give_up(name, gang, f"{error.detail} ({told.failures} tries)")

    def _give_up(self, name: str, gang: Gang, why: str) -> None:
        """What cannot be started whole is taken back where that is allowed, and set aside where not."""
        started = gang.started
        if started and self._book.told[name].job.preemptible:
            self._delete(name, gang)
            self._book.tell(name, f"{len(started)} of {len(gang.pods)} pods were started, and are deleted: {why}")
            self._events.append(self._book.broken(name))
            return
        half = f"half-started, {len(started)} of {len(gang.pods)} pods: " if started else ""
        self._events.append(self._book.set_aside(name, gang, f"{half}{why}"))
