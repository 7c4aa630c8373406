"""Tasks of readers: variants of a stored request, and what differs between two stored plans."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from api.common.settings import Settings
from api.convert.difference import answer_fields, as_asked, difference_document
from api.convert.hashing import input_hash, snapshot_id
from api.convert.issues import issue_documents
from api.convert.located import located
from api.convert.outcome import outcome_from_document
from api.convert.plain import plain_request
from api.convert.reading import read_document
from api.convert.request import check_request
from api.convert.snapshot import snapshot_from_document
from api.convert.what_if import CheckedVariant, check_variant
from api.figures.picture_format import PictureFormat
from api.plans.reading import ReadPlan, plan_input
from api.reading.packed import PackedRequest
from api.schemas.plan import OutcomeDoc, TimingsDoc, UsedOptionsDoc
from api.schemas.problem import IssueDoc
from api.schemas.request import PLAN_BODY, PlanBodyDoc
from api.schemas.snapshot import SnapshotDoc
from api.schemas.what_if import WHAT_IF_BODY, PlanDifferenceDoc, VariantAnswer, VariantDoc
from api.store.texts import Body
from models.plan import PlanRequest
from models.policies import POLICIES
from models.what_if.difference import Planned, difference
from models.workload import Snapshot
from solver.monitor import SolveMonitor
from stowplan.errors import pointer_of

READ_VARIANTS = f"{__name__}:read_variants"
COMPARE_PLANS = f"{__name__}:compare_plans"
_OUTCOME: TypeAdapter[OutcomeDoc] = TypeAdapter(OutcomeDoc)


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantsText:
    """The stored request of a plan, and the body that asks for variants of it."""

    request: str
    body: bytes
    settings: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadVariant:
    """A sound variant, and the plan that it is; None where rules forbid it, which `forbidden` are."""

    document: VariantDoc
    plan: ReadPlan | None
    forbidden: tuple[IssueDoc, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanText:
    """The request of a plan, and what planning it ended with, as they are stored."""

    request: str
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTexts:
    """Two plans, and the variant that made the other one of the base, where it was one."""

    base: PlanText
    other: PlanText
    variant: VariantDoc | None

    @property
    def num_bytes(self) -> int:
        """Size of everything that is to be read."""
        return sum(len(plan.request) + len(plan.outcome) for plan in (self.base, self.other))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTexts:
    """Two plans to draw beside each other, and as what."""

    texts: PlanTexts
    format: PictureFormat


def read_variants(text: VariantsText, monitor: SolveMonitor) -> tuple[ReadVariant, ...]:  # noqa: ARG001 - the pool's
    """Read and check variants; pointers of what is wrong are relative to the body, or start with `/base`.

    Raises
    ------
    MalformedJsonError
        When the body is not JSON.
    InputError
        When a variant is wrong.
    """
    asked = read_document(WHAT_IF_BODY, text.body)
    with located("/base"):
        # Variants change the document.
        body, snapshot = _stored_document(text.request)
        request = check_request(body, snapshot, text.settings).required()
    read = []
    for k, document in enumerate(asked.variants):
        with located(pointer_of("variants", k)):
            read.append(_read(check_variant(document, body, request)))
    return tuple(read)


def compare_plans(texts: PlanTexts, monitor: SolveMonitor) -> VariantAnswer | PlanDifferenceDoc | None:  # noqa: ARG001
    """Say what differs; None where one of the two has no plan. Of a variant it is an answer."""
    base, other = planned(texts.base), planned(texts.other)
    if texts.variant is not None:
        return VariantAnswer(**answer_fields(texts.variant, base, as_asked(texts.variant, base, other)))
    found = difference(base, other)
    return None if found is None else difference_document(found)


def planned(text: PlanText) -> Planned:
    """Give back a plan, as far as its documents tell it: without times, and with default options."""
    body, snapshot = _stored(text.request)
    parameters = body.parameters.parameters_for(POLICIES[body.policy])
    document = read_document(_OUTCOME, text.outcome.encode(), "outcome")
    timings = TimingsDoc(
        accept_ms=0.0, queue_ms=None, phases_ms={}, cpu_ms=None, first_incumbent_ms=None, total_ms=None
    )
    return Planned(
        request=PlanRequest(snapshot=snapshot, parameters=parameters), outcome=outcome_from_document(document, timings)
    )


def _stored(text: str) -> tuple[PlanBodyDoc, Snapshot]:
    """A stored request has its snapshot, and entries of its own where it has a calendar."""
    plain = plain_request(text.encode())
    return _stored_document(text) if plain is None else (plain.body, plain.snapshot)


def _stored_document(text: str) -> tuple[PlanBodyDoc, Snapshot]:
    """The same, with the snapshot in the body."""
    body = read_document(PLAN_BODY, text.encode())
    if not isinstance(body.snapshot, SnapshotDoc):
        raise TypeError("a stored request has its snapshot in it")
    return body, snapshot_from_document(body.snapshot)


def _read(checked: CheckedVariant) -> ReadVariant:
    request = checked.request
    if request is None:
        return ReadVariant(document=checked.document, plan=None, forbidden=issue_documents(checked.forbidden))
    snapshot_text = checked.snapshot_text
    options = UsedOptionsDoc.model_validate(request.options, from_attributes=True)
    hash_ = input_hash(request.policy, snapshot_id(snapshot_text), checked.body.parameters, options)
    input_ = plan_input(checked.body, Body.of(snapshot_text))
    plan = ReadPlan(
        policy=request.policy,
        request=PackedRequest.of(request, input_.snapshot),
        options=options,
        input=input_,
        input_hash=hash_,
        posted_hash=hash_,
        filled_in=(),
        notes=checked.warnings,
    )
    return ReadVariant(document=checked.document, plan=plan, forbidden=())
