"""Types that msgspec decodes in one pass in C, made from documents: plain values alone, with the same limits.

A compiled type takes no text that its document would refuse, and refuses much that the document takes: a field that is
more than numbers, names, lists and maps of documents of these may only have its default. So whatever it refuses is read
by the document, which also says what is wrong. Patterns are not looked at: who decodes sees to it that the text holds
nothing that `NAME_PATTERN` excludes.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from enum import StrEnum
from functools import cache, reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic.fields import FieldInfo

from api.schemas.base import NAME_PATTERN, Document
from api.schemas.performance import GoodputDoc
from api.schemas.snapshot import JobDoc

_SCALARS = (bool, int, float, str)
_LIMITS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    Ge: lambda limit: {"ge": limit.ge},
    Gt: lambda limit: {"gt": limit.gt},
    Le: lambda limit: {"le": limit.le},
    Lt: lambda limit: {"lt": limit.lt},
    MinLen: lambda limit: {"min_length": limit.min_length},
    MaxLen: lambda limit: {"max_length": limit.max_length},
}
# Fields that may only have their defaults, too: rare and of many parts, or one of several ways to say the same, of
# which the document takes one alone.
_DEFAULTS_ONLY: Mapping[type[Document], Set[str]] = {
    JobDoc: {"parallel_plan", "expansions"},
    GoodputDoc: {"observations", "shared_with", "max_local_batch", "gpus_per_replica"},
}
# Fields without which the document wants one of those.
_REQUIRED: Mapping[type[Document], Set[str]] = {GoodputDoc: {"profiles"}}


class NotPlainError(Exception):
    """There is no compiled type for this."""


def compiled(document: type[Document], *, as_said: bool = False) -> type[msgspec.Struct]:
    """Give the type of a document, with the same fields in the same order; `as_said`: without what has its default
    because nobody said it.

    Raises
    ------
    NotPlainError
        When it is more than plain values.
    """
    return _compiled(document, as_said)


@cache
def _compiled(document: type[Document], as_said: bool) -> type[msgspec.Struct]:
    if document.__pydantic_decorators__.model_validators and document not in _REQUIRED:
        raise NotPlainError(f"{document.__name__} checks several fields together")
    tag = _tag(document)
    fields = [
        _field(document, name, info, as_said)
        for name, info in document.model_fields.items()
        if name != tag.get("field")
    ]
    return msgspec.defstruct(
        document.__name__.removesuffix("Doc"),
        fields,
        kw_only=True,
        frozen=True,
        forbid_unknown_fields=True,
        gc=False,
        tag_field=tag.get("field"),
        tag=tag.get("value"),
    )


def _tag(document: type[Document]) -> dict[str, str]:
    """The field that tells a document from others in its place, and its value."""
    first, info = next(iter(document.model_fields.items()))
    if get_origin(info.annotation) is not Literal:
        return {}
    (value,) = get_args(info.annotation)
    return {"field": first, "value": value}


def _field(document: type[Document], name: str, info: FieldInfo, as_said: bool) -> tuple[Any, ...]:
    if info.is_required():
        return name, _typed(info.annotation, info.metadata, as_said)
    if name in _REQUIRED.get(document, ()):
        return name, _typed(_without_none(info.annotation), info.metadata, as_said)
    default = info.get_default(call_default_factory=True)
    try:
        plain = _nothing_but(default) if name in _DEFAULTS_ONLY.get(document, ()) else None
        plain = plain or _typed(info.annotation, info.metadata, as_said)
    except NotPlainError:
        plain = _nothing_but(default)
    if as_said:
        return name, plain | msgspec.UnsetType, msgspec.UNSET
    return name, plain, msgspec.field(default_factory=dict) if default == {} else default


def _nothing_but(default: Any) -> Any:
    if default is None:
        return NoneType
    if default in ((), {}):
        return Annotated[type(default), msgspec.Meta(max_length=0)]
    raise NotPlainError(default)


def _without_none(annotation: Any) -> Any:
    return reduce(or_, (part for part in get_args(annotation) if part is not NoneType))


def _typed(annotation: Any, metadata: Sequence[Any], as_said: bool) -> Any:
    """The type for msgspec; raises NotPlainError where there is none."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _typed(arguments[0], (*annotation.__metadata__, *metadata), as_said)
    if origin in (Union, UnionType):
        # What tells them apart there, does here by itself: a list from a number, documents by their tags.
        return reduce(or_, (_typed(part, (), as_said) for part in arguments))
    limits = _limits(metadata)
    if origin is tuple and arguments[1:] == (...,):
        plain: Any = tuple[_typed(arguments[0], (), as_said), ...]  # type: ignore[misc]  # made when the program runs
    elif origin is dict:
        plain = dict[_typed(arguments[0], (), as_said), _typed(arguments[1], (), as_said)]  # type: ignore[misc]  # made when the program runs
    elif annotation in (*_SCALARS, NoneType) or (isinstance(annotation, type) and issubclass(annotation, StrEnum)):
        plain = annotation
    elif isinstance(annotation, type) and issubclass(annotation, Document):
        plain = _compiled(annotation, as_said)
    else:
        raise NotPlainError(annotation)
    return Annotated[plain, msgspec.Meta(**limits)] if limits else plain


def _limits(metadata: Sequence[Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for item in metadata:
        if isinstance(item, FieldInfo):
            limits |= _limits(item.metadata)
        elif type(item) in _LIMITS:
            limits |= _LIMITS[type(item)](item)
        elif (pattern := getattr(item, "pattern", None)) is not None:
            if pattern != NAME_PATTERN:
                raise NotPlainError(pattern)
        elif not hasattr(item, "discriminator") and not hasattr(item, "tag"):
            raise NotPlainError(item)
    return limits
