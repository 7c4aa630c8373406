"""How a run has ended: `outcome.json` in its folder of metrics, written by rank 0."""

from dataclasses import dataclass
from enum import StrEnum

OUTCOME_FILE = "outcome.json"


class End(StrEnum):
    """Why a run has ended without an error."""

    FINISHED = "finished"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run has ended.

    `step`: optimiser steps done in all; `loss`: of the last one, None when this run did none.
    `checkpoint_failure`: why the last checkpoint could not be written, None when it was.
    """

    end: End
    step: int
    loss: float | None
    checkpoint_failure: str | None
