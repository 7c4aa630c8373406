"""What pydantic finds wrong with a document, as issues: a stable code, a JSON pointer, and words."""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic_core import ErrorDetails

from api.schemas.base import MAX_NAME_LENGTH, NAME_PATTERN, Document
from api.schemas.calendar import CalendarEntryDoc, CalendarReference
from api.schemas.calibration import CalibrationBody
from api.schemas.cluster_state import ImportBody
from api.schemas.comparison import ComparisonBody
from api.schemas.deployment import VALUE_PATTERN, VARIABLE_PATTERN, DeploymentBody, ReconfigureBody
from api.schemas.metrics import MetricsBody
from api.schemas.model import CalibrationDoc, OperatorModelDoc, TransformerDoc
from api.schemas.parallel import ParallelPlanBody
from api.schemas.parallel_plan import ParallelPlanDoc, SymmetricPlanDoc
from api.schemas.parameters import PARAMETERS
from api.schemas.performance import GoodputDoc, GoodputTableDoc, ThroughputTableDoc
from api.schemas.replay import REPLAY_POLICIES, ReplayBody
from api.schemas.request import PLAN_BODIES, SNAPSHOT_BODIES, AllocationDoc, VerifyBody
from api.schemas.reservation import CalendarBody, ReservationBody
from api.schemas.snapshot import (
    ChangedSnapshot,
    ClusterDoc,
    ClusterSnapshot,
    GpuTypeDoc,
    JobDoc,
    PlannedSnapshotReference,
    SnapshotDoc,
    SnapshotReference,
)
from api.schemas.training import PATH_PATTERN
from api.schemas.what_if import VariantDoc, WhatIfBody
from models.wording import counted
from stowplan.errors import Issue, pointer_of

# What can stand at the top of a text, or be an item of a list there.
_ROOTS: tuple[type[Document], ...] = (
    *(VerifyBody, MetricsBody, ComparisonBody, ParallelPlanBody, SnapshotDoc, ClusterDoc, AllocationDoc, GpuTypeDoc),
    *PARAMETERS.values(),
)
_KNOWN_ROOTS: tuple[type[Document], ...] = (
    *_ROOTS,
    DeploymentBody,
    ReconfigureBody,
    ReplayBody,
    CalendarBody,
    CalibrationBody,
    ReservationBody,
    WhatIfBody,
    ImportBody,
    VariantDoc,
    JobDoc,
)
# By the name that pydantic gives the whole text, where it can be but one kind of document.
_ROOT_OF: Mapping[str, tuple[type[Document], ...]] = {kind.__name__: (kind,) for kind in _KNOWN_ROOTS}
# Field that holds a union ("": the text itself) -> what pydantic calls its members in locations. These are no keys of
# the document. None: not a document.
_UNION_MEMBERS: Mapping[str, Mapping[str, type[Document] | None]] = {
    "": {**PLAN_BODIES, **{kind.__name__: kind for kind in SNAPSHOT_BODIES}},
    "cluster": {"inline": ClusterDoc, "stored": SnapshotReference},
    "policies": REPLAY_POLICIES,
    "job": {"transformer": TransformerDoc, "operators": OperatorModelDoc},
    "snapshot": {
        "inline": SnapshotDoc,
        "stored": PlannedSnapshotReference,
        "on_cluster": ClusterSnapshot,
        "changed": ChangedSnapshot,
    },
    "calendar": {"inline": CalendarEntryDoc, "stored": CalendarReference},
    "calibration": {"inline": CalibrationDoc, "named": None},
    "performance": {"goodput": GoodputDoc, "throughput_table": ThroughputTableDoc, "goodput_table": GoodputTableDoc},
    "gpus_in_use": {"indices": None, "count": None},
    "parallel_plan": {"full": ParallelPlanDoc, "symmetric": SymmetricPlanDoc},
    "checkpointing": {"given": None, "auto": None},
    "zero_stage": {"given": None, "auto": None},
}
_OPEN = [(name, "given") for name in ("checkpointing", "zero_stage")]
_CODES: Mapping[str, str] = {
    "missing": "missing_field",
    "extra_forbidden": "unknown_field",
    "finite_number": "not_finite",
    "union_tag_invalid": "unknown_value",
    "union_tag_not_found": "missing_field",
    "literal_error": "unknown_value",
    "enum": "unknown_value",
    "string_too_short": "wrong_length",
    "string_too_long": "wrong_length",
    "too_short": "wrong_length",
    "too_long": "wrong_length",
    "string_pattern_mismatch": "wrong_format",
    "one_of": "one_of",
    "out_of_range": "out_of_range",
    "timezone_aware": "missing_time_zone",
    "datetime_from_date_parsing": "wrong_format",
    "datetime_parsing": "wrong_format",
}
# Faults whose words are our own.
_OWN_WORDS = ("one_of", "out_of_range", "unknown_model", "missing_field")
# Fields by which an answer of /v1/parallel-plans and a point of it are known.
_ANSWER, _POINT = {"best", "points"}, {"plan", "iteration_s"}
_FORMATS: Mapping[str, str] = {
    NAME_PATTERN: "must not hold control characters or line breaks",
    PATH_PATTERN: "must not hold control characters",
    VALUE_PATTERN: "must not hold null characters",
    VARIABLE_PATTERN: "must be the name of a variable: of letters, digits and _, no digit first",
}
_BOUNDS: Mapping[str, str] = {
    "greater_than": "above",
    "greater_than_equal": "at least",
    "less_than": "below",
    "less_than_equal": "at most",
}


