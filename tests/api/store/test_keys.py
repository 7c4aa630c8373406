"""Keys of requests: each collection has its own, and a restart forgets none."""

from pathlib import Path

import pytest

from api.common.errors import IdempotencyConflictError
from api.store.database import Store
from api.store.keys import RequestKey
from api.store.replays import ReplayStore


def asked(collection: str, input_hash: str) -> RequestKey:
    return RequestKey(collection=collection, key="k", input_hash=input_hash)


def test_keys_last_until_what_they_are_of_is_deleted(lasting: Path | str) -> None:
    store = Store(lasting)
    ReplayStore(store).add("r", "{}", "{}", asked("replays", "1"))
    store.add_comparison("c", "{}", asked("comparisons", "2"))
    store.close()
    store = Store(lasting)
    assert store.resource_of(asked("replays", "1")) == "r"
    assert store.resource_of(asked("comparisons", "2")) == "c"
    assert store.resource_of(asked("plans", "1")) is None
    with pytest.raises(IdempotencyConflictError, match="belongs to r, which has another request"):
        store.resource_of(asked("replays", "2"))
    ReplayStore(store).finish("r", "{}", "[]", is_interrupted=False)
    store.finish_comparison("c", "{}", is_interrupted=False)
    assert store.resource_of(asked("replays", "1")) == "r"
    assert ReplayStore(store).delete("r")
    assert store.resource_of(asked("replays", "2")) is None
    assert store.resource_of(asked("comparisons", "2")) == "c"
    store.close()


def test_what_was_interrupted_begins_anew(location: Path | str | None) -> None:
    store = Store(location)
    ReplayStore(store).add("r", "{}", "{}", asked("replays", "1"))
    store.add_comparison("c", "{}", asked("comparisons", "2"))
    ReplayStore(store).finish("r", "{}", "[]", is_interrupted=True)
    assert store.resource_of(asked("replays", "1")) is None
    assert store.resource_of(asked("comparisons", "2")) == "c"
    store.finish_comparison("c", "{}", is_interrupted=True)
    assert store.resource_of(asked("comparisons", "2")) is None
    # It keeps what it found.
    assert store.comparison("c") == "{}"
    store.close()
