"""The packaged examples: plan requests with a title and a description beside them."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from api.common.errors import NotFoundError


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One example; `request` is a whole plan request as it can be posted."""

    id: str
    title: str
    description: str
    request: dict[str, Any]


@cache
def examples() -> tuple[Example, ...]:
    """All examples, ordered by id."""
    folder = Path(__file__).parents[1] / "examples"
    return tuple(
        _example(entry.name.removesuffix(".json"), json.loads(entry.read_text(encoding="utf-8")))
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".json")
    )


def example(example_id: str) -> Example:
    """One example.

    Raises
    ------
    NotFoundError
        When there is none with this id.
    """
    found = next((known for known in examples() if known.id == example_id), None)
    if found is None:
        names = [known.id for known in examples()]
        raise NotFoundError(f"there is no example {example_id!r}; the examples are {names}")
    return found


def _example(example_id: str, document: dict[str, Any]) -> Example:
    title, description = document.pop("title"), document.pop("description")
    return Example(id=example_id, title=title, description=description, request=document)
