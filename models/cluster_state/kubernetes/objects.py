"""Objects of Kubernetes' API: lists of them as `kubectl get -o json` writes, and fields read with their place."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from models.cluster_state.base import SourceDocument
from models.cluster_state.json_documents import read_json_document
from stowplan.errors import FileFormatError, pointer_of

MAX_OBJECTS = 500_000
_QUANTITY = re.compile(r"\d+")
# The same few keys over and over, of each of many objects.
_step = lru_cache(maxsize=1024)(pointer_of)


class Object:
    """A JSON object at a pointer of a document. Fields that are absent or null are None or empty."""

    __slots__ = ("document", "pointer", "value")

    def __init__(self, document: SourceDocument, pointer: str, value: object) -> None:
        if not isinstance(value, dict):
            raise document.fault("must be an object", pointer=pointer)
        self.document = document
        self.pointer = pointer
        self.value = value

    def fault(self, detail: str, *keys: str | int) -> FileFormatError:
        """The error for something that is wrong, below keys."""
        return self.document.fault(detail, pointer=self.pointer + "".join(pointer_of(str(key)) for key in keys))

    def object(self, *keys: str) -> "Object":
        """The object below keys; an empty one where there is none."""
        found, pointer = self.value, self.pointer
        for key in keys:
            found = found.get(key) or {}
            pointer += _step(key)
            if not isinstance(found, dict):
                raise self.document.fault("must be an object", pointer=pointer)
        return Object(self.document, pointer, found)

    def objects(self, key: str) -> Iterator["Object"]:
        """The objects of a list; none where there is no list."""
        found = self.value.get(key) or []
        if not isinstance(found, list):
            raise self.fault("must be a list", key)
        for k, value in enumerate(found):
            yield Object(self.document, f"{self.pointer}{_step(key)}/{k}", value)

    def text(self, key: str) -> str:
        """A text; empty where there is none."""
        found = self.value.get(key)
        if found is None:
            return ""
        if not isinstance(found, str):
            raise self.fault(f"is {found!r}; must be a text", key)
        return found

    def number(self, key: str) -> float | None:
        """A number; None where there is none."""
        found = self.value.get(key)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise self.fault(f"is {found!r}; must be a number", key)
        return float(found)

    def texts(self, key: str) -> Mapping[str, str]:
        """A map of texts, such as labels; empty where there is none."""
        found = self.value.get(key) or {}
        if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
            raise self.fault("must be an object of texts", key)
        return found

    def count(self, key: str) -> int:
        """A quantity of something that comes in whole numbers; 0 where there is none."""
        found = self.value.get(key)
        if found is None:
            return 0
        if not _QUANTITY.fullmatch(str(found)):
            raise self.fault(f"is {found!r}; must be a whole number from 0 on", key)
        return int(found)

    def time_s(self, key: str) -> float | None:
        """A moment in seconds since 1970; None where there is none."""
        text = self.text(key)
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise self.fault(f"is {text!r}; must be a moment such as 2026-12-07T09:00:00Z", key) from error
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    @property
    def name(self) -> str:
        """Name of the object."""
        found = self.object("metadata").text("name")
        if not found:
            raise self.fault("is missing; must be the name of the object", "metadata", "name")
        return found

    @property
    def namespace(self) -> str:
        """Its namespace; `default` where it says none, as kubectl has it."""
        return self.object("metadata").text("namespace") or "default"


def kubernetes_objects(
    documents: Iterable[SourceDocument], kinds: Mapping[str, Sequence[str]], command: str
) -> Iterator[tuple[str, Object]]:
    """Kind and object of all that documents hold: lists of any kind, or single objects.

    Parameters
    ----------
    kinds
        The kinds that may stand there -> versions of their API that are read.
    command
        What writes such documents.

    Raises
    ------
    FileFormatError
        When something else stands there; names the document, the place, and what may.
    """
    for document in documents:
        whole = Object(document, "", read_json_document(document))
        kind = whole.text("kind")
        if not kind:
            raise document.fault(f"has no kind; give what `{command}` writes", pointer="/kind")
        parts = whole.objects("items") if kind.endswith("List") and kind not in kinds else iter((whole,))
        for k, part in enumerate(parts):
            if k >= MAX_OBJECTS:
                raise part.fault(f"is one of more than {MAX_OBJECTS} objects")
            # Lists of one kind leave it out of their items in older versions.
            own = part.text("kind") or kind.removesuffix("List")
            version = part.text("apiVersion") or whole.text("apiVersion")
            if own not in kinds:
                raise part.fault(
                    f"is of kind {own!r}; must be {' or '.join(kinds)}: give what `{command}` writes", "kind"
                )
            if version not in kinds[own]:
                raise part.fault(f"is {version!r}; of {own} are read {', '.join(kinds[own])}", "apiVersion")
            yield own, part
