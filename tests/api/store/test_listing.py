"""Lists of documents: what they show, and what showing it costs."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from api.store.database import Store
from api.store.replays import ReplayStore
from tests.growth import work

FIELDS = ("id", "seeds", "links")


Page = Callable[[int, int | None], list[tuple[int, str]]]


def added_replays(opened: Store, documents: list[str]) -> Page:
    store = ReplayStore(opened)
    for k, document in enumerate(documents):
        store.add(f"r{k}-{len(document)}", document, "{}")
    return lambda limit, before: store.page(FIELDS, limit, before)


def added_comparisons(store: Store, documents: list[str]) -> Page:
    for k, document in enumerate(documents):
        store.add_comparison(f"c{k}-{len(document)}", document)
    return lambda limit, before: store.comparisons(FIELDS, limit, before)


def document(number: int, num_rows: int) -> str:
    rows = [{"figures": {"mean": k}} for k in range(num_rows)]
    return json.dumps({"id": f"é{number}", "seeds": [1, 2], "links": {"self": "/x", "figure": None}, "replays": rows})


@pytest.mark.parametrize("added", [added_replays, added_comparisons])
def test_only_the_fields_of_the_list_come_whatever_else_there_is(
    added: Callable[[Store, list[str]], Page], location: Path | str | None
) -> None:
    with closing(Store(location)) as store:
        page = added(store, [document(k, 1) for k in range(5)])
        shown = [(sequence, json.loads(text)) for sequence, text in page(2, 4)]
        small, small_work = page(5, None), work(lambda: page(5, None))
        added(store, [document(k, 3000) for k in range(5)])
        large, large_work = page(5, None), work(lambda: page(5, None))
    rest = {"seeds": [1, 2], "links": {"self": "/x", "figure": None}}
    assert shown == [(3, {"id": "é2", **rest}), (2, {"id": "é1", **rest})]
    assert [len(text) for _, text in large] == [len(text) for _, text in small]
    assert large_work <= 1.1 * small_work
