"""A Slurm as the controller sees it: what is polled becomes facts, decisions become updates of jobs.

Nothing is kept here that cannot be read from Slurm: what was decided stands in the AdminComment of jobs, so that
whoever comes next goes on where this one ended. Polls give a whole state, of which a controller takes over the facts
whenever they differ from those that it knows: what others start or end on the same nodes is no event of our jobs.
"""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from executor.connected.clock import Clock
from executor.connected.journal import Journal
from executor.connected.slurm.client import Site, SlurmAwayError, SlurmClient, SlurmRefusedError, documents_of
from executor.connected.slurm.observing import NOT_OPTED_IN, Governed, Observed, changes_of, observe
from executor.connected.slurm.sending import Sender
from executor.connected.slurm.terms import Stage, Terms
from executor.control.actions import Action, Stop
from executor.control.backend import Facts, Measured
from executor.control.events import Event, Tick
from models.cluster_state import StateOptions
from models.plan import JobAllocation
from models.wording import counted
from stowplan.errors import FileFormatError
from topology.cluster import NodeState

# Of its lease: what is left when it is renewed.
_RENEWED_AT = 1 / 3
_LONGEST_PAUSE_S = 60.0
# For how long what Slurm writes may not be understood: nodes and jobs are asked for one after the other.
_UNREAD_S = 120.0
_logger = logging.getLogger("stowplan.executor.connected.slurm.backend")


