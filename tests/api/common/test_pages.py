"""Pages of rows that are shown as they stand."""

from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from api.common.pages import page_of


class Row(BaseModel):
    id: str
    status: str


class Whole(Row):
    detail: str


@dataclass
class Work:
    document: Whole


@dataclass
class Query:
    limit: int
    before: int | None = None


STORED = [(k, Row(id=f"r{k}", status="queued")) for k in (5, 3, 2)]
WORK = {"r3": Work(Whole(id="r3", status="running", detail="half"))}


def fetch(fields: tuple[str, ...], limit: int, before: int | None) -> list[tuple[int, str]]:
    assert fields == ("id", "status")
    found = [(k, row.model_dump_json()) for k, row in STORED if before is None or k < before]
    return found[:limit]


@pytest.mark.parametrize(
    ("query", "expected", "more"),
    [
        (Query(1), ["r5 queued"], "/rows?limit=1&before=5"),
        (Query(2), ["r5 queued", "r3 running"], "/rows?limit=2&before=3"),
        (Query(3), ["r5 queued", "r3 running", "r2 queued"], None),
        (Query(1, 3), ["r2 queued"], None),
        (Query(9, 2), [], None),
    ],
)
def test_a_page(query: Query, expected: list[str], more: str | None) -> None:
    rows, next_ = page_of(Row, fetch, lambda row: WORK.get(row.id), "/rows", query)
    assert [f"{row.id} {row.status}" for row in rows] == expected
    assert {type(row) for row in rows} <= {Row}
    assert next_ == more
