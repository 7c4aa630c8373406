"""From the body of a request for 3D-parallel plans to what the planners take."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from api.common.settings import Settings
from api.convert.job_model import calibration_from_document, open_model_from_document
from api.convert.located import located
from api.convert.parallel_plan import plan_from_document, slices_from_map
from api.convert.snapshot import cluster_from_document
from api.schemas.parallel import ParallelOptionsDoc, ParallelPlanBody
from models.parallel_plan import Gpu
from models.parallelism.grid.options import GridOptions
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.offers import exact_offers, refuse_taken
from models.parallelism.request import Degrees, MeasuredPlan, Offer, ParallelRequest, Planner
from models.parallelism.training import trained
from models.parallelism.wanted import NamedTypes, WantedGpus, free_offers, wanted_offers
from models.performance.iteration.model_issues import model_issues
from models.performance.iteration.plausibility import calibration_warnings, peak_warnings
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors
from topology.cluster import Cluster, GpuType

_INCREMENTAL = ("running", "released", "cluster")


def parallel_request(body: ParallelPlanBody) -> ParallelRequest:
    """Turn a body into a request.

    Raises
    ------
    InputError
        With one issue per fault; pointers are relative to the body.
    """
    model, choices = open_model_from_document(body.job)
    planner = _planner(body)
    raise_for_errors(
        [
            *model_issues(model, "/job"),
            *_combination_issues(body, planner),
            *_open_issues(body, planner, is_open=choices.are_open),
        ],
        "request",
    )
    with located("/cluster"):
        cluster = None if body.cluster is None else cluster_from_document(body.cluster)
    kinds = cluster.gpu_types if cluster is not None else tuple(GpuType(**vars(kind)) for kind in body.gpu_types)
    types = NamedTypes(
        own={kind.name: kind for kind in kinds}, precision=model.precision.value, is_cluster=cluster is not None
    )
    issues: list[Issue] = []
    with located("/calibration"):
        calibration = None if body.calibration is None else calibration_from_document(body.calibration)
    with located("/running"):
        running = None if body.running is None else plan_from_document(body.running)
    request = ParallelRequest(
        model=model if running is None else trained(model, running.training),
        choices=choices,
        planner=planner,
        offers=() if planner is Planner.INCREMENTAL else _offers(body, cluster, types, issues),
        cluster=cluster,
        degrees=None if body.degrees is None else Degrees(**vars(body.degrees)),
        running=running,
        released=_released(body, cluster),
        measured=tuple(_measured(body, types, issues)),
        calibration=calibration,
        num_tokens=body.num_tokens,
        grid=_grid_options(body.options),
        incremental=IncrementalOptions(**vars(body.options.incremental)),
    )
    request = replace(request, warnings=tuple(_warnings(request, kinds)))
    raise_for_errors(issues, "request")
    return request


def time_limit_s(options: ParallelOptionsDoc, settings: Settings) -> float:
    """Time that planning may take.

    Raises
    ------
    InputError
        When more is asked for than this service allows.
    """
    limit_s = settings.time_limit_s if options.time_limit_s is None else options.time_limit_s
    if limit_s > settings.max_time_limit_s:
        detail = f"is {limit_s}; this service allows at most {settings.max_time_limit_s}"
        raise InputError("the request has 1 error", [_issue("out_of_range", "/options/time_limit_s", detail)])
    return limit_s


@contextmanager
def in_body(body: ParallelPlanBody) -> Iterator[None]:
    """Point from the body where the planners point to their offers.

    Raises
    ------
    InputError
        With the new pointers.
    """
    try:
        yield
    except InputError as error:
        raise InputError(
            error.detail, [replace(i, pointer=_body_pointer(body, i.pointer)) for i in error.issues]
        ) from error


def _body_pointer(body: ParallelPlanBody, pointer: str) -> str:
    if not pointer.startswith("/offers"):
        return pointer
    if body.gpus:
        return pointer.replace("/offers", "/gpus", 1)
    return "/placement" if body.placement is not None else "/cluster"


def _planner(body: ParallelPlanBody) -> Planner:
    """The planner that is asked for, or the one that the request brings the data for."""
    if body.options.planner is not None:
        return body.options.planner
    if body.running is not None or body.released is not None:
        return Planner.INCREMENTAL
    return Planner.GIVEN if body.degrees is not None else Planner.GRID


def _combination_issues(body: ParallelPlanBody, planner: Planner) -> Iterator[Issue]:
    """Parts that are missing, or have no meaning beside others."""
    if planner is Planner.INCREMENTAL:
        for name in _INCREMENTAL:
            if getattr(body, name) is None:
                yield _issue(
                    "missing_field",
                    f"/{name}",
                    "is missing; a running job is grown with a cluster, the running plan and the released GPUs",
                )
        extra = ("gpus", "placement", "degrees")
    else:
        if not body.gpus and body.cluster is None:
            yield _issue("one_of", "/gpus", "say which GPUs the job may get: gpus by type and count, or a cluster")
        if planner is Planner.GIVEN and body.degrees is None:
            yield _issue("missing_field", "/degrees", "is missing; the planner `given` evaluates these degrees")
        extra = ("running", "released", *(("degrees",) if planner is not Planner.GIVEN else ()))
    for name in extra:
        if getattr(body, name):
            yield _issue("one_of", f"/{name}", f"has no meaning for the planner {planner.value}; leave it out")
    if body.placement is not None and (body.cluster is None or body.gpus):
        yield _issue("one_of", "/placement", "names GPUs of a cluster: give the cluster with it, and no gpus")
    if body.cluster is not None and body.gpu_types:
        yield _issue("one_of", "/gpu_types", "the cluster has its own GPU types; leave these out")


def _open_issues(body: ParallelPlanBody, planner: Planner, *, is_open: bool) -> Iterator[Issue]:
    """What no planner chooses from, or was measured of one way to train."""
    for name in ("virtual_stages", "context_parallel", "expert_parallel"):
        if body.running is not None and (degree := getattr(body.running, name)) > 1:
            detail = f"is {degree}; the incremental planner knows whole stages, whose replicas share nothing: 1"
            yield _issue(name, f"/running/{name}", detail)
    for i, stage in enumerate(() if body.running is None else body.running.stages):
        if stage.checkpointing is not None:
            detail = "is of one stage; the incremental planner knows stages that recompute alike only: leave it out"
            yield _issue("checkpointing", pointer_of("running", "stages", i, "checkpointing"), detail)
    if not is_open:
        return
    if planner is Planner.INCREMENTAL:
        yield _issue("one_of", "/running", "trains in one way; say which checkpointing and zero_stage in place of auto")
    for name in ("measurements", "calibration"):
        if getattr(body, name):
            detail = "is of one way to train; say which checkpointing and zero_stage in place of auto"
            yield _issue("one_of", f"/{name}", detail)


def _offers(
    body: ParallelPlanBody, cluster: Cluster | None, types: NamedTypes, issues: list[Issue]
) -> tuple[Offer, ...]:
    """The GPUs that may be used, type by type; what is wrong goes to `issues`."""
    if cluster is not None and body.placement is not None:
        with located("/placement"):
            return exact_offers(cluster, slices_from_map(body.placement))
    num_gpus = None if body.degrees is None else Degrees(**vars(body.degrees)).num_gpus
    found: list[Issue] = []
    if cluster is not None and not body.gpus:
        offers, part = free_offers(cluster, num_gpus, found), "/cluster"
    else:
        wanted = [WantedGpus(**vars(document)) for document in body.gpus]
        offers, part = wanted_offers(wanted, types, cluster, num_gpus, found), "/gpus"
    issues += [replace(issue, pointer=part + issue.pointer) for issue in found]
    return offers


def _released(body: ParallelPlanBody, cluster: Cluster | None) -> tuple[Gpu, ...]:
    """GPUs that a running job may have in addition.

    Raises
    ------
    InputError
        When one does not exist or is taken.
    """
    if body.released is None or cluster is None:
        return ()
    with located("/released"):
        refuse_taken(cluster, slices_from_map(body.released))
    return tuple((part.node, gpu) for part in slices_from_map(body.released) for gpu in sorted(part.gpus))


def _warnings(request: ParallelRequest, kinds: Sequence[GpuType]) -> Iterator[Issue]:
    yield from peak_warnings(kinds, "/gpu_types" if request.cluster is None else "/cluster/gpu_types")
    if request.calibration is not None:
        offered = [offer.gpu_type for offer in request.offers]
        yield from calibration_warnings(request.calibration, [*kinds, *offered], "/calibration")


def _measured(body: ParallelPlanBody, types: NamedTypes, issues: list[Issue]) -> Iterator[MeasuredPlan]:
    for k, document in enumerate(body.measurements):
        found = types.named(document.gpu_type, pointer_of("measurements", k, "gpu_type"), issues)
        if found is not None:
            yield MeasuredPlan(**{**vars(document), "gpu_type": found[0].name})


def _grid_options(options: ParallelOptionsDoc) -> GridOptions:
    return GridOptions(
        rule=options.rule,
        num_operators=options.num_operators,
        pipeline_degrees=options.pipeline_degrees,
        context_degrees=options.context_degrees,
        expert_degrees=options.expert_degrees,
        num_micro_batches=options.num_micro_batches,
        max_frontier=options.max_frontier,
        refine=options.refine,
        schedules=options.schedules,
    )


def _issue(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail)
