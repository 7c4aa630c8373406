"""Why a job waits that could run: when it is planned to start, and on what.

Reasons beside those of Sia (`models.allocation.sia.unplaced`):
  later_is_better  there is room for it, but all jobs end sooner on average when it starts later
  quota            its queue has not so many GPUs left, or never has
  not_decided      the solve ended at a limit before it was decided whether it starts now
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from models.allocation.horizon.instance import HorizonInstance
from models.allocation.horizon.outlook import Outlook, Planned, Shape
from models.allocation.horizon.quotas import Quotas
from models.allocation.horizon.words import about, gpus_of
from models.plan import UnplacedJob
from models.roll import row_of
from models.wording import counted
from stowplan.arrays import IntVector

# Reasons of Sia's that are about what others got, or about its own objective.
_OUTCOMPETED, _QUOTA = "outcompeted", "quota"
_COMPETING = {_OUTCOMPETED, "queue_penalty_too_low", "within_gap"}
_UNDECIDED = "the solve ended at a limit before it was decided whether it starts now; in the best plan until then it "


def with_quotas(
    unplaced: Sequence[UnplacedJob], instance: HorizonInstance, chosen: IntVector
) -> tuple[UnplacedJob, ...]:
    """Say of the jobs whose queues have too few GPUs left beside what is `chosen` (J,) that this keeps them waiting."""
    quotas = instance.quotas
    if quotas is None:
        return tuple(unplaced)
    num_gpus, starts = instance.sia.configurations.num_gpus, np.flatnonzero((chosen >= 0) & (quotas.queue >= 0))
    # What fits no free GPUs even alone is no matter of quotas.
    able_alone = instance.sia.utility.runnable & instance.sia.rows.fits_alone()
    used = np.zeros(quotas.left.size, dtype=np.int64)
    np.add.at(used, quotas.queue[starts], num_gpus[chosen[starts]])
    place = row_of(instance.sia.snapshot)
    found = []
    for item in unplaced:
        i = place[item.job_id]
        q, able = int(quotas.queue[i]), num_gpus[able_alone[i]]
        if q >= 0 and able.size and able.min() > quotas.left[q] - used[q]:
            item = _over_quota(item, quotas, q, int(able.min()), int(used[q]))
        found.append(item)
    return tuple(found)


def _over_quota(item: UnplacedJob, quotas: Quotas, q: int, least: int, used: int) -> UnplacedJob:
    queue, most, others = f"queue {quotas.names[q]!r}", quotas.most[q], int(quotas.kept[q]) + used
    more = f"raise the quota of {queue} by {counted(least + others - most, 'GPU')}"
    if least > most:
        detail = f"the quota of {queue} is {most}" + (f", other jobs have {others}" if others else "")
        remedy = f"{more}, or let the job have fewer GPUs"
    else:
        detail = f"{queue} has too few GPUs left: of its quota of {most} other jobs have {others}"
        remedy = f"{more}, or wait for its jobs"
        if item.reason == _OUTCOMPETED:
            remedy = "wait for its jobs; with a higher quota it would lack free GPUs, too"
    return replace(
        item,
        reason=_QUOTA,
        detail=f"{detail}; it needs {counted(least, 'GPU')}",
        counts={"least_gpus": least, "quota": most, "quota_left": max(0, most - others)},
        remedy=remedy,
    )


def with_outlook(
    unplaced: Sequence[UnplacedJob],
    outlook: Outlook,
    starts_now: Mapping[str, tuple[Shape, float]],
    *,
    is_proven: bool,
) -> tuple[UnplacedJob, ...]:
    """Say of the jobs that others keep waiting when they are planned to start, and what to start now would take:
    `starts_now` has a shape and seconds of others by job. `is_proven`: no better plan was left to be found."""
    return tuple(_explained(item, outlook, starts_now, is_proven) for item in unplaced)


def _explained(
    item: UnplacedJob, outlook: Outlook, starts_now: Mapping[str, tuple[Shape, float]], is_proven: bool
) -> UnplacedJob:
    planned = outlook.planned.get(item.job_id, ())
    by_quota = item.reason == _QUOTA
    if not planned or not (by_quota or item.reason in _COMPETING):
        return item
    likely = max(planned, key=lambda found: found.share)
    if by_quota and likely.later is None:
        return item
    detail = f"{item.detail}; it {_starts(likely, outlook)}" if by_quota else _starts(likely, outlook)
    counts = dict(item.counts)
    if likely.later is not None and likely.change_s is not None:
        counts["planned_start_s"] = round(likely.change_s)
    if item.job_id in starts_now:
        shape, others_s = starts_now[item.job_id]
        detail += (
            f"; to start now on {gpus_of(shape, outlook)} would cost others {about(others_s)} of their time in all"
        )
        counts["others_lose_s"] = round(others_s)
    # What its queue has left of its quota is true of this plan, whether there is a better one or not.
    if not is_proven and not by_quota:
        detail = f"{_UNDECIDED}{detail}"
        return replace(item, reason="not_decided", detail=detail, counts=counts)
    fits = item.reason not in {_OUTCOMPETED, _QUOTA}
    return replace(item, reason="later_is_better" if fits else item.reason, detail=detail, counts=counts)


def _starts(planned: Planned, outlook: Outlook) -> str:
    if planned.later is None or planned.change_s is None:
        return f"is not planned to start within {about(outlook.bounds_s[-1])}"
    return f"is planned to start in about {about(planned.change_s)} on {gpus_of(planned.later, outlook)}"
