"""Nodes of jobs in plans that this service made, and for when."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from api.common.errors import NotFoundError, PlanNotFinishedError
from api.schemas.ahead import AheadPlacementDoc
from api.schemas.plan import PlanDoc


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNodes:
    """Nodes of a job, spares included. `from_time`, `until_time`: for when it is planned; None where it starts at once,
    and where nobody knows how long it lasts."""

    nodes: tuple[str, ...]
    from_time: datetime | None = None
    until_time: datetime | None = None


def planned_nodes(plan: PlanDoc, job_id: str | None, taken_at: datetime) -> PlannedNodes:
    """The nodes that a plan gives a job (None: its only one), and those that it keeps free for it.

    Parameters
    ----------
    taken_at
        The moment of the snapshot: what is planned ahead counts from there.

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
    ahead = [placed for placed in plan.ahead if named in (None, placed.placement.job_id)]
    if len(ahead) == 1:
        return _ahead(ahead[0], taken_at)
    found = [known for known in plan.allocations if named in (None, known.job_id)]
    if len(found) != 1 or ahead:
        have = [known.placement.job_id for known in plan.ahead] + [known.job_id for known in plan.allocations]
        wanted = "one job alone" if named is None else f"job {named!r}"
        raise NotFoundError(f"{plan.id} does not give nodes to {wanted}; it does to {have[:20]}: name one as `job_id`")
    spares = placement.spares if placement is not None and placement.job_id == found[0].job_id else ()
    return PlannedNodes(nodes=tuple(dict.fromkeys((*found[0].gpus, *spares))))


def _ahead(placed: AheadPlacementDoc, taken_at: datetime) -> PlannedNodes:
    return PlannedNodes(
        nodes=tuple(node.node for node in placed.nodes),
        from_time=taken_at + timedelta(seconds=placed.start_s),
        until_time=None if placed.end_s is None else taken_at + timedelta(seconds=placed.end_s),
    )
