"""A state goes from one process to another of this host: through shared memory, and through TCP.

    python -m benchmarks state-carriage [--num-runs 7]

Both take the same batches through the same memory for what is on its way, one after the other in turns. Reported are
seconds for a GB, wall time and CPU time of both processes together. Needs the executor extra.
"""

import multiprocessing
import socket
import statistics
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Annotated, Any

import typer

from benchmarks.rows import Row, show, write
from executor.extra import missing_extra

_FAMILIES = {"shared memory": socket.AF_UNIX, "TCP": socket.AF_INET}
_STATE_BYTES = 1 << 30
_CHUNKS_BYTES = (1 << 22, 1 << 26)
_LIMIT_S = 120.0
_PROTOCOL = (
    "1 GiB of fp32 in matrices of 16 MiB from a process to another one of this host, both with one thread; both ways "
    "in turns, without the first; medians, least and most"
)


def _parts(state_bytes: int) -> Any:
    # With the command alone: torch takes seconds to load.
    import torch

    from executor.redeployment import Region
    from executor.trainer.carriage import Parts
    from executor.trainer.engine import Held

    torch.set_num_threads(1)
    rows = 2048
    count = state_bytes // (4 * rows * rows)
    regions = [Region(tensor=str(k), top=0, bottom=rows, left=0, right=rows) for k in range(count)]
    held = [Held(region=one, values=torch.full((rows, rows), 1.0), counts=True) for one in regions]
    return regions, Parts(held)


def _sender(orders: Connection, state_bytes: int) -> None:
    """In a process of its own: send the state whenever it is told where to."""
    from executor.trainer.carriage import Line, Slots, send

    regions, parts = _parts(state_bytes)
    orders.send("ready")
    while (order := orders.recv()) is not None:
        family, address, chunk_bytes = order
        link = socket.socket(family)
        link.connect(address)
        line, cpu_s = Line(link), time.process_time()
        slots = Slots(chunk_bytes)
        for _ in send(line, parts.batches(regions, slots.slot_bytes), slots):
            pass
        line.await_mark()
        orders.send(time.process_time() - cpu_s)
        line.close()
        slots.close()


def _run(orders: Connection, state: Any, family: socket.AddressFamily, chunk_bytes: int) -> tuple[float, float]:
    """Wall and CPU seconds of both."""
    from executor.trainer.carriage import Line, Slots, receive

    regions, parts = state
    with socket.socket(family) as listener:
        listener.settimeout(_LIMIT_S)
        listener.bind("" if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        orders.send((family, listener.getsockname(), chunk_bytes))
        line = Line(listener.accept()[0])
    start_s, cpu_s = time.perf_counter(), time.process_time()
    slots = Slots(chunk_bytes, line.shared() if line.is_local else None)
    for _ in receive(line, parts.batches(regions, slots.slot_bytes), slots, threading.Lock()):
        pass
    line.mark()
    took_s, own_s = time.perf_counter() - start_s, time.process_time() - cpu_s
    line.close()
    slots.close()
    if not orders.poll(_LIMIT_S):
        raise RuntimeError("the sender does not end")
    return took_s, own_s + orders.recv()


def measure(num_runs: int, state_bytes: int) -> list[Row]:
    """Seconds for a GB by size of a chunk and way; RuntimeError when the other process does not do its part in time."""
    state = _parts(state_bytes)
    context = multiprocessing.get_context("spawn")
    orders, theirs = context.Pipe()
    sender = context.Process(target=_sender, args=(theirs, state_bytes), daemon=True)
    sender.start()
    rows: list[Row] = []
    try:
        if not orders.poll(_LIMIT_S):
            raise RuntimeError("the sender does not start")
        orders.recv()
        for chunk_bytes in _CHUNKS_BYTES:
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in _FAMILIES}
            for run in range(num_runs + 1):
                for name in list(_FAMILIES)[:: 1 if run % 2 else -1]:
                    found[name].append(_run(orders, state, _FAMILIES[name], chunk_bytes))
            for name, runs in found.items():
                walls, cpus = ([run[k] * 1e9 / state_bytes for run in runs[1:]] for k in (0, 1))
                rows.append(
                    {
                        "chunk_bytes": chunk_bytes,
                        "way": name,
                        "s_per_gb": statistics.median(walls),
                        "least_s": min(walls),
                        "most_s": max(walls),
                        "cpu_s_per_gb": statistics.median(cpus),
                    }
                )
        orders.send(None)
    finally:
        sender.kill()
        sender.join()
    return rows


def main(num_runs: Annotated[int, typer.Option(help="Of each way and size of a chunk.", min=1)] = 7) -> None:
    """Measure how long a state takes between two processes of one host, by both ways."""
    if missing := missing_extra("the state of a training"):
        sys.stderr.write(f"{missing}\n")
        raise typer.Exit(2)
    rows = measure(num_runs, _STATE_BYTES)
    show("State from one process to another", rows)
    write("state_carriage", _PROTOCOL, rows)
