"""Plans use what was measured of their jobs, where the request does not say it itself.

What is filled in becomes part of the snapshot, so that the stored input and its hash cover it, and the plan can be made
again whatever is measured later.

calibration      jobs with a model, under policies that plan in three dimensions, and under Sia where it does so, too:
                 where the job has no performance; of the same model, trained in the same way, whatever the batch; it
                 is planned for the software that trained it (`executor.trainable.run_by`)
performance      Sia, jobs without a model: observations of data-parallel launches on GPU types of the cluster
restart_cost_s   where the request has 0: the newest measured cost of a change of plan
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from api.common.times import time_of
from api.convert.hashing import snapshot_id
from api.convert.job_model import calibration_to_document, open_model_from_document
from api.convert.performance import performance_to_document
from api.convert.snapshot import snapshot_from_document
from api.jobs.paths import job_path
from api.schemas.snapshot import JobDoc, SnapshotDoc
from api.store.resolved import ResolvedSnapshot
from executor.trainable import run_by
from executor.training_options import EngineName
from models.performance.goodput.spec import GoodputObservations
from models.performance.iteration.calibration import same_costs
from models.policies import POLICIES
from models.policy import Policy
from models.software import Software
from models.transformer import Transformer
from stowplan.errors import Issue, Severity, pointer_of

if TYPE_CHECKING:
    # Who reads requests has no database, and does not load what that takes.
    from api.jobs.service import JobPerformance, Jobs


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSnapshot:
    """The snapshot as it was posted, the one to plan, and notes on what was filled in; pointers into the request."""

    posted: ResolvedSnapshot
    used: ResolvedSnapshot
    notes: tuple[Issue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredJob:
    """What was measured of a job; `restart_cost_s` None: its plan was never changed."""

    performance: "JobPerformance"
    restart_cost_s: float | None


class MeasuredJobs:
    """The jobs that were measured; `restart_cost_s` gives the measured cost of a change by job."""

    def __init__(self, jobs: "Jobs", restart_cost_s: Callable[[str], float | None]) -> None:
        self._jobs = jobs
        self._restart_cost_s = restart_cost_s

    def ids(self) -> frozenset[str]:
        """Ids of all of them."""
        return self._jobs.ids()

    def of(self, job_id: str) -> MeasuredJob:
        """What was measured of one; NotFoundError when nothing was."""
        return MeasuredJob(performance=self._jobs.measured(job_id), restart_cost_s=self._restart_cost_s(job_id))


def filled_in(
    posted: ResolvedSnapshot, document: SnapshotDoc, policy: str, jobs: Mapping[str, MeasuredJob]
) -> MeasuredSnapshot:
    """Fill what was measured of `jobs` into a snapshot, posted as `document`, as far as a policy takes it."""
    changed: dict[int, JobDoc] = {}
    notes: list[Issue] = []
    planner, types = POLICIES[policy], frozenset(kind.name for kind in document.cluster.gpu_types)
    for k, job in enumerate(document.jobs):
        if job.id not in jobs:
            continue
        measured = jobs[job.id].performance
        found = {
            **_calibration(job, measured, planner),
            **_observations(job, measured.observations, planner, types),
            **_restart_cost(job, jobs[job.id].restart_cost_s, planner),
        }
        notes += [_note(k, job.id, name, measured) for name in found]
        if _takes_calibration(job, planner) and "calibration" not in found:
            notes += _why_not(k, job, measured)
        if found:
            changed[k] = job.model_copy(update=found | (_as_run(job, measured) if "calibration" in found else {}))
    if not changed:
        return MeasuredSnapshot(posted=posted, used=posted, notes=tuple(notes))
    filled = document.model_copy(update={"jobs": tuple(changed.get(k, job) for k, job in enumerate(document.jobs))})
    text = filled.model_dump_json()
    used = ResolvedSnapshot(snapshot=snapshot_from_document(filled), id=snapshot_id(text), text=text)
    return MeasuredSnapshot(posted=posted, used=used, notes=tuple(notes))


def _calibration(job: JobDoc, measured: "JobPerformance", policy: Policy) -> dict[str, Any]:
    calibration = measured.calibrated.calibration
    if calibration is None or not _takes_calibration(job, policy) or not _trains_the_same(job, measured):
        return {}
    return {"calibration": calibration_to_document(calibration)}


def _takes_calibration(job: JobDoc, policy: Policy) -> bool:
    """Whether the policy plans the job in three dimensions, and the request has no coefficients for that."""
    by_model = policy.takes_goodput and job.performance is None and _has_model(job)
    return job.calibration is None and (policy.plans_parallelism or by_model)


def _has_model(job: JobDoc) -> bool:
    return job.transformer is not None or job.operators is not None


def _observations(
    job: JobDoc, observations: GoodputObservations | None, policy: Policy, types: frozenset[str]
) -> dict[str, Any]:
    if not policy.takes_goodput or job.performance is not None or _has_model(job) or observations is None:
        return {}
    known = tuple(point for point in observations.observations if point.gpu_type in types)
    return {"performance": performance_to_document(replace(observations, observations=known))} if known else {}


def _restart_cost(job: JobDoc, cost_s: float | None, policy: Policy) -> dict[str, Any]:
    takes_it = policy.plans_parallelism or policy.takes_goodput
    return {"restart_cost_s": cost_s} if takes_it and cost_s and job.restart_cost_s == 0 else {}


def _trains_the_same(job: JobDoc, measured: "JobPerformance") -> bool:
    """Whether coefficients hold for the job: those of one way to train do not where that is left open."""
    document = job.transformer or job.operators
    if document is None:
        return False
    model, choices = open_model_from_document(document)
    if isinstance(model, Transformer) and measured.job.software is Software.NATIVE:
        model = run_by(model, EngineName.NATIVE)
    return not choices.are_open and same_costs(model, measured.job)


def _as_run(job: JobDoc, measured: "JobPerformance") -> dict[str, Any]:
    """A model that the native engine trained is planned for that: coefficients are beside the priors of a software."""
    if job.transformer is None or measured.job.software is not Software.NATIVE:
        return {}
    names = ("software", "sequence_parallel")
    return {"transformer": job.transformer.model_copy(update={name: getattr(measured.job, name) for name in names})}


def _note(k: int, job_id: str, name: str, measured: "JobPerformance") -> Issue:
    until = time_of(max(run.until_s or 0.0 for run in measured.runs)).isoformat(timespec="seconds")
    detail = f"is measured, last at {until}; give your own to plan without it, see {job_path(job_id)}/performance"
    return Issue(
        code="measured", pointer=pointer_of("snapshot", "jobs", k, name), detail=detail, severity=Severity.WARNING
    )


def _why_not(k: int, job: JobDoc, measured: "JobPerformance") -> list[Issue]:
    """Say why measurements that there are do not count."""
    if measured.calibrated.calibration is None or _trains_the_same(job, measured):
        return []
    detail = (
        f"measurements of job {job.id!r} are of another model, or of one way to train it; it is planned without them"
    )
    pointer = pointer_of("snapshot", "jobs", k, "calibration")
    return [Issue(code="measured_other_model", pointer=pointer, detail=detail, severity=Severity.WARNING)]
