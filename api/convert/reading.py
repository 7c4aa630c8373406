"""From bytes to documents: JSON is read strictly, and whatever is wrong becomes issues with JSON pointers."""

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from api.common.errors import BodyTooLargeError
from stowplan.errors import InputError, Issue, StowplanError

T = TypeVar("T")

# Nobody reads more; a body of nothing but faults must not be answered by one many times its size.
MAX_ISSUES = 200
# The largest snapshots hold two millions.
MAX_VALUES = 4_000_000
_KEY = re.compile(rb'"\s*:')
_SPACES_BEFORE_COLONS = (b" :", b"\n:", b"\t:", b"\r:")


class MalformedJsonError(StowplanError):
    """The text is not JSON; the detail names line and column."""

    code: ClassVar[str] = "malformed_json"


def read_document(adapter: TypeAdapter[T], text: bytes, what: str = "request") -> T:
    """Read a document of JSON.

    Raises
    ------
    BodyTooLargeError
        When it holds more values than any document that is read.
    MalformedJsonError
        When the text is not JSON.
    InputError
        With one issue per fault, pointers relative to the document.
    """
    refuse_many_values(text, what)
    try:
        document = adapter.validate_json(text)
    except ValidationError as error:
        num_faults = error.error_count()
        kind, faults = error.title, error.errors(include_url=False)[:MAX_ISSUES]
    else:
        refuse_repeated_keys(text, what)
        return document
    if faults[0]["type"] == "json_invalid":
        raise MalformedJsonError(f"the {what} is not JSON: {faults[0]['ctx']['error']}")
    # They know every document there is, which takes half a second to load; most commands find no fault.
    from api.convert.faults import fault_issue, mistaken_document

    mistaken = mistaken_document(text, kind)
    if mistaken is not None:
        raise InputError(f"the {what} is another document", [mistaken])
    issues = [fault_issue(fault, kind) for fault in _telling(faults)]
    if num_faults > MAX_ISSUES:
        raise InputError(f"the {what} has {num_faults} errors; the first {len(issues)} are listed", issues)
    noun = "error" if len(issues) == 1 else "errors"
    raise InputError(f"the {what} has {len(issues)} {noun}", issues)


def refuse_many_values(text: bytes, what: str) -> None:
    """Refuse JSON that holds more values than any document; BodyTooLargeError says how many."""
    if len(text) <= MAX_VALUES:
        return
    # Short values by the million take a hundred times the memory of their text.
    num_values = sum(text.count(mark) for mark in (b",", b"[", b"{"))
    if num_values > MAX_VALUES:
        raise BodyTooLargeError(f"the {what} has some {num_values} values; at most {MAX_VALUES} are read")


def refuse_repeated_keys(text: str | bytes, what: str) -> None:
    """Refuse JSON with an object that has a key twice: parsers keep one of the values and lose the other.

    Raises
    ------
    InputError
        With an issue for each.
    """
    if isinstance(text, bytes) and _repeats_none(text):
        return
    found = False

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal found
        read = dict(pairs)
        found = found or len(read) < len(pairs)
        return read

    json.loads(text, object_pairs_hook=members)
    if found:
        from api.convert.faults import short_pointer

        pointers = [short_pointer(path) for path in _repeated(json.loads(text, object_pairs_hook=_Members), ())]
        detail = "occurs more than once; write it once"
        issues = [Issue(code="repeated_key", pointer=pointer, detail=detail) for pointer in pointers[:MAX_ISSUES]]
        raise InputError(f"the {what} repeats a key", issues)


def num_keys(text: bytes) -> int:
    """How many keys the objects of a JSON text without escapes have, in which a quote before a colon ends a key."""
    found = text.count(b'":')
    if found == text.count(b":") or not any(mark in text for mark in _SPACES_BEFORE_COLONS):
        return found
    return len(_KEY.findall(text))


def _repeats_none(text: bytes) -> bool:
    """Whether it is soon said that no object of a JSON text has a key twice: of those a decoder keeps one."""
    if b"\\" in text:
        return False
    try:
        return num_keys(msgspec.json.encode(msgspec.json.decode(text))) == num_keys(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


class _Members(list[tuple[str, Any]]):
    """The members of an object, those with the same key too."""


def _repeated(value: object, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Paths of the keys that an object has more than once."""
    seen: set[str] = set()
    if isinstance(value, _Members):
        for key, part in value:
            if key in seen:
                yield *path, key
            seen.add(key)
            yield from _repeated(part, (*path, key))
    elif isinstance(value, list):
        for k, part in enumerate(value):
            yield from _repeated(part, (*path, k))


def _telling(faults: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Leave out "too short" for a list that is short only because its items are wrong."""
    for fault in faults:
        loc = fault["loc"]
        if fault["type"] == "too_short" and any(
            other["loc"][: len(loc)] == loc and other is not fault for other in faults
        ):
            continue
        yield fault
