"""Pages of lists whose rows are stored as they began and as they ended, and shown as they stand."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from pydantic import BaseModel

RowT = TypeVar("RowT", bound=BaseModel)
Fetch = Callable[[tuple[str, ...], int, int | None], list[tuple[int, str]]]
"""(fields, limit, before) -> sequence and these fields as JSON text, from the newest to the oldest, below `before`."""


class Standing(Protocol):
    """Work that is not final yet; `document` is what clients see of it, with the fields of its row and more."""

    @property
    def document(self) -> BaseModel:
        """As it stands."""


class Query(Protocol):
    """Which page is asked for: so many rows, below a sequence (None: the newest)."""

    @property
    def limit(self) -> int:
        """At least 1."""

    @property
    def before(self) -> int | None:
        """The last one of the page before."""


def page_of(
    kind: type[RowT],
    fetch: Fetch,
    active: Callable[[RowT], Standing | None],
    path: str,
    query: Query,
) -> tuple[tuple[RowT, ...], str | None]:
    """Give the rows of a page, and the path of the next one (None: it is the last).

    Parameters
    ----------
    active
        The work of a row, while that is not final: of it the store knows only how it began.
    path
        Of the list.
    """
    # One more than asked for tells whether there is a next page.
    records = fetch(tuple(kind.model_fields), query.limit + 1, query.before)
    page = records[: query.limit]
    more = f"{path}?limit={query.limit}&before={page[-1][0]}" if len(records) > query.limit else None
    rows = (kind.model_validate_json(text) for _, text in page)
    return tuple(_as_it_stands(row, active(row)) for row in rows), more


def _as_it_stands(row: RowT, work: Standing | None) -> RowT:
    if work is None:
        return row
    return type(row)(**{name: getattr(work.document, name) for name in type(row).model_fields})
