"""Lists of documents: what they show, and what showing it costs."""

import json
from collections.abc import Callable

import pytest

from api.store.database import Store
from api.store.replays import ReplayStore
from tests.growth import work

FIELDS = ("id", "seeds", "links")


def added_replays(documents: list[str]) -> Callable[[int, int | None], list[tuple[int, str]]]:
    store = ReplayStore(Store(None))
    for k, document in enumerate(documents):
        store.add(f"r{k}", document, "{}")
    return lambda limit, before: store.page(FIELDS, limit, before)


def added_comparisons(documents: list[str]) -> Callable[[int, int | None], list[tuple[int, str]]]:
    store = Store(None)
    for k, document in enumerate(documents):
        store.add_comparison(f"c{k}", document)
    return lambda limit, before: store.comparisons(FIELDS, limit, before)


def document(number: int, num_rows: int) -> str:
    rows = [{"figures": {"mean": k}} for k in range(num_rows)]
    return json.dumps({"id": f"é{number}", "seeds": [1, 2], "links": {"self": "/x", "figure": None}, "replays": rows})


@pytest.mark.parametrize("added", [added_replays, added_comparisons])
def test_only_the_fields_of_the_list_come_whatever_else_there_is(
    added: Callable[[list[str]], Callable[[int, int | None], list[tuple[int, str]]]],
) -> None:
    page = added([document(k, 1) for k in range(5)])
    shown = [(sequence, json.loads(text)) for sequence, text in page(2, 4)]
    rest = {"seeds": [1, 2], "links": {"self": "/x", "figure": None}}
    assert shown == [(3, {"id": "é2", **rest}), (2, {"id": "é1", **rest})]
    large = added([document(k, 3000) for k in range(5)])
    assert [len(text) for _, text in large(10, None)] == [len(text) for _, text in page(10, None)]
    assert work(lambda: large(10, None)) <= 1.1 * work(lambda: page(10, None))
