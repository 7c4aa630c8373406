"""JSON patches (RFC 6902) carried out as an API server does: the operations that we write."""

import copy
from collections.abc import Sequence
from typing import Any


class OtherValueError(Exception):
    """Something else stands there."""


def patched(document: dict[str, Any], operations: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The document after all operations; it stays as it is."""
    result = copy.deepcopy(document)
    for operation in operations:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in str(operation["path"]).split("/")[1:]]
        place: Any = result
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else place[part]
        key: Any = int(last) if isinstance(place, list) else last
        match operation["op"]:
            case "test":
                if place[key] != operation["value"]:
                    raise OtherValueError(operation)
            case "add" if isinstance(place, list):
                place.insert(key, operation["value"])
            case "add":
                place[key] = operation["value"]
            case "remove":
                del place[key]
            case other:
                raise AssertionError(other)
    return result
