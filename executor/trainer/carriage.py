"""How bytes of a training's state come from a rank of one run to a rank of the next: in batches, never all at once.

Between hosts they go through a TCP connection. Two processes of one host share memory of two slots, which belongs to no
file and is gone with the last of them: one is filled while the other is emptied, and a byte on a Unix socket says so.
Nothing that arrives is ever run: documents are JSON, everything else numbers.
"""

import json
import mmap
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from executor.redeployment import Region, batches
from executor.trainer.engine import Held
from stowplan.errors import WorkerError

# Nothing heard or taken for so long: the other side is lost.
STILL_S = 20.0
NUM_SLOTS = 2
# Of a document: a hundred bytes for every region.
_MOST_BYTES = 1 << 28
_LENGTH = struct.Struct("!I")
_MARK = b"."
# Slots begin at multiples of it, as every number in them must.
_ALIGNMENT = 16


class Line:
    """A connection between two ranks; every wait has a limit."""

    def __init__(self, link: socket.socket, still_s: float = STILL_S) -> None:
        self._link = link
        self.is_local = link.family == socket.AF_UNIX
        link.settimeout(still_s)
        if not self.is_local:
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def say(self, document: Any) -> None:
        """Send a document."""
        text = json.dumps(document).encode()
        self._link.sendall(_LENGTH.pack(len(text)) + text)

    def hear(self) -> Any:
        """Receive a document.

        Raises
        ------
        WorkerError
            When what comes is none, or too long.
        """
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _MOST_BYTES:
            raise WorkerError(f"a document of {length} bytes is announced; the most are {_MOST_BYTES}")
        try:
            return json.loads(self._exactly(length))
        except ValueError as error:
            raise WorkerError(f"what comes is no document: {error}") from error

    def mark(self) -> None:
        """Send one byte."""
        self._link.sendall(_MARK)

    def await_mark(self) -> None:
        """Receive one."""
        self._exactly(1)

    def await_verdict(self) -> None:
        """Receive one, however long that takes: until somebody closes the line."""
        self._link.settimeout(None)
        self._exactly(1)

    def send(self, values: memoryview) -> None:
        """Send bytes."""
        self._link.sendall(values)

    def fill(self, values: memoryview) -> None:
        """Receive bytes."""
        at = 0
        while at < len(values):
            size = self._link.recv_into(values[at:])
            if not size:
                raise ConnectionResetError("the other side has gone")
            at += size

    def share(self, descriptor: int) -> None:
        """Send memory."""
        socket.send_fds(self._link, [_MARK], [descriptor])

    def shared(self) -> int:
        """Receive it: a descriptor to be closed."""
        _, descriptors, _, _ = socket.recv_fds(self._link, 1, 1)
        if not descriptors:
            raise ConnectionResetError("the other side shares no memory")
        return descriptors[0]

    def close(self) -> None:
        """End it, also for a thread that waits for something."""
        with suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()

    def _exactly(self, length: int) -> bytes:
        values = bytearray(length)
        self.fill(memoryview(values))
        return bytes(values)


class Slots:
    """Memory for what is on its way: two slots of `slot_bytes` each, that another process can share."""

    def __init__(self, chunk_bytes: int, descriptor: int | None = None) -> None:
        self.slot_bytes = slot_size(chunk_bytes)
        size = NUM_SLOTS * self.slot_bytes
        if descriptor is None and hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("stowplan-state")
            os.ftruncate(descriptor, size)
        # Elsewhere than on Linux nobody shares it.
        self.descriptor = -1 if descriptor is None else descriptor
        memory = mmap.mmap(self.descriptor, size)
        self.bytes = memoryview(memory)
        self._values = torch.frombuffer(memory, dtype=torch.uint8)

    def slot(self, number: int) -> torch.Tensor:
        """Bytes of the slot for a batch."""
        first = number % NUM_SLOTS * self.slot_bytes
        return self._values[first : first + self.slot_bytes]

    def close(self) -> None:
        """Give the memory back."""
        if self.descriptor >= 0:
            os.close(self.descriptor)


def slot_size(chunk_bytes: int) -> int:
    """Bytes of a slot where both together may have `chunk_bytes`."""
    return chunk_bytes // NUM_SLOTS // _ALIGNMENT * _ALIGNMENT


class Parts:
    """What a rank has of the state, by region."""

    def __init__(self, state: Iterable[Held]) -> None:
        self._held: dict[str, list[Held]] = {}
        for held in state:
            self._held.setdefault(held.region.tensor, []).append(held)

    def values(self, region: Region) -> torch.Tensor:
        """Elements of a region, of shape (rows, columns).

        Raises
        ------
        WorkerError
            When the rank has not all of it.
        """
        for held in self._held.get(region.tensor, ()):
            own = held.region
            if own.common(region) == region:
                rows = held.values[region.top - own.top : region.bottom - own.top]
                return rows[:, region.left - own.left : region.right - own.left]
        raise WorkerError(f"{region} is not with this rank")

    def batches(self, regions: Sequence[Region], slot_bytes: int) -> Iterator[list[tuple[torch.Tensor, int]]]:
        """Regions as batches of values, each with the byte of a slot at which it begins."""
        sized = ((region, self.values(region).element_size()) for region in regions)
        for batch in batches(sized, slot_bytes):
            yield [(self.values(part), at) for part, at in batch]


def send(line: Line, batches_: Iterable[list[tuple[torch.Tensor, int]]], slots: Slots) -> Iterator[int]:
    """Send batches; gives the bytes of each when it is on its way, so that somebody may look at the clock."""
    num_full = 0
    if line.is_local:
        line.share(slots.descriptor)
    for number, batch in enumerate(batches_):
        if num_full == NUM_SLOTS:
            line.await_mark()
            num_full -= 1
        slot, end = slots.slot(number), 0
        for values, at in batch:
            end = at + values.nbytes
            _as(values, slot[at:end]).copy_(values)
        line.mark()
        if line.is_local:
            num_full += 1
        else:
            first = number % NUM_SLOTS * slots.slot_bytes
            line.send(slots.bytes[first : first + end])
        yield sum(values.nbytes for values, _ in batch)
    for _ in range(num_full):
        line.await_mark()


def receive(line: Line, batches_: Iterable[list[tuple[torch.Tensor, int]]], slots: Slots, lock: Any) -> Iterator[int]:
    """Receive batches into their places; gives the bytes of each.

    `slots`: those of the sender where it is on this host, else own ones, of which the first is used by one line at a
    time, by `lock`.
    """
    for number, batch in enumerate(batches_):
        line.await_mark()
        if line.is_local:
            _put(batch, slots.slot(number))
            line.mark()
        else:
            with lock:
                line.fill(slots.bytes[: batch[-1][1] + batch[-1][0].nbytes])
                _put(batch, slots.slot(0))
        yield sum(values.nbytes for values, _ in batch)


def machine() -> str:
    """What processes that can share memory have in common: kernel and network; empty where they cannot."""
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return ""


def _put(batch: list[tuple[torch.Tensor, int]], slot: torch.Tensor) -> None:
    for values, at in batch:
        values.copy_(_as(values, slot[at : at + values.nbytes]))


def _as(values: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
    """Bytes of a slot as numbers like others."""
    return slot.view(values.dtype).view(values.shape)