def fault_issue(fault: ErrorDetails, document: str = "") -> Issue:
    """The issue that a fault is for the sender of a document; `document`: what pydantic calls its kind."""
    path = list(_path(fault["loc"]))
    if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path.append(_discriminator(fault))
    return Issue(code=_code(fault), pointer=short_pointer(path), detail=fault_detail(fault, document))


def mistaken_document(text: bytes, kind: str) -> Issue | None:
    """One issue in place of many for JSON that is no document of a kind at all, but a well-known other one."""
    if kind not in (DeploymentBody.__name__, ReconfigureBody.__name__):
        return None
    document = json.loads(text)
    if not isinstance(document, dict):
        return None
    plan, where = document.get("plan"), "/plan"
    if document.keys() >= _ANSWER:
        beside = "" if kind == ReconfigureBody.__name__ else ", beside job_id and job"
        where, detail = "", f"is an answer of /v1/parallel-plans; give its `best.plan` as `plan`{beside}"
    elif isinstance(plan, dict) and plan.keys() >= _ANSWER:
        detail = "is an answer of /v1/parallel-plans; the plan in it is `best.plan`"
    elif isinstance(plan, dict) and plan.keys() >= _POINT:
        detail = "is a point of an answer of /v1/parallel-plans; the plan in it is `plan`"
    else:
        return None
    return Issue(code="other_document", pointer=where, detail=detail)


def short_pointer(path: Sequence[str | int]) -> str:
    """JSON pointer with keys cut to the length of a name: an answer repeats them once per fault."""
    return pointer_of(*(part if isinstance(part, int) else part[:MAX_NAME_LENGTH] for part in path))


def _path(loc: tuple[int | str, ...]) -> Iterator[int | str]:
    """Keys and indices of the document, without the names of union members and pydantic's mark for a key."""
    for k, part in enumerate(loc):
        if part not in _union_members(loc, k) and part != "[key]":
            yield part


def _union_members(loc: tuple[int | str, ...], k: int) -> Mapping[str, type[Document] | None]:
    """Members of the union, if any, of which `loc[k]` may be one."""
    # A list of unions: what stands behind the index is of the field that holds the list.
    holder = k - 2 if k > 1 and isinstance(loc[k - 1], int) else k - 1
    return _UNION_MEMBERS.get(str(loc[holder]) if k else "", {})


