"""Why a running job changes: when it would end if it stayed, and what that would take from the others."""

from dataclasses import replace

import numpy as np

from models.allocation.horizon.instance import HorizonInstance
from models.allocation.horizon.outlook import Outlook
from models.allocation.horizon.words import about, gpus_of, shapes_of
from models.plan import Change, ChangeReason, JobAllocation, Plan
from models.roll import row_of
from stowplan.arrays import FloatVector, IntVector

_UNCHANGED = (Change.KEPT, Change.STARTED)


def with_reasons(
    plan: Plan,
    instance: HorizonInstance,
    chosen: IntVector,
    share: FloatVector,
    rent: FloatVector | None,
    outlook: Outlook,
) -> Plan:
    """The plan with a reason for each change, where job i has configuration `chosen[i]` (J,) now and schedules have
    shares (S,) and take `rent` (S,) from the others, where that is known."""
    explainer = _Explainer(instance, chosen, share, rent, outlook)
    allocations = (
        item if item.change in _UNCHANGED else replace(item, why=explainer.explained(item)) for item in plan.allocations
    )
    return replace(plan, allocations=tuple(allocations))


class _Explainer:
    def __init__(
        self,
        instance: HorizonInstance,
        chosen: IntVector,
        share: FloatVector,
        rent: FloatVector | None,
        outlook: Outlook,
    ) -> None:
        self._it = instance
        self._chosen = chosen
        self._share = share
        self._rent_s = None if rent is None else rent * sum(job.weight for job in instance.jobs)
        self._outlook = outlook
        self._shapes = shapes_of(instance.sia.configurations)
        self._row = row_of(instance.sia.snapshot)

    def explained(self, item: JobAllocation) -> ChangeReason:
        """Of a job that runs, and has other GPUs than it had."""
        it, i = self._it, self._row[item.job_id]
        found, current = it.schedules, int(it.work.current[i])
        if 0 <= current == self._chosen[i]:
            return ChangeReason(detail="goes on as it was, on other GPUs: its own make room for others", counts={})
        own = np.arange(*np.searchsorted(found.job, (i, i + 1)).tolist())
        stays = own[(found.now[own] == current) & (found.at[own] == 0)] if current >= 0 else own[:0]
        if not stays.size:
            quotas = it.quotas
            if current >= 0 and quotas is not None and not quotas.allows(i, it.sia.configurations.num_gpus[current]):
                q = int(quotas.queue[i])
                detail = f"cannot go on as it runs: the quota of queue {quotas.names[q]!r} is {quotas.most[q]}"
                return ChangeReason(detail=detail, counts={"quota": quotas.most[q]})
            return ChangeReason(detail="cannot go on as it runs: that is none of what it may have now", counts={})
        (stay,) = stays.tolist()
        ends_s, stays_s = float(self._share[own] @ found.ends_s[own]), float(found.ends_s[stay])
        now = gpus_of(self._shapes[current], self._outlook)
        detail = f"ends in about {about(ends_s)}, if it stayed on {now} in about {about(stays_s)}"
        counts = {"ends_s": round(ends_s), "stays_ends_s": round(stays_s)}
        if self._rent_s is not None:
            more_s = float(self._rent_s[stay] - self._share[own] @ self._rent_s[own])
            counts["others_lose_s"] = round(more_s)
            if round(more_s):
                would = "would cost" if more_s > 0 else "would save"
                detail += f"; to stay {would} others {about(abs(more_s))} of their time in all"
        return ChangeReason(detail=detail, counts=counts)
