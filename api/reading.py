"""From bytes to documents: JSON is read strictly, and whatever is wrong becomes issues with JSON pointers."""

import difflib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import ClassVar, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from api.schemas.base import Document
from api.schemas.performance import PERFORMANCE_KINDS
from api.schemas.request import POLICY_NAMES
from stowplan.errors import InputError, Issue, StowplanError, pointer_of

T = TypeVar("T")

# Nobody reads more; a body of nothing but faults must not be answered by one many times its size.
MAX_ISSUES = 200

# pydantic names the member of a union in the location; these are no keys of the document.
_UNION_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "performance": PERFORMANCE_KINDS,
    "snapshot": ("inline", "stored"),
    "gpus_in_use": ("indices", "count"),
}
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
}
_BOUNDS: Mapping[str, str] = {
    "greater_than": "above",
    "greater_than_equal": "at least",
    "less_than": "below",
    "less_than_equal": "at most",
}


class MalformedJsonError(StowplanError):
    """The text is not JSON; the detail names line and column."""

    code: ClassVar[str] = "malformed_json"


def read_document(adapter: TypeAdapter[T], text: bytes, what: str = "request") -> T:
    """Read a document of JSON.

    Raises
    ------
    MalformedJsonError
        When the text is not JSON.
    InputError
        With one issue per fault, pointers relative to the document.
    """
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        num_faults = error.error_count()
        faults = error.errors(include_url=False)[:MAX_ISSUES]
    if faults[0]["type"] == "json_invalid":
        raise MalformedJsonError(f"the {what} is not JSON: {faults[0]['ctx']['error']}")
    issues = [_issue(fault) for fault in _telling(faults)]
    if num_faults > MAX_ISSUES:
        raise InputError(f"the {what} has {num_faults} errors; the first {len(issues)} are listed", issues)
    noun = "error" if len(issues) == 1 else "errors"
    raise InputError(f"the {what} has {len(issues)} {noun}", issues)


def _telling(faults: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Leave out "too short" for a list that is short only because its items are wrong."""
    for fault in faults:
        loc = fault["loc"]
        if fault["type"] == "too_short" and any(
            other["loc"][: len(loc)] == loc and other is not fault for other in faults
        ):
            continue
        yield fault


def _issue(fault: ErrorDetails) -> Issue:
    path = list(_path(fault["loc"]))
    if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
        path.append(str(fault["ctx"]["discriminator"]).strip("'"))
    return Issue(code=_code(fault), pointer=pointer_of(*path), detail=_detail(fault))


def _path(loc: tuple[int | str, ...]) -> Iterator[int | str]:
    """Keys and indices of the document, without the names of union members and pydantic's mark for a key."""
    for k, part in enumerate(loc):
        members = POLICY_NAMES if k == 0 else _UNION_MEMBERS.get(str(loc[k - 1]), ())
        if part not in members and part != "[key]":
            yield part


def _code(fault: ErrorDetails) -> str:
    kind = fault["type"]
    if kind in _BOUNDS:
        limit = fault["ctx"].get("gt", fault["ctx"].get("ge"))
        if limit == 0:
            return "not_positive" if kind == "greater_than" else "negative"
        return "not_positive" if limit == 1 and isinstance(limit, int) else "out_of_range"
    return _CODES.get(kind, "wrong_type" if kind.endswith(("_type", "_parsing")) else kind)


def _detail(fault: ErrorDetails) -> str:
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if kind == "extra_forbidden":
        return _unknown_field(str(fault["loc"][-1]))
    if kind == "finite_number":
        return f"is {value}; must be a finite number"
    if kind in _BOUNDS:
        limit = next(context[key] for key in ("gt", "ge", "lt", "le") if key in context)
        return f"is {value}; must be {_BOUNDS[kind]} {limit}"
    if kind == "union_tag_invalid":
        return f"is {context['tag']!r}; must be one of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return "is missing; it says which kind of document this is"
    if kind in ("literal_error", "enum"):
        return f"is {_short(value)}; must be {context['expected']}"
    if kind in ("one_of", "out_of_range"):
        return fault["msg"]
    message = fault["msg"].removeprefix("Input should be ")
    return f"is {_short(value)}; must be {message}" if message != fault["msg"] else f"{fault['msg']}: {_short(value)}"


def _unknown_field(name: str) -> str:
    near = difflib.get_close_matches(name, _field_names(), n=1)
    if near == [name]:
        return f"there is no field {name!r} here; it belongs elsewhere"
    hint = f"; did you mean {near[0]!r}?" if near else "; remove it"
    return f"there is no field {name[:64]!r} here{hint}"


def _short(value: object) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 64 else text[:61] + "..."


@cache
def _field_names() -> tuple[str, ...]:
    """Every field name of every document: what a misspelt one is compared with."""
    return tuple(sorted({name for model in _documents(Document) for name in model.model_fields}))


def _documents(base: type[Document]) -> Iterator[type[Document]]:
    for model in base.__subclasses__():
        yield model
        yield from _documents(model)
