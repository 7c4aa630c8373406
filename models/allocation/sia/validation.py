"""What can be wrong with a snapshot under the Sia policy. Light: imports no solver and no modelling layer.

More forced demand than there are GPUs is no fault of the input: the problem is then infeasible, and the solver says
which rows exclude each other.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from models.allocation.bounds import bound_issues
from models.allocation.degrees import degree_warnings
from models.allocation.job_configurations import reserved_configuration
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.work_left import remaining_samples, residual_s
from models.configurations import ConfigurationSet, enumerate_configurations
from models.performance.goodput.check import performance_issues
from models.performance.goodput.matrix import evaluate
from models.performance.goodput.sharing import shared_jobs, sharing_issues
from models.performance.goodput.spec import GoodputTable
from models.placement.occupancy import Occupancy, occupancy
from models.roll import roll_of, rows_that_say, some_say
from models.wording import counted
from models.workload import Adaptivity, Job, Reservation, Snapshot
from stowplan.arrays import Mask
from stowplan.errors import InputError, Issue, Severity
from stowplan.living import found_once
from topology.cluster import Cluster, NodeState


def policy_issues(snapshot: Snapshot, parameters: SiaParameters) -> list[Issue]:
    """Every error and warning of this snapshot under these parameters; pointers as in `snapshot_issues`."""
    return goodput_policy_issues(snapshot, parameters, "Sia")


def goodput_policy_issues(snapshot: Snapshot, parameters: SiaParameters, policy: str) -> list[Issue]:
    """What `policy_issues` says, of a policy that asks for what Sia asks for; `policy`: its name in sentences."""
    jobs, roll, taken = snapshot.jobs, roll_of(snapshot), occupancy(snapshot)
    configurations = enumerate_configurations(snapshot.cluster)
    gpu_types = frozenset(kind.name for kind in snapshot.cluster.gpu_types)
    shared = shared_jobs(snapshot)
    issues = list(sharing_issues(shared)) if shared is not jobs else []

    def issues_of(k: int) -> list[Issue]:
        return _job_issues(k, snapshot, parameters, taken, configurations, gpu_types, policy)

    is_faulty = roll.each(
        "is faulty",
        np.bool_,
        lambda rows: (bool(issues_of(k)) for k in rows),
        same=(snapshot.cluster,),
        equal=(policy, parameters.objective),
    )
    faults = {k: issues_of(k) for k in np.flatnonzero(is_faulty).tolist()}
    # Performance is asked only where it is known to be sound.
    asked = {
        k: reservation
        for k in rows_that_say(snapshot, "reservation")
        if not is_faulty[k]
        and (reservation := jobs[k].reservation)
        and jobs[k].performance
        and jobs[k].id not in taken.pinned
    }
    for k in _cannot_run({k: (shared[k], reservation) for k, reservation in asked.items()}, configurations):
        faults[k] = [_reservation_cannot_run(k, shared[k], asked[k])]
    takes_work = _takes_work(snapshot.cluster)
    for k in sorted(faults) if takes_work else range(len(jobs)):
        issues += faults.get(k, ())
        if not takes_work and jobs[k].id in taken.running:
            issues += _placement_warnings(f"/jobs/{k}", jobs[k], snapshot, taken)
    issues += [*_remaining_warnings(snapshot, parameters, policy), *_rank_warnings(snapshot)]
    return [*issues, *degree_warnings(snapshot, policy)]


@found_once
def _takes_work(cluster: Cluster) -> bool:
    """Whether every node takes work."""
    return all(node.state is NodeState.UP for node in cluster.nodes)


def _job_issues(
    k: int,
    snapshot: Snapshot,
    parameters: SiaParameters,
    taken: Occupancy,
    configurations: ConfigurationSet,
    gpu_types: frozenset[str],
    policy: str,
) -> list[Issue]:
    """Faults of job `k`, without what its performance says of its reservation."""
    job, pointer = snapshot.jobs[k], f"/jobs/{k}"
    faults = _kind_issues(pointer, job, parameters, policy, is_pinned=job.id in taken.pinned)
    if job.performance:
        faults += performance_issues(job.performance, f"{pointer}/performance", gpu_types)
    faults += bound_issues(pointer, job)
    if job.reservation is not None:
        faults += _reservation_issues(pointer, job, job.reservation, snapshot, taken, configurations)
    return faults


def _kind_issues(pointer: str, job: Job, parameters: SiaParameters, policy: str, *, is_pinned: bool) -> list[Issue]:
    """A performance that is missing, or of a kind that does not go with the objective."""
    has_costs = parameters.objective is SiaObjective.GIVEN_COSTS
    if job.performance is None and (job.model is None or has_costs):
        if is_pinned:
            return []
        return [
            Issue(
                code="missing_performance",
                pointer=f"{pointer}/performance",
                detail=f"job {job.id!r} has no performance; {policy} needs one, or a transformer or operators, for "
                "every job that it may place",
            )
        ]
    if has_costs and not isinstance(job.performance, GoodputTable):
        return [
            Issue(
                code="goodput_table_required",
                pointer=f"{pointer}/performance",
                detail=f"objective given_costs takes costs from goodput tables; job {job.id!r} has another kind",
            )
        ]
    return []


def _remaining_warnings(snapshot: Snapshot, parameters: SiaParameters, policy: str) -> Iterator[Issue]:
    """What is said of how much is left of jobs and is not used, or used and not said: once, at the first job."""
    jobs = snapshot.jobs
    if parameters.objective is not SiaObjective.COMPLETION_TIME:
        said = rows_that_say(snapshot, "remaining_iterations")
        if said:
            yield Issue(
                code="ignored_field",
                pointer=f"/jobs/{said[0]}/remaining_iterations",
                detail=f"is not used with the objective {parameters.objective}, and is given for "
                f"{counted(len(said), 'job')}; used with completion_time",
                severity=Severity.WARNING,
            )
        return
    lacks = roll_of(snapshot).each(
        "lacks work", np.bool_, lambda rows: (remaining_samples(jobs[k]) is None for k in rows)
    )
    unknown = np.flatnonzero(lacks).tolist()
    by_life = policy == "horizon"
    if by_life:
        unknown = [k for k in unknown if residual_s(jobs[k]) is None]
    if unknown:
        assumed = "as much as the median of the others"
        if len(unknown) == len(jobs):
            assumed = "the same, by weight"
            if by_life:
                assumed = "a second on one of its slowest GPUs, by weight, or what it has had, if that is more"
        yield Issue(
            code="remaining_unknown",
            pointer=f"/jobs/{unknown[0]}/remaining_iterations",
            detail=f"it is not known how much is left of {counted(len(unknown), 'job')}, taken to be "
            f"{assumed}; give remaining_iterations, with a performance or a model that has a batch"
            + (", or how long they last (lasting, remaining_s)" if by_life else ""),
            severity=Severity.WARNING,
        )


def _rank_warnings(snapshot: Snapshot) -> Iterator[Issue]:
    """Whose ranks may be told to swap GPUs although the job stays: once, at the first job."""
    if not some_say(snapshot, "transformer", "operators"):
        return
    jobs = snapshot.jobs

    def is_unknown(job: Job) -> bool:
        is_planned = job.model is not None and job.performance is None
        return is_planned and job.parallel_plan is None and sum(len(part.gpus) for part in job.current or ()) > 1

    lacks = roll_of(snapshot).each("lacks ranks", np.bool_, lambda rows: (is_unknown(jobs[k]) for k in rows))
    unknown = np.flatnonzero(lacks).tolist()
    if unknown:
        yield Issue(
            code="ranks_unknown",
            pointer=f"/jobs/{unknown[0]}/parallel_plan",
            detail=f"which ranks are on which GPUs is not known of {counted(len(unknown), 'running job')}, which may "
            "be given another plan or order where they are; give the plan that they run back as parallel_plan",
            severity=Severity.WARNING,
        )


def _reservation_issues(
    pointer: str,
    job: Job,
    reservation: Reservation,
    snapshot: Snapshot,
    taken: Occupancy,
    configurations: ConfigurationSet,
) -> Iterator[Issue]:
    """A reservation must be something that the job may be given at all."""
    where = f"{pointer}/reservation"
    if job.id in taken.pinned:
        slices = taken.running[job.id]
        kind = snapshot.cluster.nodes[slices[0][0]].gpu_type
        count = sum(mask.bit_count() for _, mask in slices)
        if (kind, count) != (reservation.gpu_type, reservation.num_gpus):
            yield Issue(
                code="reservation_of_pinned_job",
                pointer=where,
                detail=f"job {job.id!r} is not preemptible and keeps {counted(count, 'GPU')} of type {kind!r}; "
                f"the reservation asks for {reservation.num_gpus} of type {reservation.gpu_type!r}",
            )
        return
    if job.gpu_types is not None and reservation.gpu_type not in job.gpu_types:
        yield Issue(
            code="reservation_outside_bounds",
            pointer=f"{where}/gpu_type",
            detail=f"job {job.id!r} allows the GPU types {list(job.gpu_types)}, not {reservation.gpu_type!r}",
        )
    upper = job.min_gpus if job.adaptivity is Adaptivity.RIGID else job.max_gpus
    if reservation.num_gpus < job.min_gpus or (upper is not None and reservation.num_gpus > upper):
        yield Issue(
            code="reservation_outside_bounds",
            pointer=f"{where}/num_gpus",
            detail=f"job {job.id!r} reserves {counted(reservation.num_gpus, 'GPU')}; it takes at least {job.min_gpus}"
            + ("" if upper is None else f" and at most {upper}"),
        )
    yield from _configuration_issues(where, job, reservation, configurations)


def _configuration_issues(
    where: str, job: Job, reservation: Reservation, configurations: ConfigurationSet
) -> Iterator[Issue]:
    """The reserved count must be a configuration."""
    if reservation.gpu_type not in configurations.gpu_types:
        return
    counts = configurations.num_gpus[configurations.type_index == configurations.gpu_types.index(reservation.gpu_type)]
    if (counts == reservation.num_gpus).any():
        return
    valid = np.unique(counts)
    below, above = valid[valid < reservation.num_gpus], valid[valid > reservation.num_gpus]
    nearest = [*below[-1:].tolist(), *above[:1].tolist()]
    choices = f"the nearest counts are {' and '.join(map(str, nearest))}" if nearest else "all its nodes are down"
    yield Issue(
        code="reservation_is_no_configuration",
        pointer=f"{where}/num_gpus",
        detail=f"job {job.id!r} reserves {counted(reservation.num_gpus, 'GPU')} of type {reservation.gpu_type!r}, "
        f"which is no valid configuration; {choices}",
    )


def _cannot_run(reserving: Mapping[int, tuple[Job, Reservation]], configurations: ConfigurationSet) -> list[int]:
    """Which of the jobs, each of which reserves a configuration, have no goodput there."""
    if not reserving:
        return []
    reserved = np.array([reserved_configuration(wanted, configurations) for _, wanted in reserving.values()])
    used: Mask = np.asarray(reserved.any(axis=0))
    try:
        goodput = evaluate(
            [job for job, _ in reserving.values()], configurations.subset(used), reserved[:, used]
        ).goodput
    except InputError:
        # Magnitudes that overflow: found again for all jobs, with their pointers, when the request is planned.
        alone = ({k: job} for k, job in reserving.items())
        return [k for one in alone if len(reserving) > 1 for k in _cannot_run(one, configurations)]
    runs = ((goodput > 0) & reserved[:, used]).any(axis=1)
    return [k for k, can_run in zip(reserving, runs.tolist(), strict=True) if not can_run]


def _reservation_cannot_run(k: int, job: Job, reservation: Reservation) -> Issue:
    return Issue(
        code="reservation_cannot_run",
        pointer=f"/jobs/{k}/reservation",
        detail=f"the performance of job {job.id!r} gives no goodput on {counted(reservation.num_gpus, 'GPU')} of type "
        f"{reservation.gpu_type!r}",
    )


def _placement_warnings(pointer: str, job: Job, snapshot: Snapshot, taken: Occupancy) -> Iterator[Issue]:
    """What the plan will do that may surprise."""
    nodes = snapshot.cluster.nodes
    drained = [nodes[node].id for node, _ in taken.running[job.id] if nodes[node].state is NodeState.DRAINED]
    if drained:
        stays = job.id in taken.pinned
        yield Issue(
            code="runs_on_drained_node",
            pointer=f"{pointer}/current",
            detail=f"job {job.id!r} runs on drained nodes {drained}; "
            + ("it is not preemptible and stays" if stays else "it has to leave them"),
            severity=Severity.WARNING,
        )
