"""A job with all that it takes to deploy it, and the deployment that follows from what a plan gives it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import get_args

from executor.deployable import Candidate, deployable_plan, refuse_model
from executor.deployment import Deployment, LaunchOptions, TrainingOptions, batched, deployment_name
from executor.progress import ScalingRule
from executor.records import write_record
from executor.training_options import Schedule
from models.parallel_plan import ParallelPlan, symmetric_plan
from models.parallelism.micro_batches import micro_batch_counts
from models.parallelism.training import trained
from models.performance.goodput.batch import equal_share
from models.performance.goodput.spec import GoodputModel, GoodputObservations, Performance
from models.performance.iteration.modelling import performance_model
from models.plan import JobAllocation
from models.transformer import Transformer
from models.wording import counted
from models.workload import Job, Parallelism
from stowplan.errors import InputError, Issue, raise_for_errors
from stowplan.records import FieldReader, Reading
from topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job as policies know it, how it is trained, and how its ranks are started.

    `job.transformer` is what it trains, with its batch; it is planned and predicted as the software that it names,
    whatever engine runs it. `training.num_steps` says how long. Where a policy plans no 3D parallelism,
    `job.parallelism` has the tensor and pipeline degrees, which stay (None: 1), and replicas fill the GPUs. An elastic
    job trains with the batch that Sia chooses, where `training.schedule` says how its learning rate follows that: its
    initial batch is that of the model and of the job's performance.
    Jobs of which ranks 0 may meet on one host need ports that are ten apart (`launch.master_port`).

    Raises
    ------
    InputError
        When the job could not be deployed whatever a plan gives it.
    """

    job: Job
    training: TrainingOptions = field(default_factory=TrainingOptions)
    launch: LaunchOptions = field(default_factory=LaunchOptions)

    def __post_init__(self) -> None:
        raise_for_errors(list(_lacks(self)), f"job {self.job.id!r}")
        refuse_model(self.model, self.training.engine)
        # On one GPU all of the batch is one replica's: what is wrong then is wrong with the training.
        alone = symmetric_plan(
            num_layers=self.model.num_layers,
            pp=1,
            dp=1,
            tp=1,
            global_batch=self.model.global_batch,
            num_micro_batches=self.model.global_batch,
            gpu_type="any",
            gpus=(("any", 0),),
        )
        self.with_plan(alone)

    @property
    def model(self) -> Transformer:
        """What the job trains."""
        if self.job.transformer is None:
            raise AssertionError(f"job {self.job.id!r} was taken without a model")
        return self.job.transformer

    def model_of(self, plan: ParallelPlan) -> Transformer:
        """The model as a plan trains it."""
        model = trained(batched(self.model, plan, self.training.schedule), plan.training)
        assert isinstance(model, Transformer)  # noqa: S101 - it stays what it is
        return model

    @property
    def name(self) -> str:
        """Of its deployment."""
        return deployment_name(self.job.id)

    def with_plan(self, plan: ParallelPlan) -> Deployment:
        """The deployment of a plan; InputError where the trainer cannot run it."""
        return Deployment(
            name=self.name, model=self.model_of(plan), plan=plan, training=self.training, launch=self.launch
        )


def _lacks(submission: Submission) -> Iterable[Issue]:
    if submission.job.transformer is None:
        detail = "is missing; a job is deployed by the model that it trains, a table or operators cannot be"
        yield Issue(code="missing_field", pointer="/job/transformer", detail=detail)
    else:
        yield from _batch_faults(submission.job, submission.training.schedule)
    if submission.launch.spares:
        detail = "must be left out: the controller says which nodes a job gets"
        yield Issue(code="spares", pointer="/launch/spares", detail=detail)


def _batch_faults(job: Job, schedule: Schedule) -> Iterator[Issue]:
    """What does not go together of the batches that a job may have, and how it trains with them."""
    if schedule.scaling is ScalingRule.NONE or job.transformer is None:
        return
    initial, batch = schedule.initial_batch, job.transformer.global_batch
    if initial != batch:
        detail = f"is {initial}, the model's global batch {batch}; a job begins with its initial batch"
        yield Issue(code="initial_batch", pointer="/training/schedule/initial_batch", detail=detail)
    if job.parallelism is not None and job.parallelism.tp * job.parallelism.pp > 1:
        detail = f"is TP{job.parallelism.tp} PP{job.parallelism.pp}; a batch that Sia chooses is of replicas of one GPU"
        yield Issue(code="scaling", pointer="/job/parallelism", detail=detail)
    if isinstance(job.performance, GoodputModel | GoodputObservations):
        yield from _range_faults(job.performance, batch)


def _range_faults(performance: GoodputModel | GoodputObservations, batch: int) -> Iterator[Issue]:
    allowed, profiles = performance.batch, getattr(performance, "profiles", {})
    if allowed.initial != batch:
        detail = f"is {allowed.initial}; the model's global batch, with which the training begins, is {batch}"
        yield Issue(code="initial_batch", pointer="/job/performance/batch/initial", detail=detail)
    least = min((profile.min_local_batch for profile in profiles.values()), default=1)
    if least > allowed.maximum:
        detail = f"is {allowed.maximum}; one GPU works on {least} sequences at least (min_local_batch of all profiles)"
        yield Issue(code="no_batch", pointer="/job/performance/batch/maximum", detail=detail)


