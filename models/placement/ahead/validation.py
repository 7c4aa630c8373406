"""What can be said about a snapshot that is planned ahead without a model. Light: imports no modelling layer."""

from models.placement.ahead.parameters import AheadParameters
from models.placement.ahead.wanted import tier_of, wanted_jobs, wanted_warnings
from models.workload import Snapshot
from stowplan.errors import InputError, Issue


def policy_issues(snapshot: Snapshot, parameters: AheadParameters) -> list[Issue]:
    """Errors and warnings; a snapshot without any job has none."""
    if not snapshot.jobs:
        return []
    try:
        tier_of(snapshot, parameters)
        return list(wanted_warnings(wanted_jobs(snapshot, parameters, searches_plans=False)))
    except InputError as error:
        return list(error.issues)
