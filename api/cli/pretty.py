"""JSON for people: what fits a line stays on one line."""

import json
from functools import lru_cache
from typing import Any

_WIDTH = 118
# Nobody reads lists of so many items whole, and each line takes its time.
_MANY = 1000
# `json.dumps` makes one for every call.
_encoded = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode
# The same few names of fields, of each of many objects.
_key = lru_cache(maxsize=1024)(_encoded)


def pretty_json(value: Any) -> str:
    """Write `value` with two spaces per level; objects and lists that fit a line take one, as does each item of a list
    of a thousand and more."""
    return _written(value, "", 0)


def _written(value: Any, indent: str, used: int) -> str:
    """`used` columns of the current line are taken already."""
    if _may_fit(value):
        line = _encoded(value)
        if used + len(line) < _WIDTH or not isinstance(value, dict | list) or not value:
            return line
    inner = indent + "  "
    if isinstance(value, list) and len(value) >= _MANY:
        lines = [inner + _encoded(item) for item in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    if isinstance(value, list):
        lines = [inner + _written(item, inner, len(inner)) for item in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    names = {key: f"{inner}{_key(key)}: " for key in value}
    lines = [names[key] + _written(item, inner, len(names[key])) for key, item in value.items()]
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}"


def _may_fit(value: Any) -> bool:
    """Whether it need be tried on one line: an item takes three columns or more, in whatever it stands."""
    if not isinstance(value, dict | list):
        return True
    if 3 * len(value) >= _WIDTH:
        return False
    return all(_may_fit(item) for item in (value.values() if isinstance(value, dict) else value))
