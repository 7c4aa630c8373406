"""Documents that Slurm writes as JSON: which version they are, and their records, read with the place of what is wrong.

The version is that of the data parser plugin (`meta.plugin.data_parser`), before Slurm 23.02 that of the OpenAPI plugin
(`meta.plugin.type`). What differs between versions is how values are written: numbers as `5`, or from 0.0.39 on partly
as `{"set": true, "infinite": false, "number": 5}`; states as a text, or as a list of words; the flags of a node's state
in `state_flags`, or among them. Every field is read in all its forms, whatever the version is.
"""

import math
import re
from collections.abc import Sequence

from models.cluster_state.base import SourceDocument
from models.cluster_state.json_documents import read_json_document, read_listed
from stowplan.errors import FileFormatError, pointer_of

SUPPORTED = range(38, 45)
"""Versions v0.0.N: 38 is that of Slurm 22.05, 44 that of 25.11."""

_VERSION = re.compile(r"v0\.0\.(\d+)")


class Record:
    """A JSON object at a pointer of a document. Fields that are absent, null or not set are None or empty."""

    __slots__ = ("document", "pointer", "value")

    def __init__(self, document: SourceDocument, pointer: str, value: object) -> None:
        if not isinstance(value, dict):
            raise document.fault(f"is {_kind(value)}; must be an object", pointer=pointer)
        self.document = document
        self.pointer = pointer
        self.value = value

    def fault(self, key: str, detail: str) -> FileFormatError:
        """The error for something that is wrong with a field."""
        return self.document.fault(detail, pointer=self.pointer + pointer_of(key) if key else self.pointer)

    def number(self, key: str) -> float | None:
        """A finite number, plain or wrapped; None where there is none, infinity for one without limit."""
        found = self.value.get(key)
        if found is None or type(found) is int:
            return found
        if type(found) is dict:
            if found.get("infinite") is True:
                return math.inf
            if found.get("set") is not True:
                return None
            found = found.get("number")
            if found is None or type(found) is int:
                return found
        if isinstance(found, bool) or not isinstance(found, int | float) or not math.isfinite(found):
            raise self.fault(key, f"is {found!r}; must be a number")
        return float(found)

    def time_s(self, key: str) -> float | None:
        """A moment in seconds since 1970; None where it has not come, or is not known."""
        at_s = self.number(key)
        return at_s if at_s is not None and 0 < at_s < math.inf else None

    def count(self, key: str) -> int:
        """A whole number from 0 on; 0 where there is none."""
        found = self.number(key)
        if not found or found == math.inf:
            return 0
        if type(found) is int and found > 0:
            return found
        if found < 0 or found != int(found):
            raise self.fault(key, f"is {found:g}; must be a whole number from 0 on")
        return int(found)

    def text(self, key: str) -> str:
        """A text without blanks around it and without control characters; empty where there is none."""
        found = self.value.get(key)
        if found is None or found == "":
            return ""
        if not isinstance(found, str):
            raise self.fault(key, f"is {_kind(found)}; must be a text")
        return (found if found.isprintable() else "".join(filter(str.isprintable, found))).strip()

    def words(self, key: str) -> Sequence[str]:
        """A list of texts; a text alone is one with commas between them."""
        found = self.value.get(key)
        if isinstance(found, str):
            return [word.strip() for word in found.split(",") if word.strip()]
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
            raise self.fault(key, f"is {_kind(found)}; must be a text or a list of texts")
        return found

    def record(self, key: str) -> "Record":
        """An object; an empty one where there is none."""
        found = self.value.get(key)
        return Record(self.document, self.pointer + pointer_of(key), {} if found is None else found)


def slurm_records(
    document: SourceDocument, key: str, command: str, fields: tuple[str, ...] | None = None
) -> list[Record]:
    """The records that stand under a key of a document, which `command` is known to write.

    Parameters
    ----------
    fields
        Those of a record that are read; None for all. Of records by the ten thousand reading all takes three times as
        long.

    Raises
    ------
    FileFormatError
        When there is no such list, or the document is of another version.
    """
    whole = read_json_document(document) if fields is None else read_listed(document, key, fields)
    if not isinstance(whole, dict):
        raise document.fault(f"is {_kind(whole)}; give what `{command}` writes", pointer="")
    check_version(document, whole)
    found = whole.get(key)
    if not isinstance(found, list):
        others = ", ".join(name for name in whole if name not in ("meta", "errors", "warnings")) or "nothing"
        raise document.fault(f"has no list {key!r} (it has {others}); give what `{command}` writes", pointer="")
    return [Record(document, f"/{key}/{k}", value) for k, value in enumerate(found)]


def check_version(document: SourceDocument, whole: dict[str, object]) -> None:
    """Refuse a document of a version that is not known, by name."""
    top = Record(document, "", whole)
    plugin = top.record("meta").record("plugin")
    said = plugin.text("data_parser") or plugin.text("type")
    found = _VERSION.search(said)
    if found is None or int(found[1]) not in SUPPORTED:
        what = f"is of version {said!r}" if said else "does not say of which data parser version it is"
        known = f"v0.0.{SUPPORTED[0]} to v0.0.{SUPPORTED[-1]}"
        remedy = f"known are {known}; newer Slurm writes one of these on demand: --json=v0.0.{SUPPORTED[-1]}"
        raise document.fault(f"{what}; {remedy}", pointer="/meta/plugin")


def _kind(value: object) -> str:
    """JSON's word for the type of a value."""
    words = {dict: "an object", list: "a list", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return "null" if value is None else words[type(value)]
