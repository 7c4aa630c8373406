"""Variants of a request: from their documents to the planner's types, and to requests of their own."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import from_json, to_json

from api.convert.calendar import entry_from_document
from api.convert.located import located
from api.convert.parallel_plan import slices_from_map
from api.convert.reading import read_document
from api.convert.request import issue_in_request
from api.convert.snapshot import job_from_document, snapshot_to_document
from api.schemas.parameters import PARAMETERS
from api.schemas.request import PLAN_BODIES, PlanBodyDoc
from api.schemas.snapshot import JobDoc, SnapshotDoc
from api.schemas.what_if import PlaceDoc, VariantDoc
from models.plan import PlanRequest
from models.policies import POLICIES
from models.validation import request_issues, solver_fault
from models.what_if.placing import variant_task
from models.what_if.variant import AddedNodes, Variant, WantedPlace
from models.workload import Job
from stowplan.errors import InputError, Issue, Severity, pointer_of, raise_for_errors
from topology.calendar import CalendarEntry

_JOB: TypeAdapter[JobDoc] = TypeAdapter(JobDoc)
# Where a job is named stands before its fields.
_NAMED = "id"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedVariant:
    """A variant, and the request that it is.

    `request` is None where rules forbid what the variant asks for, which `forbidden` are, with pointers relative to the
    variant. `body`: as `request` would be posted, but for its snapshot. `warnings` point from the request.
    """

    document: VariantDoc
    body: PlanBodyDoc
    request: PlanRequest | None
    forbidden: tuple[Issue, ...]
    warnings: tuple[Issue, ...]

    @property
    def snapshot_text(self) -> str:
        """JSON of the snapshot of the request; there must be one."""
        assert self.request is not None  # noqa: S101 - whoever asks has looked
        source = self.body.snapshot
        taken_at = source.taken_at if isinstance(source, SnapshotDoc) else None
        moment = {} if taken_at is None else {"taken_at": taken_at}
        return snapshot_to_document(self.request.snapshot, **moment).model_dump_json()


def check_variant(document: VariantDoc, body: PlanBodyDoc, request: PlanRequest) -> CheckedVariant:
    """Make a request of a variant of `request`, which `body` asks for with a snapshot of its own.

    Raises
    ------
    InputError
        When the variant is wrong, or what comes of it; pointers are relative to the variant.
    """
    if not isinstance(body.snapshot, SnapshotDoc):
        raise TypeError("the snapshot must be there")
    own = _body(document, body)
    variant = _variant(document, body.snapshot, own, request)
    task = variant_task(variant, request)
    if task.request is None:
        return CheckedVariant(document=document, body=own, request=None, forbidden=task.forbidden, warnings=())
    fault = solver_fault(task.request.parameters, task.request.options.solver)
    faults = [] if fault is None else [Issue(code="unknown_value", pointer="/policy", detail=f"the solver {fault}")]
    issues = request_issues(task.request.snapshot, task.request.parameters)
    raise_for_errors([*faults, *map(_in_variant, issues)], f"variant {document.name!r}")
    return CheckedVariant(
        document=document,
        body=own,
        request=task.request,
        forbidden=(),
        warnings=tuple(map(issue_in_request, issues)),
    )


def _in_variant(issue: Issue) -> Issue:
    """An error of the changed snapshot: of the variant as a whole, with the place in words."""
    if issue.severity is not Severity.ERROR or issue.pointer.startswith("/parameters"):
        return issue
    return replace(issue, pointer="", detail=f"in the changed snapshot, {issue.pointer}: {issue.detail}")


def _body(document: VariantDoc, body: PlanBodyDoc) -> PlanBodyDoc:
    """The body with the policy and the parameters of the variant."""
    policy = document.policy or body.policy
    kind = PARAMETERS[policy]
    given: dict[str, Any] = {}
    if kind is PARAMETERS[body.policy]:
        given = from_json(body.parameters.model_dump_json())
    text = to_json({**given, **document.parameters}, inf_nan_mode="constants")
    with located("/parameters"):
        parameters = read_document(TypeAdapter(kind), text, "parameters")
    fields = {"policy": policy, "snapshot": body.snapshot, "parameters": parameters, "options": body.options}
    return PLAN_BODIES[policy].model_validate(fields)


def _variant(document: VariantDoc, snapshot: SnapshotDoc, body: PlanBodyDoc, request: PlanRequest) -> Variant:
    type_of = {node.id: node.gpu_type for node in request.snapshot.cluster.nodes}
    with located("/parameters"):
        parameters = body.parameters.parameters_for(POLICIES[body.policy])
    added = []
    for k, job in enumerate(document.add_jobs):
        with located(pointer_of("add_jobs", k)):
            added.append(job_from_document(job, type_of))
    return Variant(
        name=document.name,
        drain=document.drain,
        down=document.down,
        up=document.up,
        add_nodes=tuple(AddedNodes(**dict(nodes)) for nodes in document.add_nodes),
        jobs={name: _changes(name, fields, request, type_of) for name, fields in document.jobs.items()},
        add_jobs=tuple(added),
        remove_jobs=document.remove_jobs,
        parameters=None if parameters == request.parameters else parameters,
        add_entries=tuple(_entries(document, snapshot)),
        remove_entries=document.remove_entries,
        place=None if document.place is None else _place(document.place),
    )


def _changes(
    name: str, fields: Mapping[str, Any], request: PlanRequest, type_of: Mapping[str, str]
) -> Mapping[str, Any]:
    """Fields of the planner's job that a change sets; they are read as those of a job of that name."""
    pointer = pointer_of("jobs", name)
    if _NAMED in fields:
        detail = "the name of a job stays; remove the job, and add one"
        raise InputError(detail, [Issue(code="unknown_field", pointer=f"{pointer}/{_NAMED}", detail=detail)])
    before = next((job for job in request.snapshot.jobs if job.id == name), None)
    with located(pointer):
        document = read_document(_JOB, to_json({_NAMED: name, **fields}, inf_nan_mode="constants"), "change")
        job: Job = job_from_document(document, type_of)
    changes = {field: getattr(job, field) for field in fields}
    # A job that is said to run elsewhere, or not, does not run with its old plan.
    if before is not None and "current" in fields and job.current != before.current:
        changes = {"parallel_plan": None, "expansions": (), **changes}
    return changes


def _entries(document: VariantDoc, snapshot: SnapshotDoc) -> Iterator[CalendarEntry]:
    if document.add_entries and snapshot.taken_at is None:
        detail = "needs the moment of the snapshot, which says none: give taken_at there"
        raise InputError(detail, [Issue(code="missing_field", pointer="/add_entries", detail=detail)])
    for entry in document.add_entries:
        assert snapshot.taken_at is not None  # noqa: S101 - refused above
        yield entry_from_document(entry, snapshot.taken_at)


def _place(document: PlaceDoc) -> WantedPlace:
    gpus = None if document.nodes is None else slices_from_map(document.nodes)
    return WantedPlace(job=document.job, gpus=gpus, start_s=document.start_s)
