"""What an operation asks of whoever talks HTTP for it.

An operation is a generator: it yields what is to be done, and is sent what came of it. So each is written once, and is
carried out by a driver that blocks or by one that awaits.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, whose answer is sent back; `httpx.TransportError` is thrown instead when there is none.

    template: the path as the API describes it. repeatable: nothing is done twice when it is sent twice. wait_s: how
    long the service was asked to wait before it answers.
    """

    method: str
    template: str
    path: str
    query: Mapping[str, str | list[str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """Open a stream; its answer is sent back without its body, unless it is an error."""

    request: Request


@dataclass(frozen=True, slots=True, kw_only=True)
class NextLine:
    """Read on in the stream that was opened last; None is sent back at its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(Generic[Result]):
    """Give this to whoever iterates."""

    value: Result


Steps = Generator[Request | Pause, httpx.Response, Result]
Items = Generator[Request | Pause | Listen | NextLine | Item[Result], Any, None]


def request(
    method: str,
    template: str,
    *names: str,
    query: Mapping[str, object] | None = None,
    body: object = None,
    key: str | None = None,
    wait_s: float | None = None,
    repeatable: bool = True,
    **headers: str,
) -> Request:
    """Build a request.

    Parameters
    ----------
    names
        What stands for the placeholders of `template`, in order.
    query
        Without those that are None.
    key
        Idempotency-Key.
    headers
        Further ones, with `_` for `-`.

    Raises
    ------
    ValueError
        When a name cannot be a part of a path.
    """
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    if key is not None:
        told["Idempotency-Key"] = key
    if wait_s is not None:
        told["Prefer"] = f"wait={wait_s:.0f}"
    if body is not None:
        told["Content-Type"] = "application/json"
    return Request(
        method=method,
        template=template,
        path=re.sub(r"\{(\w+)\}", _segments(names), template),
        query={name: _words(value) for name, value in (query or {}).items() if value is not None},
        headers=told,
        body=None if body is None else json.dumps(body, allow_nan=False).encode(),
        repeatable=repeatable,
        wait_s=wait_s or 0.0,
    )


def _segments(names: tuple[str, ...]) -> Callable[[re.Match[str]], str]:
    left = iter(names)

    def segment(placeholder: re.Match[str]) -> str:
        name = next(left)
        if name in ("", ".", ".."):
            raise ValueError(f"{placeholder[1]} is {name!r}, which cannot be a part of a path")
        return quote(name, safe="")

    return segment


def _words(value: object) -> str | list[str]:
    if isinstance(value, (list, tuple)):
        return [str(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)
