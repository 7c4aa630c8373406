"""Ranks of a deployment whose agents run anywhere on this machine, forked from a process that has loaded all once."""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Client, Connection, Listener, wait
from pathlib import Path
from threading import Lock, Thread

from executor.launch.agent import log_file
from tests.executor.trainer.launching import forked_rank

_ASKED_RANK = Path(__file__).with_name("asked_rank.py")
# Starting a process and asking how one has ended look at all others, too.
_PROCESSES = Lock()


@contextlib.contextmanager
def forking() -> Iterator[Callable[[Sequence[int]], tuple[str, ...]]]:
    """Fork ranks as long as the block lasts; gives the command of a deployment by the ranks that are not forked.

    A rank has the environment, the working directory, the log and the network of the process that asks for it, and ends
    with it.
    """
    with Listener(family="AF_UNIX") as listener:
        address = str(listener.address)
        thread = Thread(target=_serve, args=(listener,))
        thread.start()
        try:
            yield lambda own: (sys.executable, "-P", str(_ASKED_RANK), address, ",".join(map(str, own)))
        finally:
            with Client(address) as last:
                last.send(None)
            thread.join()


def _serve(listener: Listener) -> None:
    """Answer whoever asks, until nothing is asked for."""
    threads = []
    while True:
        asking = listener.accept()
        wanted = asking.recv()
        if wanted is None:
            break
        threads.append(Thread(target=_stand_behind, args=(asking, *wanted)))
        threads[-1].start()
    for thread in threads:
        thread.join()


def _stand_behind(asking: Connection, pid: int, job: str, variables: dict[str, str]) -> None:
    """Fork a rank and tell how it ended; kill it when nobody asks any more."""
    rank, path = int(variables["RANK"]), Path(job)
    with asking:
        with _PROCESSES:
            process = forked_rank(rank, path, log_file(path.parent, rank), variables, partial(_enter_place, pid))
            asking.send(process.pid)
        wait([asking, process.sentinel])
        process.kill()
        with _PROCESSES:
            process.join()
            code = process.exitcode
            process.close()
        with contextlib.suppress(BrokenPipeError):
            asking.send(code)


def _enter_place(pid: int, rank: int) -> None:  # noqa: ARG001 - of every rank
    """Move this process to the working directory and the network of another one."""
    os.chdir(f"/proc/{pid}/cwd")
    with open(f"/proc/{pid}/ns/net") as network:
        if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
