"""How a run has ended: `outcome.json` in its folder of metrics, written by rank 0, and the exit codes of its ranks."""

from dataclasses import dataclass
from enum import StrEnum

from executor.timeline import Span

OUTCOME_FILE = "outcome.json"
# Exit codes beside 0: a fault; wrong input, which the same run would meet again; all steps done, but the last
# checkpoint not written; another rank has gone.
FAULT, WRONG_INPUT, NOT_SAVED, PEER_LOST = 1, 2, 3, 4


class End(StrEnum):
    """Why a run has ended without an error."""

    FINISHED = "finished"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run has ended.

    `step`: optimiser steps done in all; `loss`: of the last one, None when this run did none.
    `checkpoint_failure`: why the last checkpoint could not be written, None when it was; `saving`: when it was written,
    None where the run keeps none, or somebody trained on meanwhile; `handing`: when the state was handed over to them,
    or that was tried.
    """

    end: End
    step: int
    loss: float | None
    checkpoint_failure: str | None
    saving: Span | None = None
    handing: Span | None = None
