"""What a training program of a user's own tells of its steps: JSON lines, written by `stowplan_metrics` or by hand."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# More than two lines of any program.
_TAIL_BYTES = 16_384
# More than a line of most.
_LINE_BYTES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnStep:
    """A step as rank 0 has told of it; `loss` None: it said none. Times as in `executor.metrics.StepMetrics`; `step_s`
    of several steps that were told of at once is their mean."""

    step: int
    started_at_s: float
    step_s: float
    loss: float | None


def own_steps_path(folder: Path, rank: int) -> Path:
    """Where the program writes, in the folder of a run."""
    return folder / "metrics" / f"own-rank{rank}.jsonl"


def first_own_step(path: Path) -> OwnStep | None:
    """First line that is a step; None where there is none yet."""
    return next((step for line in _head(path) if (step := parsed_own_step(line)) is not None), None)


def last_own_step(path: Path) -> OwnStep | None:
    """Last line that is a step, without reading what stands before; None where there is none yet."""
    return next((step for line in reversed(_tail(path)) if (step := parsed_own_step(line)) is not None), None)


def newest_own_steps(path: Path, num_steps: int) -> list[OwnStep]:
    """Last lines that are steps, at most so many, without reading what stands before; none without a file."""
    steps = (parsed_own_step(line) for line in _tail(path, num_steps * _LINE_BYTES))
    return [step for step in steps if step is not None][-num_steps:]


def _head(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        return file.read(_TAIL_BYTES).rpartition(b"\n")[0].splitlines()


def _tail(path: Path, num_bytes: int = 0) -> list[bytes]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - _TAIL_BYTES - num_bytes))
        return file.read().rpartition(b"\n")[0].splitlines()


def parsed_own_step(line: bytes) -> OwnStep | None:
    """A line as a step; None for what is none: nobody stops a training for a line of its log."""
    try:
        said: Any = json.loads(line)
        loss = said.get("loss")
        found = OwnStep(
            step=int(said["step"]),
            started_at_s=float(said["started_at_s"]),
            step_s=float(said["step_s"]),
            loss=None if loss is None or not math.isfinite(loss) else float(loss),
        )
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    is_step = found.step > 0 and found.step_s >= 0.0 and math.isfinite(found.step_s + found.started_at_s)
    return found if is_step else None
