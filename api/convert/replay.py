"""From the body of replays to what is replayed."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

from api.common.settings import Settings
from api.convert.application import profiles_from_documents
from api.convert.located import located
from api.convert.replay_calendar import replay_calendar, reserved_jobs
from api.schemas.calendar import CalendarEntryDoc, CalendarReference
from api.schemas.replay import ReplayBody, ReplayPolicyDoc, TraceDoc
from executor.control.events import CalendarChange
from executor.control.options import ControlOptions, usual_options
from executor.simulation.known import Known
from executor.simulation.setup import ReplaySetup, covered_trace, covering
from executor.simulation.truth import TruthParameters
from models.catalogue import find_model
from models.policies import POLICIES
from models.policy import Parameters
from models.validation import request_issues
from models.workload import Snapshot
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors
from stowplan.records import to_document
from topology.cluster import Cluster
from workloads.generators.failures import FailureParameters
from workloads.throughputs import Throughput, repeated
from workloads.trace import Trace, TraceJob

_REMEDIES = {
    Known.TABLE: "give `throughputs`, and jobs with `application`, `global_batch` and `iterations`",
    Known.MODELS: "set `modelled`, and give jobs a model of the catalogue as `application`, and `global_batch`",
}
_MAX_FAILURES = 1_000_000
# Of a job of the trace what the trace itself does not know.
_BELONGS = "calendar_entry"
_TRUTH = (
    *("start_s", "restart_s", "delay_per_gpu_s", "checkpoint_s", "elasticity", "estimates", "noise"),
    *("profiling", "shared_models"),
)


def replay_setups(
    body: ReplayBody, cluster: Cluster, settings: Settings, entries: Sequence[CalendarEntryDoc] = ()
) -> tuple[ReplaySetup, ...]:
    """What is replayed: every policy with every seed, in this order; `entries` are those of the calendar.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the body.
    """
    # Before all else: policies are compared with one another, which so many would take long for.
    raise_for_errors(list(_limit_issues(body, settings)), "request")
    issues: list[Issue] = []
    throughputs = None if body.throughputs is None else tuple(Throughput(**vars(row)) for row in body.throughputs)
    issues += [
        _repeated(pointer_of("throughputs", k), "says again what an earlier row says; give it once")
        for k in repeated(throughputs or ())
    ]
    first_at = {seed: k for k, seed in reversed(list(enumerate(body.seeds)))}
    issues += [
        _repeated(pointer_of("seeds", k), f"{seed} is listed before; list it once")
        for k, seed in enumerate(body.seeds)
        if first_at[seed] != k
    ]
    issues += _failure_issues(body, cluster)
    issues += _speed_issues(body)
    profiles = None
    if body.applications is not None:
        with _collected(issues), located("/applications"):
            profiles = profiles_from_documents(body.applications)
    known = _known(body)
    # There are no jobs yet: what is wrong with a policy now is wrong with its parameters.
    empty = Snapshot(cluster=cluster, jobs=())
    chosen: dict[str, Parameters] = {}
    for k, policy in enumerate(body.policies):
        with _collected(issues), located(pointer_of("policies", k)):
            parameters = _parameters(policy, known, empty)
            # Parameters of different policies may be equal in all but their type.
            key = policy.policy + json.dumps(to_document(parameters), sort_keys=True)
            if chosen.setdefault(key, parameters) is not parameters:
                raise InputError("", [_repeated("", "is listed before with the same parameters; list it once")])
    with _collected(issues), located("/trace"):
        trace = _trace(body.trace)
    calendars: tuple[CalendarChange, ...] = ()
    reserved: dict[str, str] = {}
    with _collected(issues):
        named = body.calendar.cluster if isinstance(body.calendar, CalendarReference) else None
        known_s, horizon_s = body.calendar_known_s, body.horizon_s
        calendars = replay_calendar(
            entries, cluster, body.trace.origin_s, known_s=known_s, horizon_s=horizon_s, name=named
        )
        reserved = reserved_jobs(_reserved(body.trace), calendars)
    raise_for_errors(issues, "request")
    common: dict[str, Any] = {
        "cluster": cluster,
        "trace": trace,
        "throughputs": throughputs,
        "profiles": profiles,
        "modelled": body.modelled,
        "truth": TruthParameters(**{name: getattr(body, name) for name in _TRUTH}),
        "failures": None if body.failures is None else FailureParameters(**vars(body.failures)),
        "horizon_s": body.horizon_s,
        "calendars": calendars,
        "reserved_for": reserved,
    }
    return tuple(
        ReplaySetup(
            **common,
            control=ControlOptions(
                parameters=parameters,
                round_s=body.round_s,
                settle=body.settle,
                charge=body.charge,
                options=usual_options(parameters),
            ),
            seed=seed,
        )
        for parameters, seed in product(chosen.values(), body.seeds)
    )


def num_replayed(setup: ReplaySetup) -> int:
    """How many jobs of the trace can be replayed; InputError when there are none.

    Of modelled jobs it is how many say enough: whether there is a plan for one takes long to find out, and is left to
    the replay.
    """
    if setup.modelled:
        num_told = sum(_is_told(job) for job in setup.trace.jobs)
        if num_told:
            return num_told
        what = f"none of the {len(setup.trace.jobs):,} jobs of {setup.trace.name!r}"
        detail = f"{what} has GPUs, a model, a global batch, and iterations or a duration"
        raise InputError(detail, [Issue(code="nothing_replayed", pointer="/trace/jobs", detail=detail)])
    try:
        return len(covered_trace(setup, covering(setup)).jobs)
    except InputError as error:
        issue = Issue(code="nothing_replayed", pointer="/trace/jobs", detail=error.detail)
        raise InputError(error.detail, [issue]) from error


def _limit_issues(body: ReplayBody, settings: Settings) -> Iterator[Issue]:
    """What is above the limits of the service."""
    num_jobs, num_replays = len(body.trace.jobs), len(body.policies) * len(body.seeds)
    asked = (
        ("time_limit_s", f"is {body.time_limit_s}", body.time_limit_s or 0.0, settings.max_replay_time_limit_s),
        ("trace/jobs", f"has {num_jobs} jobs", num_jobs, settings.max_replay_jobs),
        ("policies", f"times seeds are {num_replays} replays", num_replays, settings.max_replays),
    )
    for name, what, value, limit in asked:
        if value > limit:
            detail = f"{what}; this service allows at most {limit}"
            yield Issue(code="out_of_range", pointer=f"/{name}", detail=detail)


def _failure_issues(body: ReplayBody, cluster: Cluster) -> Iterator[Issue]:
    """What is wrong with failures of nodes: all are drawn before a replay begins."""
    if body.failures is None:
        return
    if body.horizon_s is None:
        detail = "is missing; failures of nodes are drawn until a horizon"
        yield Issue(code="missing_field", pointer="/horizon_s", detail=detail)
        return
    expected = len(cluster.nodes) * body.horizon_s / (body.failures.mtbf_s + body.failures.repair_s)
    if expected > _MAX_FAILURES:
        detail = f"makes some {expected:.3g} failures until the horizon; at most {_MAX_FAILURES:,} are drawn"
        yield Issue(code="out_of_range", pointer="/failures/mtbf_s", detail=detail)


def _known(body: ReplayBody) -> Known:
    """What the request says of how fast jobs are."""
    if body.modelled:
        return Known.MODELS
    if body.applications is not None:
        return Known.FOLDER
    return Known.NOTHING if body.throughputs is None else Known.TABLE


def _speed_issues(body: ReplayBody) -> Iterator[Issue]:
    """What is wrong with what is said of how fast jobs are; an unknown model once, however many jobs train it."""
    said = {"throughputs": body.throughputs, "applications": body.applications, "modelled": body.modelled or None}
    given = [name for name, value in said.items() if value is not None]
    if len(given) > 1:
        listed = " and ".join(f"`{name}`" for name in given)
        detail = f"each say how fast jobs are: {listed}; give one of them"
        yield Issue(code="invalid_entry", pointer=f"/{given[-1]}", detail=detail)
    if not body.modelled:
        return
    first: dict[str, int] = {}
    for k, job in enumerate(body.trace.jobs):
        if job.application is not None:
            first.setdefault(job.application, k)
    for application, k in first.items():
        try:
            find_model(application, global_batch=1)
        except InputError as error:
            yield Issue(
                code="unknown_model", pointer=pointer_of("trace", "jobs", k, "application"), detail=error.detail
            )


def _is_told(job: TraceJob) -> bool:
    """Whether a modelled job may be replayed, as far as it says itself."""
    return bool(job.num_gpus and job.application and job.global_batch and (job.iterations or job.duration_s))


def _parameters(document: ReplayPolicyDoc, known: Known, empty: Snapshot) -> Parameters:
    """Parameters of a policy that can be replayed on the cluster of a snapshot; pointers relative to the document."""
    policy = POLICIES[document.policy]
    refusal = known.refusal(policy, _REMEDIES)
    if refusal is not None:
        raise InputError(refusal, [Issue(code="policy_not_replayed", pointer="/policy", detail=refusal)])
    with located("/parameters"):
        parameters = document.parameters.parameters_for(policy)
    issues = request_issues(empty, parameters)
    raise_for_errors([issue for issue in issues if issue.pointer.startswith("/parameters")], "policy")
    return parameters


def _trace(document: TraceDoc) -> Trace:
    """The trace; pointers relative to its document."""
    issues: list[Issue] = []
    jobs: list[TraceJob] = []
    for k, job in enumerate(document.jobs):
        with _collected(issues), located(pointer_of("jobs", k)):
            jobs.append(TraceJob(**{name: value for name, value in vars(job).items() if name != _BELONGS}))
    raise_for_errors(issues, "trace")
    return Trace(name=document.name, jobs=tuple(jobs), origin_s=document.origin_s)


def _reserved(document: TraceDoc) -> dict[str, tuple[str, str]]:
    """Job -> its reservation, and where that is said."""
    return {
        job.id: (job.calendar_entry, pointer_of("trace", "jobs", k, _BELONGS))
        for k, job in enumerate(document.jobs)
        if job.calendar_entry is not None
    }


def _repeated(pointer: str, detail: str) -> Issue:
    return Issue(code="listed_twice", pointer=pointer, detail=detail)


@contextmanager
def _collected(issues: list[Issue]) -> Iterator[None]:
    """Add what is wrong to `issues`, and go on."""
    try:
        yield
    except InputError as error:
        issues += error.issues