class SlurmCluster:
    """A `ClusterBackend` of the Slurm that `client` reaches, looked at every `interval_s`.

    `say` gets lines about what happened and what is odd. `needs_new_controller`: the events ended because something is
    otherwise than the controller knows.

    Raises
    ------
    InputError
        When Slurm does not answer, or what it writes is not understood.
    """

    def __init__(
        self,
        client: SlurmClient,
        site: Site,
        terms: Terms,
        options: StateOptions,
        journal: Journal,
        *,
        interval_s: float = 5.0,
        clock: Clock | None = None,
        say: Callable[[str], None] = _logger.info,
    ) -> None:
        self._client, self._site, self._terms, self._options = client, site, terms, options
        self._sender, self._interval_s = Sender(client, terms, journal), interval_s
        self._clock, self._say = clock or Clock(), say
        self._start_s, self._now_s = self._clock.now_s(), 0.0
        self._changed, self._is_closed = threading.Condition(), False
        self._wake_s: float | None = None
        self._pause_s = interval_s
        self._unread_since_s: float | None = None
        # Job -> why it is not placed, as it was said last; job -> how often a command for it was refused.
        self._said: dict[str, str] = {}
        self._refusals: Counter[str] = Counter()
        # By the last decision.
        self._sent: set[str] = set()
        self.needs_new_controller = False
        self._observed = self._read()
        # What the controller knows; None: nobody can say, after commands were sent.
        self._known: object = None
        self.take_over()

    @property
    def now_s(self) -> float:
        """The clock when Slurm was looked at last."""
        return self._now_s

    @property
    def observed(self) -> Observed:
        """What was seen last."""
        return self._observed

    def summary(self) -> str:
        """What there is, in a line."""
        jobs = self._observed.jobs.values()
        runs = sum(item.runs for item in jobs)
        gpus = sum(node.num_gpus for node in self._observed.cluster.nodes)
        return (
            f"{self._site.name}: {counted(len(self._observed.cluster.nodes), 'node')} with {counted(gpus, 'GPU')}; "
            f"governed are {counted(len(jobs), 'job')}, of which {runs} run; of others there are "
            f"{len(self._observed.others)}"
        )

    def close(self) -> None:
        """End the wait for events; what was sent goes on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def facts(self) -> Facts:
        """What runs where."""
        return self._observed.facts(self._now_s)

    def measured(self, job_id: str) -> Measured:  # noqa: ARG002 - Slurm measures nothing of a training
        """Nothing."""
        return Measured()

    def wake_at(self, at_s: float) -> None:
        """Ask for a tick."""
        self._wake_s = at_s

    def take_over(self) -> None:
        """A new controller takes the facts, and is asked at once."""
        self.needs_new_controller = False
        self._known = self._observed.signature()
        self._wake_s = self._now_s

    def next_events(self) -> Sequence[Event]:
        """Look until something is otherwise; empty then, and once it is closed.

        Raises
        ------
        InputError
            When what Slurm writes has not been understood for too long.
        """
        while not self._is_closed:
            if self._wake_s is not None and self._wake_s <= self._now_s:
                self._wake_s = None
                return (Tick(at_s=self._now_s),)
            with self._changed:
                if not self._is_closed:
                    self._clock.wait(self._changed, self._pause_s)
            if not self._is_closed and self._look():
                self.needs_new_controller = True
                break
        return ()

    def act(self, actions: Sequence[Action], late_s: float = 0.0) -> None:  # noqa: ARG002 - the clock has gone on itself
        """Send what was decided, and have what waits wait for us. Looks again what has become of it."""
        jobs = self._observed.jobs
        # Where nothing is sent, the next look finds them as they were.
        self._sent = set()
        for action in actions:
            item = jobs[action.job_id if isinstance(action, Stop) else action.allocation.job_id]
            if isinstance(action, Stop):
                self._try(item, partial(self._sender.stop, item, self._num_nodes))
            elif item.waits:
                self._sent.add(item.job.id)
                self._try(item, partial(self._send, item, action.allocation))
        self._keep()
        if actions and not self._sender.is_dry:
            self._known = None

    def release(self) -> int:
        """Let go of all that waits with a note of ours, so that Slurm schedules it alone; how many entries that is.

        Raises
        ------
        InputError
            When Slurm does not answer: then each goes by itself when its lease is over.
        """
        self._observed = self._read()
        return self._sender.let_go(self._observed.marked, self._num_nodes)

    @property
    def _num_nodes(self) -> int:
        return len(self._observed.cluster.nodes)

    def _read(self) -> Observed:
        documents = documents_of(self._client, self._site)
        self._now_s = self._clock.now_s() - self._start_s
        observed = observe(documents, self._site, self._terms, self._options, self._clock.moment().timestamp())
        # Slurm lets nobody change these, not even that they are not ours any more.
        jobs = {name: job for name, job in observed.jobs.items() if not self._is_given_up(name) or job.runs}
        return replace(observed, jobs=jobs)

    def _is_given_up(self, name: str) -> bool:
        return self._refusals[name] >= self._terms.max_misses

    def _look(self) -> bool:
        """Poll; whether something is otherwise than the controller knows."""
        try:
            observed = self._read()
        except SlurmAwayError as error:
            self._pause_s = min(_LONGEST_PAUSE_S, 2 * self._pause_s)
            self._tell("", f"{error.detail}; leases go on without us, and end by themselves")
            return False
        except (FileFormatError, SlurmRefusedError) as error:
            self._unread_since_s = self._now_s if self._unread_since_s is None else self._unread_since_s
            if self._now_s - self._unread_since_s > _UNREAD_S:
                raise
            self._tell("", str(error))
            return False
        self._pause_s, self._unread_since_s = self._interval_s, None
        self._said.pop("", None)
        before, self._observed = self._observed, observed
        self._tell_changes(before)
        if observed.signature() != self._known:
            return True
        self._keep()
        return False

    def _keep(self) -> None:
        """Renew leases that are about to end, of jobs that wait and were not sent somewhere."""
        due = [item for name, item in self._observed.jobs.items() if name not in self._sent and self._is_due(item)]
        if not due:
            return
        try:
            self._sender.keep(due, self._num_nodes)
        except SlurmAwayError as error:
            self._tell("", error.detail)

    def _is_due(self, item: Governed) -> bool:
        if not item.waits:
            return False
        is_kept = item.entry.mark is not None and item.entry.mark.stage is Stage.KEPT
        return not is_kept or bool(item.entry.sent_to) or item.entry.begins_s < _RENEWED_AT * self._terms.lease_s

    def _send(self, item: Governed, allocation: JobAllocation) -> None:
        counts = {len(part.gpus) for part in allocation.gpus}
        if len(counts) > 1:
            raise SlurmRefusedError(f"job {item.job.id} would get different numbers of GPUs of its nodes")
        self._sender.send(item, allocation, self._clock.moment().timestamp(), self._num_nodes)

    def _try(self, item: Governed, send: Callable[[], None]) -> None:
        """Send; what is refused is looked at anew, and tried so often."""
        try:
            send()
        except SlurmAwayError as error:
            self._tell("", error.detail)
        except SlurmRefusedError as error:
            self._refusals[item.job.id] += 1
            self._tell(item.job.id, error.detail)
            if self._refusals[item.job.id] == self._terms.max_misses:
                # At most once: what is refused here counts on.
                self._try(item, partial(self._sender.leave, item, self._num_nodes, "what it was sent was refused"))

    def _tell_changes(self, before: Observed) -> None:
        """Say what happened since."""
        after = self._observed
        for name in after.jobs.keys() | before.jobs.keys():
            for words in changes_of(before.jobs.get(name), after.jobs.get(name)):
                self._say(f"{name}: {words}")
        states = {node.id: node.state for node in before.cluster.nodes}
        for node in after.cluster.nodes:
            if node.state is not states.get(node.id, NodeState.UP):
                self._say(f"node {node.id}: {node.state.value} ({node.state_reason or 'again'})")
        for name, why in after.others.items():
            if why != NOT_OPTED_IN:
                self._tell(name, why)

    def _tell(self, name: str, what: str) -> None:
        if self._said.get(name) != what:
            self._said[name] = what
            self._say(f"{name}: {what}" if name else what)
