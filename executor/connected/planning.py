"""Which nodes jobs get that one policy starts and another one places: gang says who starts, Arnold where those go that
say how they are parallel."""

from collections.abc import Sequence
from dataclasses import replace

from models.allocation.plan_check import coverage_violations
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.check import placement_violations
from models.plan import Change, JobAllocation, Plan, PlanOutcome, PlanRequest
from models.planning import plan
from models.workload import Job, Snapshot
from stowplan.errors import InputError, UnverifiedPlanError


class PlacedByArnold:
    """A planner: plans a request by its policy, then has Arnold place each job with degrees that starts.

    A job that Arnold refuses, or finds no whole nodes for, stays where the policy has put it. refused: why, by job, of
    the last plan.
    """

    def __init__(self, parameters: ArnoldParameters) -> None:
        self._parameters = parameters
        self.refused: dict[str, str] = {}

    def __call__(self, request: PlanRequest) -> PlanOutcome:
        """Plan.

        Raises
        ------
        UnverifiedPlanError
            When what both say together breaks a rule: a bug of ours.
        """
        outcome, self.refused = plan(request), {}
        if outcome.plan is None:
            return outcome
        jobs = {job.id: job for job in request.snapshot.jobs}
        found = list(outcome.plan.allocations)
        for k, item in enumerate(found):
            if item.change is Change.STARTED and jobs[item.job_id].parallelism is not None:
                found[k] = self._placed(request, jobs[item.job_id], k, found)
        if found == list(outcome.plan.allocations):
            return outcome
        placed = replace(outcome.plan, allocations=tuple(found))
        _verify(request.snapshot, placed)
        return replace(outcome, plan=placed)

    def _placed(self, request: PlanRequest, job: Job, k: int, found: Sequence[JobAllocation]) -> JobAllocation:
        """Where one job goes, beside all others as they are planned."""
        others = (item for position, item in enumerate(found) if position != k)
        jobs = {one.id: one for one in request.snapshot.jobs}
        running = tuple(
            replace(jobs[item.job_id], current=item.gpus, parallel_plan=None, expansions=()) for item in others
        )
        wanted = replace(job, gpu_types=(found[k].gpu_type,))
        try:
            snapshot = replace(request.snapshot, jobs=(*running, wanted))
            outcome = plan(replace(request, snapshot=snapshot, parameters=self._parameters))
        except InputError as error:
            self.refused[job.id] = error.issues[0].detail if error.issues else error.detail
            return found[k]
        own = () if outcome.plan is None else outcome.plan.allocations
        for item in own:
            if item.job_id == job.id and item.num_gpus == found[k].num_gpus:
                return item
        self.refused[job.id] = "there are not enough wholly free nodes"
        return found[k]


def _verify(snapshot: Snapshot, placed: Plan) -> None:
    wrong = placement_violations(snapshot, placed.allocations, whole_nodes=False)
    wrong += coverage_violations(snapshot, placed)
    if wrong:
        raise UnverifiedPlanError("the plan failed a check once Arnold had placed its jobs; it is withheld", wrong)
