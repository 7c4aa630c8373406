"""Catalogues: TOML files with a table per entry, those that are shipped and one of the user's own.

    [gpu.NAME]      a GPU product; its keys: `topology.gpu_catalogue`
    [model.NAME]    a model; its keys: `models.catalogue`
      source        where the figures are from; required
      aliases       other names
      replaces      true: takes the place of the shipped entry of this name, whose aliases it keeps

The shipped files have one section each, a file of the user's may have both. The variable STOWPLAN_CATALOGUE names it:
the environment reaches every process that plans, the workers too. A process reads it once, at its first look-up.
"""

import difflib
import hashlib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from stowplan.errors import InputError, Issue, pointer_of
from stowplan.tables import Keys, below, list_of, read_table, text, truth
from stowplan.variables import variable

VARIABLE = "STOWPLAN_CATALOGUE"
_SECTIONS = ("gpu", "model")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_REQUIRED = {"source": text}
_OPTIONAL = {"aliases": list_of(text), "replaces": truth}

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[T]):
    """One entry; `value` is what its table describes."""

    name: str
    source: str
    aliases: tuple[str, ...]
    value: T

    @property
    def names(self) -> tuple[str, ...]:
        """The name and all others."""
        return (self.name, *self.aliases)


class Catalogue(Generic[T]):
    """Entries in the order of the files, found by name or alias."""

    def __init__(self, entries: Sequence[Entry[T]], key: Callable[[str], str]) -> None:
        self.entries = tuple(entries)
        self._key = key
        self._by_key = {key(name): entry for entry in entries for name in entry.names}

    def find(self, name: str) -> Entry[T] | None:
        """Entry of this name or alias, in any notation that has the same key."""
        return self._by_key.get(self._key(name))

    def unknown(self, noun: str, name: str) -> InputError:
        """Error for a name that is not found, with near matches and all names."""
        names = [entry.name for entry in self.entries]
        aliases = [alias for entry in self.entries for alias in entry.aliases]
        near = difflib.get_close_matches(name.lower(), [*names, *aliases], cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
        return InputError(f"no {noun} {name!r} in the catalogue; {hint}known: {', '.join(names)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section(Generic[T]):
    """How one section is read.

    `shipped`: the file that is always read. `keys`: those of a table besides the common ones. `build`: value of an
    entry from name, source and values; raises InputError with pointers into the table. `key`: what of a name counts in
    look-ups.
    """

    name: str
    shipped: Path
    keys: Callable[[Mapping[str, object]], Keys]
    build: Callable[[str, str, dict[str, Any]], T]
    key: Callable[[str], str]

    def read(self, own: str | None) -> Catalogue[T]:
        """Shipped entries, and those of the user's file `own`.

        Raises
        ------
        InputError
            When a file cannot be read or is wrong: one issue per fault, with its pointer and what would be right.
        """
        entries = self._merged({}, self.shipped)
        if own is not None:
            entries = self._merged(entries, Path(own))
        return Catalogue(tuple(entries.values()), self.key)

    def _merged(self, known: Mapping[str, Entry[T]], file: Path) -> dict[str, Entry[T]]:
        """The known entries, and those of a file."""
        entries, issues = dict(known), list[Issue]()
        holders = {self.key(name): entry.name for entry in known.values() for name in entry.names}
        for name, table in _tables(file, self.name).items():
            try:
                entry = self._entry(name, table, known)
                self._refuse_taken(entry, holders)
            except InputError as error:
                issues += below(pointer_of(self.name, name), error)
                continue
            entries[name] = entry
            holders |= {self.key(other): name for other in entry.names}
        if issues:
            raise _wrong(file, issues)
        return entries

    def _entry(self, name: str, table: object, known: Mapping[str, Entry[T]]) -> Entry[T]:
        if not _NAME.fullmatch(name):
            raise InputError("is no name: lower-case letters, digits and . - _, beginning with a letter or digit")
        if not isinstance(table, dict):
            raise InputError(f"is no table; write [{self.name}.{name}] and its keys below")
        keys = self.keys(table)
        for key, value in table.items():
            if isinstance(value, dict) and key not in keys.required | keys.optional:
                raise InputError(
                    f'has no table {key!r}; a name with a dot stands in quotes: [{self.name}."{name}.{key}"]'
                )
        values = read_table(table, Keys(required=keys.required | _REQUIRED, optional=keys.optional | _OPTIONAL))
        source, aliases = values.pop("source"), values.pop("aliases", ())
        if values.pop("replaces", False):
            if name not in known:
                raise _at("/replaces", f"is true, and nothing is called {name!r}; known: {', '.join(known)}")
            aliases = (*known[name].aliases, *aliases)
        elif name in known:
            raise InputError("is in the catalogue already: choose another name, or say replaces = true")
        return Entry(name=name, source=source, aliases=aliases, value=self.build(name, source, values))

    def _refuse_taken(self, entry: Entry[T], holders: Mapping[str, str]) -> None:
        """Refuse names that find another entry, or have nothing to be found by."""
        for name in entry.names:
            pointer, key = "" if name == entry.name else "/aliases", self.key(name)
            holder = holders.get(key, entry.name)
            if not key:
                raise _at(pointer, f"{name!r} says nothing; choose a name with letters or digits of its own")
            if holder != entry.name:
                raise _at(pointer, f"{name!r} finds {holder!r} in the catalogue; choose another name")


def own_file() -> str | None:
    """Path of the user's file; None without one."""
    return os.environ.get(VARIABLE) or None


def own_digest() -> str | None:
    """SHA-256 of the user's file, as it was when this process first asked; None without one that can be read."""
    file = own_file()
    return None if file is None else _digest(file)


@cache
def _digest(file: str) -> str | None:
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return None


@contextmanager
def own_catalogue(file: Path) -> Iterator[None]:
    """Make a file the user's one, for this process and those that it starts."""
    with variable(VARIABLE, str(file.absolute())):
        yield


def _tables(file: Path, section: str) -> Mapping[str, object]:
    """Tables of one section by name, none where a file has no such section."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{file}: is not TOML: {error}") from error
    if unknown := [name for name in document if name not in _SECTIONS]:
        issues = [_fault(pointer_of(name), "is no section; write [gpu.NAME] or [model.NAME]") for name in unknown]
        raise _wrong(file, issues)
    tables = document.get(section, {})
    if not isinstance(tables, dict):
        raise _wrong(file, [_fault(pointer_of(section), f"is {tables!r}; write [{section}.NAME]")])
    return tables


def _wrong(file: Path, issues: Sequence[Issue]) -> InputError:
    noun = "fault" if len(issues) == 1 else "faults"
    return InputError(f"{file}: the catalogue has {len(issues)} {noun}", issues)


def _at(pointer: str, detail: str) -> InputError:
    return InputError(detail, [_fault(pointer, detail)])


def _fault(pointer: str, detail: str) -> Issue:
    return Issue(code="invalid_entry", pointer=pointer, detail=detail)
