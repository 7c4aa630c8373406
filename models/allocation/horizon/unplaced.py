"""Why a job waits that could run: when it is planned to start, and on what."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from models.allocation.horizon.outlook import Outlook, Planned
from models.plan import UnplacedJob
from models.wording import counted

_S_PER_MINUTE = 60.0
_S_PER_HOUR = 3600.0
# Reasons of Sia's that are about what others got, or about its own objective.
_COMPETING = {"outcompeted", "queue_penalty_too_low", "within_gap"}


def with_outlook(unplaced: Sequence[UnplacedJob], outlook: Outlook) -> tuple[UnplacedJob, ...]:
    """Say of the jobs that others keep waiting when they are planned to start."""
    return tuple(_explained(unplaced, outlook))


def _explained(unplaced: Sequence[UnplacedJob], outlook: Outlook) -> Iterator[UnplacedJob]:
    for item in unplaced:
        planned = outlook.planned.get(item.job_id, ())
        if item.reason not in _COMPETING or not planned:
            yield item
            continue
        likely = max(planned, key=lambda found: found.share)
        starts = _starts(likely, outlook)
        yield replace(
            item,
            reason="outcompeted" if item.reason == "outcompeted" else "later_is_better",
            detail=f"{starts}; others end sooner for it"
            if item.reason == "outcompeted"
            else f"{starts}, which ends jobs sooner than starting it now",
            counts={**item.counts, "planned_start_s": round(_start_s(likely, outlook))},
        )


def _start_s(planned: Planned, outlook: Outlook) -> float:
    return outlook.bounds_s[-1] if planned.change_s is None else planned.change_s


def _starts(planned: Planned, outlook: Outlook) -> str:
    if planned.later is None or planned.change_s is None:
        return f"is not planned to start within {_about(outlook.bounds_s[-1])}"
    gpu_type, _, num_gpus = planned.later
    return f"is planned to start in about {_about(planned.change_s)} on {counted(num_gpus, f'{gpu_type} GPU')}"


def _about(time_s: float) -> str:
    if time_s < 2 * _S_PER_MINUTE:
        return f"{time_s:.0f} s"
    if time_s < 2 * _S_PER_HOUR:
        return f"{time_s / _S_PER_MINUTE:.0f} minutes"
    return f"{time_s / _S_PER_HOUR:.1f} h"
