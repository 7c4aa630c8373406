"""JSON documents of schedulers: read once, with the place of what is wrong."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NotRequired, TypedDict

import msgspec

from models.cluster_state.base import ParsedDocument, SourceDocument
from stowplan.collection import without_collection

MAX_DOCUMENT_CHARS = 512 * 2**20


def read_json_document(document: SourceDocument) -> Any:
    """What a document holds, as `json.loads` gives it.

    Raises
    ------
    FileFormatError
        When it is no JSON; names the line.
    """
    return _read(document, _whole, _read_by_the_library)


def read_listed(document: SourceDocument, key: str, fields: tuple[str, ...]) -> Any:
    """What `read_json_document` gives, of an object with a list of objects under a key: of these the `fields` alone,
    and of the other keys `meta`. What nobody reads is most of a large document, and is only looked through.

    Raises
    ------
    FileFormatError
        When it is no JSON; names the line.
    """
    # Not as it should be, or more than this reader takes: who has all of it says what is wrong with it.
    return _read(document, _listing(key, fields).decode, read_json_document)


def _read(document: SourceDocument, decode: Callable[[str], Any], otherwise: Callable[[SourceDocument], Any]) -> Any:
    """What `decode` makes of the text, or `otherwise` of the document that it does not take."""
    if isinstance(document, ParsedDocument):
        return document.value
    if len(document.text) > MAX_DOCUMENT_CHARS:
        raise document.fault(f"has {len(document.text)} characters; at most {MAX_DOCUMENT_CHARS}")
    with without_collection():
        try:
            return decode(document.text)
        except (ValueError, RecursionError):
            return otherwise(document)


def _whole(text: str) -> Any:
    # Only now: of most documents some fields are read, and they never come here.
    from pydantic_core import from_json

    # In two thirds of the time of `json.loads`, which takes a little more and says where it is wrong.
    return from_json(text, cache_strings="keys")


@cache
def _listing(key: str, fields: tuple[str, ...]) -> "msgspec.json.Decoder[dict[str, Any]]":
    record: Any = TypedDict("record", dict.fromkeys(fields, Any), total=False)  # type: ignore[misc] # of run time
    whole: Any = TypedDict("whole", {"meta": NotRequired[Any], key: list[record]})  # type: ignore[misc]
    return msgspec.json.Decoder(whole)


def _read_by_the_library(document: SourceDocument) -> Any:
    try:
        return json.loads(document.text)
    except json.JSONDecodeError as error:
        raise document.fault(f"no JSON: {error.msg} (column {error.colno})", line=error.lineno) from error
    except (ValueError, RecursionError) as error:
        raise document.fault(f"no readable JSON: {error}") from error
