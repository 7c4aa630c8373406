"""What may be said of an export beyond the plan: names and values in words, which each format declares as data."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from stowplan.errors import InputError, Issue

MAX_OPTIONS = 64
_NAME = re.compile(r"[a-z][a-z0-9-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOption:
    """An option of a format. `summary`: for people. `choices`: the values that there are, the first one unless another
    is given (empty: any text, none unless one is given). `is_document`: the text of a document, of which the command
    line takes the path of its file."""

    summary: str
    choices: tuple[str, ...] = ()
    is_document: bool = False


class HasOptions(Protocol):
    """A format."""

    @property
    def options(self) -> Mapping[str, ExportOption]:
        """What may be said beside the plan, by name."""


def option_words(formats: Mapping[str, HasOptions]) -> str:
    """What may be said to formats, for people."""
    said = [
        f"{name}: "
        + "; ".join(f"{option}={_values(known)}: {known.summary}" for option, known in found.options.items())
        for name, found in formats.items()
        if found.options
    ]
    return f"What may be said beside the plan. {'. '.join(said)}."


def _values(option: ExportOption) -> str:
    return "|".join(option.choices) or ("FILE" if option.is_document else "...")


def read_options(pairs: Sequence[str]) -> dict[str, str]:
    """Options by name, of words such as `partition=gpu`.

    Raises
    ------
    InputError
        When a word is no `NAME=VALUE`, or a name occurs twice.
    """
    if len(pairs) > MAX_OPTIONS:
        raise InputError(f"{len(pairs)} options are given; at most {MAX_OPTIONS}")
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _NAME.fullmatch(name):
            raise InputError(f"option {pair!r} is no NAME=VALUE, such as partition=gpu")
        if name in found:
            raise InputError(f"option {name!r} is given twice")
        found[name] = value
    return found


def checked(given: Mapping[str, str], declared: Mapping[str, ExportOption], *formats: str) -> dict[str, str]:
    """The options of formats: those that are given, and the first choice of the others.

    Raises
    ------
    InputError
        With an issue for every option that the formats have not, or that has another value than those that there are.
    """
    issues, whose = [], " and ".join(formats)
    for name, value in given.items():
        choices = declared[name].choices if name in declared else ()
        if name not in declared:
            detail = f"there is no such option of {whose}; there are {', '.join(declared) or 'none'}"
            issues.append(Issue(code="unknown_option", pointer=f"/{name}", detail=detail))
        elif choices and value not in choices:
            detail = f"is {value!r}; must be one of {', '.join(choices)}"
            issues.append(Issue(code="bad_option", pointer=f"/{name}", detail=detail))
    if issues:
        raise InputError(f"options of the export to {whose}", issues)
    return {name: option.choices[0] for name, option in declared.items() if option.choices} | dict(given)
