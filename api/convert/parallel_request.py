"""From the body of a request for 3D-parallel plans to what the planners take."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from api.common.settings import Settings
from api.convert.job_model import calibration_from_document, model_from_document
from api.convert.located import located
from api.convert.parallel_plan import plan_from_document, slices_from_map
from api.convert.snapshot import cluster_from_document
from api.schemas.parallel import GpuOfferDoc, ParallelOptionsDoc, ParallelPlanBody
from models.parallel_plan import Gpu
from models.parallelism.grid.options import GridOptions
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.offers import exact_offers, free_gpus, offers_of, refuse_taken
from models.parallelism.request import Degrees, MeasuredPlan, Offer, ParallelRequest, Planner
from models.performance.iteration.architecture import model_issues
from models.performance.iteration.plausibility import calibration_warnings, peak_warnings
from models.wording import counted
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors
from topology.cluster import Cluster, GpuType
from topology.gpu_catalogue import find_product, gpu_type_of

_GPUS_PER_NODE = 8
_INCREMENTAL = ("running", "released", "cluster")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kinds:
    """GPU types that a request may name: its own, and, without a cluster, those of the catalogue."""

    own: Mapping[str, GpuType]
    precision: str
    is_cluster: bool

    def find(self, name: str) -> tuple[GpuType, int]:
        """Type of this name, and GPUs of its usual node.

        Raises
        ------
        InputError
            When it is not known; the detail gives near matches.
        """
        if name in self.own:
            return self.own[name], _GPUS_PER_NODE
        if self.is_cluster:
            near = difflib.get_close_matches(name, self.own, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(
                f"no GPU type of the cluster is called {name!r}; {hint}known: {', '.join(sorted(self.own))}"
            )
        product = find_product(name)
        return gpu_type_of(product, self.precision), product.gpus_per_node


def parallel_request(body: ParallelPlanBody) -> ParallelRequest:
    """Turn a body into a request.

    Raises
    ------
    InputError
        With one issue per fault; pointers are relative to the body.
    """
    model = model_from_document(body.job)
    planner = _planner(body)
    raise_for_errors([*model_issues(model, "/job"), *_combination_issues(body, planner)], "request")
    with located("/cluster"):
        cluster = None if body.cluster is None else cluster_from_document(body.cluster)
    kinds = cluster.gpu_types if cluster is not None else tuple(GpuType(**vars(kind)) for kind in body.gpu_types)
    known = _Kinds(
        own={kind.name: kind for kind in kinds}, precision=model.precision.value, is_cluster=cluster is not None
    )
    issues: list[Issue] = []
    with located("/running"):
        running = None if body.running is None else plan_from_document(body.running)
    request = ParallelRequest(
        model=model,
        planner=planner,
        offers=() if planner is Planner.INCREMENTAL else tuple(_offers(body, cluster, known, issues)),
        cluster=cluster,
        degrees=None if body.degrees is None else Degrees(**vars(body.degrees)),
        running=running,
        released=_released(body, cluster),
        measured=tuple(_measured(body, known, issues)),
        calibration=None if body.calibration is None else calibration_from_document(body.calibration),
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


def _offers(body: ParallelPlanBody, cluster: Cluster | None, kinds: _Kinds, issues: list[Issue]) -> Iterator[Offer]:
    """The GPUs that may be used, type by type; what is wrong goes to `issues`."""
    if cluster is not None and body.placement is not None:
        with located("/placement"):
            yield from exact_offers(cluster, slices_from_map(body.placement))
        return
    fixed = None if body.degrees is None else body.degrees.pp * body.degrees.dp * body.degrees.tp
    seen: set[str] = set()
    for k, document in enumerate(body.gpus):
        try:
            with located(pointer_of("gpus", k, "gpu_type")):
                kind, usual_size = kinds.find(document.gpu_type)
        except InputError as error:
            issues += [replace(issue, code="unknown_gpu_type") for issue in error.issues]
            continue
        if kind.name in seen:
            issues.append(_issue("listed_twice", pointer_of("gpus", k, "gpu_type"), f"{kind.name!r} is listed before"))
        seen.add(kind.name)
        counts = _counts(k, document, fixed, issues)
        if counts and cluster is None:
            yield Offer(gpu_type=kind, gpus_per_node=document.gpus_per_node or usual_size, counts=counts)
        elif counts and cluster is not None:
            found = offers_of(cluster, free_gpus(cluster), {kind.name: counts})
            if not found:
                issues.append(_issue("no_free_gpus", pointer_of("gpus", k), f"the cluster has no free {kind.name!r}"))
            yield from found
    if cluster is not None and not body.gpus:
        given = None if fixed is None else dict.fromkeys(kinds.own, (fixed,))
        found = offers_of(cluster, free_gpus(cluster), given)
        if not found:
            issues.append(_issue("no_free_gpus", "/cluster/nodes", "no node that is up has a free GPU"))
        yield from found


def _counts(k: int, document: GpuOfferDoc, fixed: int | None, issues: list[Issue]) -> tuple[int, ...]:
    """Numbers of GPUs of an offer, ascending; `fixed`: what the given degrees need."""
    if fixed is not None and document.counts is None and document.min_gpus is None:
        return (fixed,)
    if document.min_gpus is not None and document.max_gpus is not None:
        low, high = document.min_gpus, document.max_gpus
        counts = {low, high} | {1 << e for e in range(high.bit_length()) if low <= 1 << e <= high}
    else:
        counts = set(document.counts or ())
    if not counts:
        issues.append(_issue("missing_field", pointer_of("gpus", k, "counts"), "is missing; say how many GPUs"))
    if fixed is not None and counts != {fixed}:
        detail = f"the degrees need {counted(fixed, 'GPU')}, not {sorted(counts)}"
        issues.append(_issue("wrong_count", pointer_of("gpus", k, "counts"), detail))
    return tuple(sorted(counts))


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


def _measured(body: ParallelPlanBody, kinds: _Kinds, issues: list[Issue]) -> Iterator[MeasuredPlan]:
    for k, document in enumerate(body.measurements):
        try:
            with located(pointer_of("measurements", k, "gpu_type")):
                yield MeasuredPlan(**{**vars(document), "gpu_type": kinds.find(document.gpu_type)[0].name})
        except InputError as error:
            issues += [replace(issue, code="unknown_gpu_type") for issue in error.issues]


def _grid_options(options: ParallelOptionsDoc) -> GridOptions:
    return GridOptions(
        rule=options.rule,
        num_operators=options.num_operators,
        pipeline_degrees=options.pipeline_degrees,
        num_micro_batches=options.num_micro_batches,
        max_frontier=options.max_frontier,
        refine=options.refine,
    )


def _issue(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail)
