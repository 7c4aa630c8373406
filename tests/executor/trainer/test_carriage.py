"""State comes from one rank to another as it is, through a connection or through shared memory, a chunk at a time."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from executor.redeployment import Region
from executor.trainer.carriage import Line, Parts, Slots, receive, send, slot_size
from executor.trainer.engine import Held
from stowplan.errors import WorkerError
from tests.paths import ROOT

pytestmark = pytest.mark.training

# Two slots of 2 KiB: most tensors below take several batches.
CHUNK_BYTES = 4096


def _held(tensor: str, top: int, left: int, values: torch.Tensor) -> Held:
    rows, columns = values.shape
    region = Region(tensor=tensor, top=top, bottom=top + rows, left=left, right=left + columns)
    return Held(region=region, values=values, counts=True)


@pytest.fixture(params=[socket.AF_UNIX, socket.AF_INET], ids=["shared-memory", "network"])
def lines(request: pytest.FixtureRequest) -> Iterator[tuple[Line, Line]]:
    """Both ends of a connection."""
    with socket.socket(request.param) as listener:
        listener.bind(("127.0.0.1", 0) if request.param == socket.AF_INET else "")
        listener.listen()
        link = socket.socket(request.param)
        link.connect(listener.getsockname())
        accepted, _ = listener.accept()
    ends = Line(link, 5.0), Line(accepted, 5.0)
    yield ends
    for end in ends:
        end.close()


def test_every_part_arrives_in_its_place(lines: tuple[Line, Line]) -> None:
    generator = torch.Generator().manual_seed(5)
    whole = torch.randn(300, 17, generator=generator)
    narrow = torch.randn(40, 3, generator=generator).to(torch.bfloat16)
    # The sender has columns of the whole matrix, in two pieces; the receiver wants a part of them elsewhere.
    source = Parts([_held("a", 0, 4, whole[:200, 4:]), _held("a", 200, 4, whole[200:, 4:]), _held("b", 0, 0, narrow)])
    mine, other = torch.zeros(250, 8), torch.zeros(40, 3, dtype=torch.bfloat16)
    target = Parts([_held("a", 50, 6, mine), _held("b", 0, 0, other)])
    regions = [
        Region(tensor="a", top=50, bottom=200, left=6, right=14),
        Region(tensor="b", top=0, bottom=40, left=0, right=3),
        Region(tensor="a", top=200, bottom=300, left=6, right=14),
    ]
    sending, receiving = lines
    sizes: list[int] = []

    def send_all() -> None:
        slots = Slots(CHUNK_BYTES)
        sizes.extend(send(sending, source.batches(regions, slots.slot_bytes), slots))
        slots.close()

    thread = threading.Thread(target=send_all)
    thread.start()
    slots = Slots(CHUNK_BYTES, receiving.shared() if receiving.is_local else None)
    batches = target.batches(regions, slots.slot_bytes)
    received = list(receive(receiving, batches, slots, threading.Lock()))
    thread.join()
    slots.close()
    assert torch.equal(mine, whole[50:, 6:14])
    assert torch.equal(other, narrow)
    assert received == sizes
    assert sum(sizes) == mine.nbytes + other.nbytes
    assert len(sizes) > 4
    assert max(sizes) <= slot_size(CHUNK_BYTES)


def test_a_sender_that_is_gone_is_told_of(lines: tuple[Line, Line]) -> None:
    sending, receiving = lines
    sending.say({"a": 1})
    assert receiving.hear() == {"a": 1}
    sending.close()
    with pytest.raises(ConnectionResetError, match="gone"):
        receiving.hear()


_KILLED = """
import os, signal, socket, sys, torch
from executor.trainer.carriage import Line, Slots
line = Line(socket.socket(fileno=int(sys.argv[1])))
if sys.argv[2] == "sender":
    slots = Slots(1 << 20)
    line.share(slots.descriptor)
else:
    slots = Slots(1 << 20, line.shared())
slots.slot(0).fill_(7)
line.mark()
line.await_mark()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("killed", ["sender", "receiver"])
def test_nothing_is_left_of_memory_whose_processes_are_killed(killed: str) -> None:
    """The other one has the memory until it closes it, the last one."""
    own, others = socket.socketpair()
    with subprocess.Popen(
        [sys.executable, "-P", "-c", _KILLED, str(others.fileno()), killed],
        pass_fds=[others.fileno()],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        others.close()
        line = Line(own, 60.0)
        slots = Slots(1 << 20, line.shared() if killed == "sender" else None)
        if killed == "receiver":
            line.share(slots.descriptor)
        line.await_mark()
        # Of memory without a name anywhere: not even one in /dev/shm, which a process that is killed would leave.
        assert os.readlink(f"/proc/self/fd/{slots.descriptor}") == "/memfd:stowplan-state (deleted)"
        line.mark()
        assert process.wait(60.0) == -signal.SIGKILL
    assert int(slots.slot(0)[-1]) == 7
    with pytest.raises(ConnectionResetError):
        line.await_mark()
    slots.close()
    line.close()


def test_who_says_nothing_is_not_waited_for() -> None:
    first, second = socket.socketpair()
    silent = Line(first, 0.01)
    with pytest.raises(TimeoutError):
        silent.await_mark()
    silent.close()
    second.close()


@pytest.mark.parametrize("sent", [b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{]"])
def test_what_is_no_document_is_refused(sent: bytes) -> None:
    first, second = socket.socketpair()
    line = Line(first)
    second.sendall(sent)
    with pytest.raises(WorkerError, match="document"):
        line.hear()
    line.close()
    second.close()


def test_a_region_that_is_not_there_is_refused() -> None:
    parts = Parts([_held("a", 0, 0, torch.zeros(4, 4))])
    with pytest.raises(WorkerError, match="is not with this rank"):
        parts.values(Region(tensor="a", top=0, bottom=5, left=0, right=4))
