"""Nodes of jobs in plans that this service made."""

from api.common.errors import NotFoundError, PlanNotFinishedError
from api.schemas.plan import PlanDoc


def planned_nodes(plan: PlanDoc, job_id: str | None) -> tuple[str, ...]:
    """The nodes that a plan gives a job (None: its only one), and those that it keeps free for it.

    Raises
    ------
    PlanNotFinishedError
        When the plan is not final.
    NotFoundError
        When it gives the job nothing, or none is named and it has several.
    """
    if not plan.status.final:
        raise PlanNotFinishedError(f"{plan.id} is {plan.status.value}; wait until it is final")
    placement = plan.communication
    named = job_id if job_id is not None or placement is None else placement.job_id
    found = [known for known in plan.allocations if named in (None, known.job_id)]
    if len(found) != 1:
        have = [known.job_id for known in plan.allocations][:20]
        wanted = "one job alone" if named is None else f"job {named!r}"
        raise NotFoundError(f"{plan.id} does not give nodes to {wanted}; it does to {have}: name one as `job_id`")
    spares = placement.spares if placement is not None and placement.job_id == found[0].job_id else ()
    return tuple(dict.fromkeys((*found[0].gpus, *spares)))