def deployment_of(submission: Submission, allocation: JobAllocation, cluster: Cluster) -> Deployment:
    """Give the deployment that a plan asks for: its 3D plan, or the nearest one that the trainer can run, or where it
    has none that of the job's degrees on its GPUs.

    Raises
    ------
    InputError
        When there is no such plan, or it does not fit the model or the memory of the GPUs.
    """
    planned = allocation.parallel_plan or _filled(submission, allocation, cluster)
    candidate = Candidate(
        plan=planned,
        model=submission.model_of(planned),
        cluster=cluster,
        calibration=submission.job.calibration,
        engine=submission.training.engine,
    )
    plan, _ = deployable_plan(candidate, may_project=True, ignore_memory=False)
    return submission.with_plan(plan)


def _filled(submission: Submission, allocation: JobAllocation, cluster: Cluster) -> ParallelPlan:
    """The job's tensor and pipeline degrees with as many replicas as the GPUs hold, and the first number of
    micro-batches that fits their memory (else the first)."""
    job, batch = submission.job, submission.model.global_batch
    if submission.training.schedule.scaling is not ScalingRule.NONE and allocation.batch_size is not None:
        return _data_parallel(submission, allocation, cluster)
    degrees = job.parallelism or Parallelism(tp=1, pp=1, dp=1)
    whose = f"job {job.id!r} gets {counted(allocation.num_gpus, 'GPU')}"
    if job.choices.are_open:
        raise InputError(f"{whose}, and no plan that says how it trains; say which checkpointing and zero_stage")
    dp, left = divmod(allocation.num_gpus, degrees.tp * degrees.pp)
    if left or not dp:
        raise InputError(f"{whose}; TP{degrees.tp} PP{degrees.pp} needs a multiple of {degrees.tp * degrees.pp}")
    if allocation.batch_size not in (None, batch):
        raise InputError(
            f"{whose} and a batch of {allocation.batch_size}; the trainer keeps the model's of {batch}: say in "
            "training.schedule.scaling how the learning rate follows the batch, or give the job adaptivity "
            "strong_scaling or rigid"
        )
    performance = performance_model(submission.model, cluster, job.calibration)
    planned = () if allocation.accumulation_steps is None else (allocation.accumulation_steps,)
    counts = [*planned, *micro_batch_counts(performance.profile, degrees.pp, (dp,))]
    plans = [
        symmetric_plan(
            num_layers=submission.model.num_layers,
            pp=degrees.pp,
            dp=dp,
            tp=degrees.tp,
            global_batch=batch,
            num_micro_batches=count,
            gpu_type=allocation.gpu_type,
            gpus=tuple((part.node, gpu) for part in allocation.gpus for gpu in part.gpus),
        )
        for count in counts
        if batch % (count * dp) == 0
    ]
    if not plans:
        raise InputError(f"{whose}; a batch of {batch} does not divide over {counted(dp, 'replica')}")
    return next((plan for plan in plans if performance.fits(plan)), plans[0])


def _data_parallel(submission: Submission, allocation: JobAllocation, cluster: Cluster) -> ParallelPlan:
    """Replicas of one GPU with the batch that was chosen, in as many micro-batches (more, where these do not fit the
    memory)."""
    replicas, wanted = allocation.num_gpus, allocation.batch_size or 0
    planned = allocation.accumulation_steps or 1
    share = equal_share(wanted, replicas, planned) * planned
    if not share:
        raise InputError(
            f"job {submission.job.id!r} gets a batch of {wanted} in {counted(planned, 'micro-batch')} on "
            f"{counted(replicas, 'GPU')}: none has a sequence in each; a larger batch, or fewer GPUs: max_gpus",
            [Issue(code="no_batch", pointer="/job/performance/batch", detail=f"{wanted} sequences leave a GPU idle")],
        )
    plans = [
        symmetric_plan(
            num_layers=submission.model.num_layers,
            pp=1,
            dp=replicas,
            tp=1,
            global_batch=share * replicas,
            num_micro_batches=count,
            gpu_type=allocation.gpu_type,
            gpus=tuple((part.node, gpu) for part in allocation.gpus for gpu in part.gpus),
        )
        for count in range(planned, share + 1)
        if share % count == 0
    ]
    performance = performance_model(submission.model_of(plans[0]), cluster, submission.job.calibration)
    return next((plan for plan in plans if performance.fits(plan)), plans[0])


def write_submission(submission: Submission, path: Path) -> None:
    """Write what `read_submission` reads; InputError where that is impossible."""
    try:
        write_record(submission, path)
    except ValueError as error:
        raise InputError(f"job {submission.job.id!r} cannot be kept as JSON: {error}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def read_submission(path: Path) -> Submission:
    """Read a submission; InputError, which names the file, where it is none."""
    reading = Reading(_SPECIAL)
    try:
        submission = reading.record(Submission, json.loads(path.read_text(encoding="utf-8")), "")
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as a submission: {error}") from error
    raise_for_errors(reading.issues, f"{path}: submission")
    read: Submission = submission
    return read


def _performance(reading: Reading, value: object, pointer: str) -> Performance | None:
    """The kind whose fields they are."""
    if value is None:
        return None
    names = set(value) if isinstance(value, dict) else set()
    kinds = {frozenset(f.name for f in fields(kind)): kind for kind in get_args(Performance)}
    kind = kinds.get(frozenset(names))
    if kind is None:
        reading.fault("unknown_value", pointer, f"has the fields {sorted(names)}; no kind of performance has these")
        return None
    read: Performance | None = reading.record(kind, value, pointer)
    return read


_SPECIAL: Mapping[tuple[type, str], FieldReader] = {(Job, "performance"): _performance}
