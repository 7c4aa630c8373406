"""The ranks of a run that ends hand their state over to those of the next one, which waits for it; else they keep it.

All or nothing: only when every rank of the next run has said that it has everything is the state theirs. A rank of it
that dies or stands still costs this run some seconds, behind which it writes a checkpoint.
"""

import logging
import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from executor.checkpoints import Checkpoint, checkpoint_of
from executor.handover import Door, Offer, asked, hand, regions_of
from executor.launch.pulse import Pulse
from executor.progress import Progress
from executor.redeployment import Region
from executor.timeline import Activity, Span, Timeline
from executor.trainer.carriage import STILL_S, Line, Parts, Slots, machine, send
from executor.trainer.checkpointing import first_failure
from executor.trainer.engine import Engine
from executor.training_job import TrainingJob
from stowplan.errors import StowplanError, WorkerError
from stowplan.records import to_document

_logger = logging.getLogger("stowplan.executor.trainer")

# Until all is handed over: less than a supervisor waits for a run to end, so that there is time for a checkpoint.
LIMIT_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Handing:
    """When the state was handed over, or that was tried, and what went wrong."""

    span: Span
    failure: str | None


def hand_over(
    engine: Engine, job: TrainingJob, step: int, progress: Progress, folder: Path, pulse: Pulse
) -> Handing | None:
    """Hand the state behind `step` over, where the run in `folder` is to; collective.

    None: it is not. What goes wrong is the same on all ranks.
    """
    if not job.transfer_chunk_bytes:
        return None
    rank = dist.get_rank()
    found = [_asked(folder) if rank == 0 else None]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return None
    following, offer = found[0]
    checkpoint = checkpoint_of(job, step, progress)
    took = Timeline(Activity.TRANSFER)
    pulse.beat(2 * LIMIT_S, "handing its state over")
    with _sending(offer, rank) as sending:
        failure = first_failure(_failure(lambda: sending.send(engine, checkpoint)))
        if failure is None:
            is_off = rank == 0 and not hand(following, step)
            failure = first_failure("it was called off" if is_off else None)
        if failure is None:
            sending.tell()
    (span,) = took.end().spans
    if rank == 0:
        _log(step, failure)
    return Handing(span=span, failure=failure)


class Sending:
    """What one rank sends, to one rank after the other; lines stay open until all is known."""

    def __init__(self, offer: Offer, rank: int) -> None:
        self._offer, self._rank = offer, rank
        self._slots: Slots | None = None
        self._lines: list[Line] = []
        self._end_s = math.inf

    def send(self, engine: Engine, checkpoint: Checkpoint) -> None:
        """Send every rank what it asks for, and what stands beside it."""
        self._end_s = time.monotonic() + LIMIT_S
        slots = self._slots = Slots(self._offer.chunk_bytes)
        parts, beside = Parts(engine.state() or ()), to_document(checkpoint)
        targets = self._offer.targets[self._rank]
        # Not all to the same rank at the same time.
        first = self._rank % max(1, len(targets))
        for target in (*targets[first:], *targets[:first]):
            line = _line_to(self._offer.doors[target])
            self._lines.append(line)
            line.say({"token": self._offer.token, "rank": self._rank, "checkpoint": beside})
            regions = _wanted(line.hear(), parts)
            for _ in send(line, parts.batches(regions, slots.slot_bytes), slots):
                if time.monotonic() > self._end_s:
                    raise WorkerError(f"it takes more than {LIMIT_S:.0f} s")
            line.await_mark()

    def tell(self) -> None:
        """Say that all have everything; who does not hear it reads the verdict."""
        for line in self._lines:
            _failure(line.mark)

    def close(self) -> None:
        """Leave."""
        for line in self._lines:
            line.close()
        if self._slots is not None:
            self._slots.close()


@contextmanager
def _sending(offer: Offer, rank: int) -> Iterator[Sending]:
    sending = Sending(offer, rank)
    try:
        yield sending
    finally:
        sending.close()


def _asked(folder: Path) -> tuple[Path, Offer] | None:
    try:
        return asked(folder)
    except (StowplanError, OSError) as error:
        _logger.warning("the state is not handed over: %s", error)
        return None


def _failure(what: Callable[[], None]) -> str | None:
    """Do something; give what went wrong, whatever it was: this run goes on."""
    try:
        what()
    except (StowplanError, OSError, ValueError, TypeError, LookupError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _line_to(door: Door) -> Line:
    """Call a rank of the next run, which is this host's where it shares its memory."""
    if door.machine and door.machine == machine():
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(STILL_S)
        link.connect(f"\0{door.local}")
        return Line(link)
    return Line(socket.create_connection((door.address, door.port), timeout=STILL_S))


def _wanted(rows: Sequence[Any], parts: Parts) -> list[Region]:
    """Regions that a rank asks for.

    Raises
    ------
    WorkerError
        When they are not here, or of another type.
    """
    regions = list(regions_of(row[:5] for row in rows))
    for region, row in zip(regions, rows, strict=True):
        if str(parts.values(region).dtype) != row[5]:
            raise WorkerError(f"{region} is of {parts.values(region).dtype} here, not of {row[5]}")
    return regions


def _log(step: int, failure: str | None) -> None:
    if failure is None:
        _logger.info("the next run has the state of step %d", step)
    else:
        _logger.error("the state of step %d could not be handed over, a checkpoint is written: %s", step, failure)
