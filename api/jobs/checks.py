"""What can be wrong with measurements of a running job beyond the form of their document; pointers into the body."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from api.convert.job_model import transformer_from_document
from api.convert.located import located
from api.convert.parallel_plan import plan_from_document
from api.convert.snapshot import cluster_from_document
from api.schemas.metrics import MeasuredRunDoc, StepRecordDoc, WholeStepDoc
from executor.training_options import Device
from models.parallel_plan import ParallelPlan
from models.parallelism.legality import plan_violations
from models.performance.iteration.model_issues import model_issues
from models.performance.iteration.modelling import performance_model
from models.performance.iteration.step_measurements import rank_places
from models.transformer import Transformer
from stowplan.errors import Issue, pointer_of, raise_for_errors
from topology.cluster import Cluster

# How far clocks of hosts may be apart.
CLOCK_TOLERANCE_S = 300.0
# Parts of a step are timed one after another; rounding and the timing itself may make them a little longer than it.
_PARTS_OVER_STEP = 1.2
_SLACK_S = 0.01
_PARTS = ("forward_s", "backward_s", "send_s", "receive_s", "load_s", "reduction_s", "optimizer_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a launch runs; `places`: (stage, replica, shard) of every rank. `own_program`: of the user, who knows whole
    steps only."""

    launch: int
    device: Device
    job: Transformer
    plan: ParallelPlan
    cluster: Cluster
    places: tuple[tuple[int, int, int], ...]
    own_program: bool


def run_from_document(document: MeasuredRunDoc) -> Run:
    """Build what a launch runs.

    Raises
    ------
    InputError
        When the plan is not one of this model on this cluster; pointers are relative to the document. What the plan
        is said to need of memory is not held against it: it runs.
    """
    job = transformer_from_document(document.transformer)
    raise_for_errors(list(model_issues(job, "/transformer")), "measured run")
    with located("/plan"):
        plan = plan_from_document(document.plan)
    with located("/cluster"):
        cluster = cluster_from_document(document.cluster)
    gpus = {node.id: (node.gpu_type, frozenset(range(node.num_gpus))) for node in cluster.nodes}
    violations = plan_violations(plan, performance_model(job, cluster), gpus)
    issues = [replace(issue, pointer="/plan" + issue.pointer) for issue in violations if issue.code != "out_of_memory"]
    if (degree := plan.context_parallel) > 1 and not document.own_program:
        detail = f"is {degree}; steps are measured of plans whose replicas share no sequences: 1"
        issues.append(Issue(code="context_parallel", pointer="/plan/context_parallel", detail=detail))
    raise_for_errors(issues, "measured run")
    return Run(
        launch=document.launch,
        device=document.device,
        job=job,
        plan=plan,
        cluster=cluster,
        places=tuple(rank_places(plan)),
        own_program=document.own_program,
    )


def step_issues(steps: Sequence[WholeStepDoc], runs: Mapping[int, Run], now_s: float) -> Iterator[Issue]:
    """Yield every fault of steps of programs of users; arguments as of `record_issues`."""
    for k, step in enumerate(steps):
        run = runs.get(step.launch)
        if run is None:
            yield _unknown_launch("steps", k, step.launch)
        elif not run.own_program:
            detail = f"launch {step.launch} is one of the trainer, which measures parts of steps: send `records`"
            yield _issue("other_program", k, "launch", detail, table="steps")
        yield from _time_issues(k, step, now_s, table="steps")


def record_issues(records: Sequence[StepRecordDoc], runs: Mapping[int, Run], now_s: float) -> Iterator[Issue]:
    """Yield every fault of the records.

    Parameters
    ----------
    runs
        Launches that are known, those of the body included.
    now_s
        Unix time of the service.
    """
    for k, record in enumerate(records):
        run = runs.get(record.launch)
        if run is None:
            yield _unknown_launch("records", k, record.launch)
        elif run.own_program:
            detail = f"launch {record.launch} is one of a program of your own (`own_program`): send `steps`"
            yield _issue("other_program", k, "launch", detail)
        else:
            yield from _foreign_values(k, record, run)
        yield from _time_issues(k, record, now_s)
        parts_s = sum(getattr(record, part) for part in _PARTS)
        if parts_s > _PARTS_OVER_STEP * record.step_s + _SLACK_S:
            detail = f"is {record.step_s}; the parts of the step add up to {parts_s:.6g} s"
            yield _issue("parts_exceed_step", k, "step_s", detail)


def _foreign_values(k: int, record: StepRecordDoc, run: Run) -> Iterator[Issue]:
    """Values that a rank of this plan cannot have."""
    if record.rank >= len(run.places):
        detail = f"is {record.rank}; the plan has ranks 0 to {len(run.places) - 1}"
        yield _issue("other_plan", k, "rank", detail)
        return
    plan = run.plan
    pipe, data, tensor = run.places[record.rank]
    expected = {
        "pipe": pipe,
        "data": data,
        "tensor": tensor,
        "num_micro_batches": plan.num_micro_batches,
        "large_batch": plan.global_batch,
        "tokens": plan.global_batch * run.job.sequence_length,
    }
    if plan.is_symmetric and not (plan.num_gpus == 1 and record.small_batch == plan.micro_batch):
        expected["small_batch"] = plan.global_batch // plan.stages[0].dp
    for name, value in expected.items():
        if getattr(record, name) != value:
            detail = f"is {getattr(record, name)}; with the plan of the launch, rank {record.rank} has {value}"
            yield _issue("other_plan", k, name, detail)


def _unknown_launch(table: str, k: int, launch: int) -> Issue:
    detail = f"launch {launch} is not known; send `run` with its first {table}"
    return _issue("unknown_launch", k, "launch", detail, table=table)


def _time_issues(
    k: int, record: StepRecordDoc | WholeStepDoc, now_s: float, *, table: str = "records"
) -> Iterator[Issue]:
    clock = f"the service's clock says {_text(now_s)} ({now_s:.0f})"
    if record.launch / 1e3 > now_s + CLOCK_TOLERANCE_S:
        detail = f"is {_text(record.launch / 1e3)}, in the future: {clock}"
        yield _issue("in_the_future", k, "launch", detail, table=table)
    elif record.started_at_s + record.step_s > now_s + CLOCK_TOLERANCE_S:
        ended = _text(record.started_at_s + record.step_s)
        yield _issue("in_the_future", k, "started_at_s", f"the step ends {ended}, in the future: {clock}", table=table)
    elif record.started_at_s < record.launch / 1e3 - CLOCK_TOLERANCE_S:
        began = _text(record.launch / 1e3)
        detail = f"is {_text(record.started_at_s)}, before the launch began at {began}; give seconds since 1970"
        yield _issue("before_launch", k, "started_at_s", detail, table=table)


def _text(unix_s: float) -> str:
    """The time in UTC; times beyond the calendar as they are."""
    try:
        return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        return f"{unix_s:.0f} s after 1970"


def _issue(code: str, k: int, name: str, detail: str, *, table: str = "records") -> Issue:
    return Issue(code=code, pointer=pointer_of(table, k, name), detail=detail)
