"""What can be wrong with a snapshot under `horizon`. Light: imports no solver and no modelling layer."""

from collections.abc import Iterator

from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.quota_warnings import queue_warnings
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.sia.validation import goodput_policy_issues
from models.placement.occupancy import occupancy
from models.wording import counted
from models.workload import Snapshot
from stowplan.errors import Issue, Severity


def policy_issues(snapshot: Snapshot, parameters: HorizonParameters) -> list[Issue]:
    """Every error and warning of this snapshot; pointers as in `snapshot_issues`. It asks for what Sia asks for."""
    by_time = parameters.objective is HorizonObjective.COMPLETION_TIME
    objective = SiaObjective.COMPLETION_TIME if by_time else SiaObjective.GOODPUT
    parameters_of_sia = SiaParameters(objective=objective, epsilon=parameters.epsilon)
    found = goodput_policy_issues(snapshot, parameters_of_sia, "horizon")
    if parameters.alpha is not None and snapshot.cluster.minipod_tier is None:
        tiers = [tier.name for tier in snapshot.cluster.tiers]
        detail = f"alpha is {parameters.alpha}, by which jobs are laid out over minipods: " + (
            f"name the one of the tiers {tiers} that these are, or leave alpha out"
            if tiers
            else "the cluster has no tiers: give tiers and paths, or leave alpha out"
        )
        found = [*found, Issue(code="no_minipod_tier", pointer="/cluster/minipod_tier", detail=detail)]
    return [
        *found,
        *_ignored(snapshot, "deadline_s", "lateness is 0", is_used=parameters.lateness > 0),
        *_ignored(snapshot, "queue", "there are no quotas", is_used=bool(parameters.quotas)),
        *_ignored(snapshot, "lasting", "the objective is goodput", is_used=by_time or bool(snapshot.calendar)),
        *queue_warnings(snapshot, parameters.quotas),
        *_horizon_warnings(snapshot, parameters),
    ]


def _ignored(snapshot: Snapshot, field: str, where: str, *, is_used: bool) -> Iterator[Issue]:
    """What jobs say and these parameters do not use: once, at the first job."""
    said = [] if is_used else [k for k, job in enumerate(snapshot.jobs) if getattr(job, field) is not None]
    if said:
        yield Issue(
            code="ignored_field",
            pointer=f"/jobs/{said[0]}/{field}",
            detail=f"is not used where {where}, and is given for {counted(len(said), 'job')}",
            severity=Severity.WARNING,
        )


def _horizon_warnings(snapshot: Snapshot, parameters: HorizonParameters) -> Iterator[Issue]:
    """Who cannot work at all before a horizon that is given, so that with a backlog starting is worth no more than
    waiting: said once, at the first job."""
    end_s, by_time = parameters.horizon_s, parameters.objective is HorizonObjective.COMPLETION_TIME
    if end_s is None or parameters.backlog_efficiency is None or not by_time:
        return
    taken = occupancy(snapshot)
    late = []
    for k, job in enumerate(snapshot.jobs):
        price = parameters.restart_price if job.id in taken.running else 1.0
        if price * job.restart_cost_s >= end_s and not taken.keepable(job.id):
            late.append(k)
    if late:
        yield Issue(
            code="horizon_too_near",
            pointer=f"/jobs/{late[0]}/restart_cost_s",
            detail=f"a start takes no less than horizon_s, {end_s:g}, for {counted(len(late), 'job')}, which may not "
            "be started for it; give a later one, several times what starts take, or leave it out",
            severity=Severity.WARNING,
        )