def _code(fault: ErrorDetails) -> str:
    kind = fault["type"]
    if kind in _BOUNDS:
        limit = fault["ctx"].get("gt", fault["ctx"].get("ge"))
        if limit == 0:
            return "not_positive" if kind == "greater_than" else "negative"
        return "not_positive" if limit == 1 and isinstance(limit, int) else "out_of_range"
    return _CODES.get(kind, "wrong_type" if kind.endswith(("_type", "_parsing")) else kind)


def fault_detail(fault: ErrorDetails, document: str = "") -> str:
    """What is wrong and what would be right, in words; `document` as in `fault_issue`."""
    kind, value, context = fault["type"], _shown(fault), fault.get("ctx", {})
    # What is open to the search has that beside a value.
    other = ", or 'auto'" if fault["loc"][-2:] in _OPEN else ""
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return _unknown_field(fault["loc"], _ROOT_OF.get(document, _ROOTS))
    if kind in _BOUNDS:
        limit = next(context[key] for key in ("gt", "ge", "lt", "le") if key in context)
        return f"is {_short(value)}; must be {_BOUNDS[kind]} {limit}{other}"
    if _CODES.get(kind) == "wrong_length":
        return _wrong_length(kind, fault["input"], context)
    if kind == "string_pattern_mismatch":
        return f"is {_short(value)}; {_FORMATS.get(context['pattern'], 'must match ' + context['pattern'])}"
    if kind == "union_tag_invalid":
        return f"is {_short(value[_discriminator(fault)])}; must be one of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return "is missing; it says which kind of document this is"
    if kind == "timezone_aware":
        return f"is {_short(value)}, which is another moment in every time zone; end it with Z or an offset like +01:00"
    if kind in _OWN_WORDS:
        return fault["msg"]
    message = fault["msg"].removeprefix("Input should be ")
    return (
        f"is {_short(value)}; must be {message}{other}"
        if message != fault["msg"]
        else f"{fault['msg']}: {_short(value)}"
    )


def _shown(fault: ErrorDetails) -> Any:
    """The value that is wrong; those of variables may be secrets."""
    return "***" if "environment" in fault["loc"] and fault["loc"][-1] != "[key]" else fault["input"]


def _wrong_length(kind: str, value: Any, context: Mapping[str, Any]) -> str:
    noun = "character" if kind.startswith("string") else "item"
    key = "min_length" if "min_length" in context else "max_length"
    bound = "at least" if key == "min_length" else "at most"
    found = f"has {counted(len(value), noun)}" if value else "is empty"
    return f"{found}; must have {bound} {counted(context[key], noun)}"


def _discriminator(fault: ErrorDetails) -> str:
    """The field that tells the members of a union apart."""
    return str(fault["ctx"]["discriminator"]).strip("'")


def _unknown_field(loc: tuple[int | str, ...], roots: Iterable[type[Document]]) -> str:
    name, models = str(loc[-1]), _documents_at(loc[:-1], roots)
    here = sorted({field for model in models for field in model.model_fields})
    near = difflib.get_close_matches(name, here, n=1)
    hint = f"the fields here are {here}" if len(models) == 1 else "remove it"
    if near and near != [name]:
        hint = f"did you mean {near[0]!r}?"
    return f"there is no field {name[:64]!r} here; {hint}"


def _documents_at(loc: tuple[int | str, ...], roots: Iterable[type[Document]]) -> set[type[Document]]:
    """Kinds of document that may stand at `loc` below one of `roots`."""
    models: set[type[Document]] = set(roots)
    for k, part in enumerate(loc):
        member = _union_members(loc, k).get(str(part))
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        if member is not None:
            models = {member}
        elif fields:
            models = {model for field in fields for model in _documents_in(field.annotation)}
    return models


def _documents_in(annotation: object) -> Iterator[type[Document]]:
    """Documents that an annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, Document):
        yield annotation
    for argument in get_args(annotation):
        yield from _documents_in(argument)


def _short(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=not str(value).isprintable())
    return text if len(text) <= 64 else text[:61] + "..."
