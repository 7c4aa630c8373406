"""A rank of the next run takes its part of the state from the ranks of the one before, while it waits to be let go.

Its engine is built by then and does nothing, so that what arrives goes to its place at once. Whether it counts is known
when all have everything (`executor.handover`); until then a checkpoint may still overwrite it.
"""

import hmac
import logging
import os
import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from executor.checkpoints import Checkpoint, refuse_checkpoint
from executor.handover import Door, Offer, handed_step, read_state, write_offer
from executor.launch.base import LaunchError, read_launch
from executor.movement import Movement
from executor.redeployment import Region, transfers
from executor.trainer.carriage import Line, Parts, Slots, machine, receive
from executor.trainer.engine import Held, agree
from executor.training_job import TrainingJob
from stowplan.errors import InputError, StowplanError, WorkerError
from stowplan.records import from_document

_logger = logging.getLogger("stowplan.executor.trainer")

_TOKEN_BYTES = 16


class Reception:
    """Listens for ranks of the run before, and puts what they send into `state`.

    Parameters
    ----------
    folder
        Of this run.

    Raises
    ------
    OSError
        When it cannot listen.
    """

    def __init__(self, job: TrainingJob, rank: int, folder: Path, state: Sequence[Held]) -> None:
        self._job, self._rank, self._folder = job, rank, folder
        self._parts = Parts(state)
        self._state_bytes = sum(held.values.nbytes for held in state if held.counts)
        self._token = ""
        self._wanted: dict[int, list[Region]] = {}
        self._distances: Mapping[int, Distance] = {}
        self._least_bytes = 0
        self._guard, self._buffer = threading.Lock(), threading.Lock()
        self._slots: Slots | None = None
        self._lines: set[Line] = set()
        self._threads: list[threading.Thread] = []
        self._received: dict[int, int] = {}
        self._called: set[int] = set()
        self._complete: dict[int, Checkpoint] = {}
        self._is_told, self._is_closed = False, False
        self._woken, self._waker = socket.socketpair()
        listener, address = _network_listener(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        self._listeners, port = [listener], int(listener.getsockname()[1])
        local = f"stowplan-state-{secrets.token_hex(_TOKEN_BYTES)}"
        found = machine() if hasattr(os, "memfd_create") else ""
        if found:
            listener = socket.socket(socket.AF_UNIX)
            self._listeners.append(listener)
            listener.bind(f"\0{local}")
            listener.listen()
        self.door = Door(rank=rank, address=address, port=port, machine=found, local=local)

    def begin(self, token: str, wanted: Mapping[int, list[Region]], distances: Mapping[int, "Distance"]) -> None:
        """Take what ranks of the run before have: by rank, what each is to send, and how far it is from here."""
        self._token, self._wanted, self._distances = token, dict(wanted), distances
        self._received = dict.fromkeys(wanted, 0)
        self._least_bytes = sum(
            self._parts.values(region).nbytes
            for source, regions in wanted.items()
            if distances[source] is not Distance.SAME_PLACE
            for region in regions
        )
        self._start(self._listen)

    def is_done(self) -> bool:
        """Whether the run before has said that all ranks have everything."""
        return self._is_told or handed_step(self._folder) is not None

    def close(self) -> None:
        """Take nothing any more; behind this nothing is written into the state."""
        with self._guard:
            self._is_closed = True
            lines = list(self._lines)
        for line in lines:
            line.close()
        # The one that listens would not notice that a listener is closed.
        self._waker.close()
        for thread in self._threads:
            thread.join()
        for listener in (*self._listeners, self._woken):
            listener.close()
        if self._slots is not None:
            self._slots.close()
            self._slots = None

    def settled(self, device: torch.device) -> "Settled":
        """What became of it; collective, behind `close`."""
        moved = dict.fromkeys(Distance, 0)
        for source, num_bytes in self._received.items():
            moved[self._distances[source]] += num_bytes
        told = [self.is_done(), set(self._complete) == set(self._wanted), any(self._received.values())]
        figures = [*told, *moved.values(), self._least_bytes, self._state_bytes]
        sums = agree([float(figure) for figure in figures], device)
        num_told, num_complete, num_touched, kept, near, away, least, whole = map(int, sums)
        if not num_told or num_complete < self._job.num_ranks:
            if num_told:
                _logger.error(
                    "the state was handed over, but %d ranks lack some of it", dist.get_world_size() - num_complete
                )
            return Settled(checkpoint=None, movement=None, is_touched=num_touched > 0)
        known: list[Checkpoint | None] = [None] * dist.get_world_size()
        dist.all_gather_object(known, next(iter(self._complete.values()), None))
        return Settled(
            checkpoint=next(checkpoint for checkpoint in known if checkpoint is not None),
            movement=Movement(
                moved_bytes=near + away,
                between_hosts_bytes=away,
                kept_bytes=kept,
                least_bytes=least,
                state_bytes=whole,
            ),
            is_touched=True,
        )

    def _listen(self) -> None:
        """Take connections until the listeners are closed."""
        with selectors.DefaultSelector() as selector:
            for listener in (*self._listeners, self._woken):
                selector.register(listener, selectors.EVENT_READ)
            while not self._is_closed:
                for key, _ in selector.select():
                    if key.fileobj is not self._woken:
                        with suppress(OSError):
                            link, _ = key.fileobj.accept()  # type: ignore[union-attr]
                            self._start(self._take, link)

    def _start(self, what: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=what, args=arguments, name="reception", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _take(self, link: socket.socket) -> None:
        """Take what one rank sends; what goes wrong leaves it incomplete, and the rank knows."""
        line = Line(link)
        with self._guard:
            if self._is_closed:
                line.close()
                return
            self._lines.add(line)
        try:
            self._take_from(line)
        except (StowplanError, OSError, ValueError, TypeError, LookupError, struct.error) as error:
            if not self._is_closed:
                _logger.warning("rank %d takes no state: %s", self._rank, error)
        finally:
            line.close()
            with self._guard:
                self._lines.discard(line)

    def _take_from(self, line: Line) -> None:
        hello = line.hear()
        if not (isinstance(hello, dict) and hmac.compare_digest(str(hello.get("token")), self._token)):
            raise WorkerError("somebody else than a rank of the run before has called")
        source = int(hello["rank"])
        with self._guard:
            regions = self._wanted.get(source)
            if regions is None or source in self._called:
                raise WorkerError(f"rank {source} of the run before is not waited for")
            self._called.add(source)
        checkpoint = from_document(Checkpoint, hello["checkpoint"], "state")
        refuse_checkpoint(checkpoint, self._job, f"the state of rank {source}")
        line.say(asked_for(regions, self._parts))
        slots = Slots(self._job.transfer_chunk_bytes, line.shared()) if line.is_local else self._own_slots()
        try:
            for num_bytes in receive(line, self._parts.batches(regions, slots.slot_bytes), slots, self._buffer):
                self._received[source] += num_bytes
        finally:
            if line.is_local:
                slots.close()
        self._complete[source] = checkpoint
        line.mark()
        line.await_verdict()
        self._is_told = True

    def _own_slots(self) -> Slots:
        with self._guard:
            if self._slots is None:
                self._slots = Slots(self._job.transfer_chunk_bytes)
            return self._slots


class Distance(StrEnum):
    """Of two ranks of different runs: on one GPU, on one host, or neither."""

    SAME_PLACE = "same place"
    SAME_HOST = "same host"
    OTHER_HOST = "other host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """`checkpoint`: behind which the training goes on, None where the state was not handed over; `movement`: of it.

    `is_touched`: whether any rank has overwritten something of its state.
    """

    checkpoint: Checkpoint | None
    movement: Movement | None
    is_touched: bool


def offered(job: TrainingJob, rank: int, folder: Path, beside: Path | None, state: Sequence[Held]) -> Reception | None:
    """Offer to take the state from the ranks of the run in folder `beside`; None where that is impossible. Collective.

    Parameters
    ----------
    folder
        Of this run.
    """
    if beside is None or not job.transfer_chunk_bytes:
        return None
    reception: Reception | None = None
    try:
        reception = Reception(job, rank, folder, state)
    except OSError as error:
        _logger.warning("rank %d cannot listen for a state: %s", rank, error)
    everybody: list[tuple[Door, tuple[Region, ...]] | None] = [None] * job.num_ranks
    own = None if reception is None else (reception.door, tuple(held.region for held in state))
    dist.all_gather_object(everybody, own)
    routes: list[Any] = [None]
    listening = [each for each in everybody if each is not None]
    if rank == 0 and len(listening) == job.num_ranks:
        try:
            routes = [_routes(beside, folder, [regions for _, regions in listening])]
        except (InputError, LaunchError) as error:
            _logger.warning("the state will come from a checkpoint: %s", error)
    dist.broadcast_object_list(routes)
    if routes[0] is None or reception is None:
        if reception is not None:
            reception.close()
        return None
    token, targets, by_rank = routes[0]
    reception.begin(token, *by_rank[rank])
    if rank == 0:
        doors = tuple(door for door, _ in listening)
        with suppress(OSError):
            write_offer(folder, Offer(token=token, chunk_bytes=job.transfer_chunk_bytes, doors=doors, targets=targets))
    return reception


def asked_for(regions: Sequence[Region], parts: Parts) -> list[list[Any]]:
    """Regions as a rank asks for them, with the type of their elements."""
    return [[one.tensor, one.top, one.bottom, one.left, one.right, str(parts.values(one).dtype)] for one in regions]


def _routes(beside: Path, folder: Path, needed: Sequence[Sequence[Region]]) -> Any:
    """A token, for every rank of the run before its targets, and for every one of this run its regions by source with
    the distances of the sources."""
    old, new = ([(rank["node"], rank["gpu"]) for rank in read_launch(path)["ranks"]] for path in (beside, folder))
    held = [read_state(beside, rank) for rank in range(len(old))]
    ranks = {place: rank for rank, place in enumerate(old)}
    by_node: dict[str, set[int]] = {}
    for rank, (node, _) in enumerate(old):
        by_node.setdefault(node, set()).add(rank)
    places = [ranks.get(place) for place in new]
    near = [by_node.get(node, set()) for node, _ in new]
    wanted: list[dict[int, list[Region]]] = [{} for _ in new]
    for one in transfers(held, needed, places, near):
        wanted[one.target].setdefault(one.source, []).append(one.region)
    by_rank = []
    for target, sources in enumerate(wanted):
        distances = {source: _distance(source, places[target], near[target]) for source in sources}
        by_rank.append((sources, distances))
    targets: list[list[int]] = [[] for _ in old]
    for target, sources in enumerate(wanted):
        for source in sources:
            targets[source].append(target)
    return secrets.token_hex(_TOKEN_BYTES), tuple(map(tuple, targets)), by_rank


def _distance(source: int, place: int | None, near: Collection[int]) -> Distance:
    if source == place:
        return Distance.SAME_PLACE
    return Distance.SAME_HOST if source in near else Distance.OTHER_HOST


def _network_listener(host: str, port: int) -> tuple[socket.socket, str]:
    """Listen where this machine reaches `host`, on any port; gives the address for others, too."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    # Nothing is sent by that.
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        own = str(probe.getsockname()[0])
    if ip_address(own).is_loopback and own != host:
        # This machine is the one of that name, by which others reach it, whatever it makes of the name itself.
        return socket.create_server(("", 0), family=family), host
    return socket.create_server((own, 0), family=family), own
