"""How the ranks of two runs find each other to hand a training's state over: files in the folders of the runs.

    <old run>/state/rank-N.json        what rank N has of the state, written when it has built its engine
    <next run>/handover/offer.json     where its ranks listen, and which ranks of the old run each waits for
    <old run>/hand_over                the folder of the next run, written before the old one is asked to stop
    <next run>/handover/verdict.json   whether the state is handed over, or that was called off: whoever is first

The ranks of the old run learn nothing of the next one until they are asked to stop, so that nothing that becomes of it
can hold them up. Only the verdict decides: once the old run has written that all is handed over, nobody ends the next
one in its favour; once the supervisor has called it off, the old run writes a checkpoint.
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from executor.records import read_record, write_record
from executor.redeployment import Region
from executor.run_files import HANDOVER_FILE
from stowplan.errors import InputError
from stowplan.records import to_json

_STATE = "state"
_HANDOVER = "handover"
_OFFER = "offer.json"
_VERDICT = "verdict.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Where a rank listens.

    `machine`: its kernel and network, by which processes that can share memory are known; `local`: the abstract address
    of its Unix socket there.
    """

    rank: int
    address: str
    port: int
    machine: str
    local: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the next run takes. `doors`: of its ranks. `targets`: of every rank of the old run, those that wait for it.

    `token`: by it ranks know each other. `chunk_bytes`: what a rank of the old run may hold of its state a second time.
    """

    token: str
    chunk_bytes: int
    doors: tuple[Door, ...]
    targets: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`step`: optimiser steps done in the state that was handed over; None: that was called off."""

    step: int | None


def write_state(folder: Path, rank: int, regions: Iterable[Region]) -> None:
    """Note what a rank of the run in `folder` has of the state; OSError where that is impossible."""
    path = folder / _STATE / f"rank-{rank}.json"
    path.parent.mkdir(exist_ok=True)
    draft = path.with_suffix(".part")
    # A later run that does not find it reads a checkpoint: it need not be durable.
    draft.write_text(json.dumps([[one.tensor, one.top, one.bottom, one.left, one.right] for one in regions]))
    draft.replace(path)


def read_state(folder: Path, rank: int) -> tuple[Region, ...]:
    """What a rank has of the state; InputError where nobody knows."""
    path = folder / _STATE / f"rank-{rank}.json"
    try:
        rows = json.loads(path.read_text())
        return tuple(regions_of(rows))
    except (OSError, ValueError, TypeError, InputError) as error:
        raise InputError(f"{path} does not say what rank {rank} has of the state: {error}") from error


def regions_of(rows: Iterable[tuple[str, int, int, int, int]]) -> Iterable[Region]:
    """Regions that were written as rows of JSON."""
    for tensor, top, bottom, left, right in rows:
        yield Region(tensor=tensor, top=top, bottom=bottom, left=left, right=right)


def write_offer(folder: Path, offer: Offer) -> None:
    """Offer to take the state, in the folder of the next run; OSError where that is impossible."""
    (folder / _HANDOVER).mkdir(exist_ok=True)
    write_record(offer, folder / _HANDOVER / _OFFER)


def ask(old: Path, following: Path) -> None:
    """Have the ranks of an old run hand their state over when they end, where the next one offers to take it."""
    if (following / _HANDOVER / _OFFER).exists():
        (old / HANDOVER_FILE).write_text(str(following))


def asked(old: Path) -> tuple[Path, Offer] | None:
    """The folder of the next run and its offer; None where the old one is not to hand anything over.

    Raises
    ------
    InputError
        When the offer cannot be read.
    """
    try:
        following = Path((old / HANDOVER_FILE).read_text())
    except FileNotFoundError:
        return None
    return following, read_record(Offer, following / _HANDOVER / _OFFER, "offer")


def hand(folder: Path, step: int) -> bool:
    """Say that all is handed over to the run in `folder`; False where that was called off, or cannot be written."""
    return _judge(folder, Verdict(step=step)).step == step


def call_off(folder: Path) -> bool:
    """Call off that the run in `folder` gets a state; False where it has it already."""
    return _judge(folder, Verdict(step=None)).step is None


def handed_step(folder: Path) -> int | None:
    """Step of the state that was handed over to the run in `folder`; None where that has not come about."""
    return _verdict(folder).step


def _judge(folder: Path, verdict: Verdict) -> Verdict:
    """Write a verdict unless there is one; gives the one that counts."""
    path = folder / _HANDOVER / _VERDICT
    draft = path.with_name(f".{uuid4().hex}.part")
    # Without an offer there is no folder, and nothing to be judged.
    with suppress(OSError):
        draft.write_text(to_json(verdict))
        try:
            # Creates it with its contents at once, or not at all.
            os.link(draft, path)
        finally:
            draft.unlink()
    return _verdict(folder)


def _verdict(folder: Path) -> Verdict:
    path = folder / _HANDOVER / _VERDICT
    return read_record(Verdict, path, "verdict") if path.exists() else Verdict(step=None)
