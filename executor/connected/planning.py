"""Which nodes jobs get that one policy starts and another one places: gang says who starts, Arnold where those go that
say how they are parallel."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from models.allocation.gang.check import gang_violations
from models.allocation.gang.parameters import GangParameters
from models.allocation.plan_check import coverage_violations
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.check import placement_violations
from models.plan import Change, JobAllocation, Plan, PlanOutcome, PlanRequest
from models.planning import plan
from models.workload import Job, Snapshot
from stowplan.errors import InputError, Issue, UnverifiedPlanError


class PlacedByArnold:
    """A planner: plans a request by its policy, then has Arnold place each job with degrees that starts.

    A job that Arnold refuses, or finds no whole nodes for, stays where the policy has put it; so does one that would
    take nodes which gang keeps for the job that is next. refused: why, by job, of the last plan; `say` gets what is new
    in it.
    """

    def __init__(self, parameters: ArnoldParameters, say: Callable[[str], None] = lambda _: None) -> None:
        self._parameters = parameters
        self._say = say
        self.refused: dict[str, str] = {}

    def __call__(self, request: PlanRequest) -> PlanOutcome:
        """Plan.

        Raises
        ------
        UnverifiedPlanError
            When what both say together breaks a rule: a bug of ours.
        """
        before, self.refused = self.refused, {}
        outcome = self._planned(request)
        for name, why in self.refused.items():
            if before.get(name) != why:
                self._say(f"{name}: Arnold does not place it: {why}")
        return outcome

    def _planned(self, request: PlanRequest) -> PlanOutcome:
        outcome = plan(request)
        if outcome.plan is None:
            return outcome
        jobs = {job.id: job for job in request.snapshot.jobs}
        placed = outcome.plan
        for k, item in enumerate(outcome.plan.allocations):
            if item.change is not Change.STARTED or jobs[item.job_id].parallelism is None:
                continue
            found = list(placed.allocations)
            found[k] = self._placed(request, jobs[item.job_id], k, found)
            if found[k] != item:
                trial = replace(placed, allocations=tuple(found))
                verify_placed(request.snapshot, trial, "once Arnold had placed its jobs")
                broken = _broken_promises(request, trial, outcome.objective)
                if broken:
                    self.refused[item.job_id] = broken[0].detail
                else:
                    placed = trial
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


def _broken_promises(request: PlanRequest, placed: Plan, objective: float | None) -> list[Issue]:
    """What gang's own check has against the plan, for one that keeps the rules of every placement."""
    if not isinstance(request.parameters, GangParameters) or objective is None:
        return []
    return gang_violations(request.snapshot, request.parameters, placed, objective)


def verify_placed(snapshot: Snapshot, placed: Plan, when: str) -> None:
    """Check a plan that was changed after its policy had checked it by what goes for every policy.

    Raises
    ------
    UnverifiedPlanError
        When it breaks a rule; `when` says since what.
    """
    wrong = placement_violations(snapshot, placed.allocations, whole_nodes=False)
    wrong += coverage_violations(snapshot, placed)
    if wrong:
        raise UnverifiedPlanError(f"the plan failed a check {when}; it is withheld", wrong)
