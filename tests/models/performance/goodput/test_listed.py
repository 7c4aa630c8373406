"""What tables list is read once of each, and of all that list the same told apart once."""

from functools import lru_cache
from unittest.mock import MagicMock

import numpy as np
import pytest

from models.configurations import enumerate_configurations
from models.performance.goodput import check
from models.performance.goodput.check import performance_issues
from models.performance.goodput.listed import listed
from models.performance.goodput.matrix import evaluate
from models.performance.goodput.spec import GoodputTable, TableEntry, ThroughputTable
from models.workload import Job
from tests.growth import work
from tests.models.placement.scenes import cluster, node


def table(value: float, *counts: int) -> GoodputTable:
    return GoodputTable(entries=tuple(TableEntry(gpu_type="a", num_gpus=n, value=value * n) for n in counts))


def test_tables_that_list_the_same_have_one_layout() -> None:
    one, other = listed(table(1.0, 1, 2, 4)), listed(table(3.0, 1, 2, 4))
    assert one.layout is other.layout
    assert one.layout.shapes == (("a", 1, None), ("a", 2, None), ("a", 4, None))
    assert one.layout.most_gpus == 4
    assert other.values == (3.0, 6.0, 12.0)
    assert listed(table(1.0, 2, 1, 4)).layout is not one.layout
    assert listed(ThroughputTable(entries=table(1.0, 1, 2, 4).entries)).layout is one.layout
    assert listed(GoodputTable(entries=())).layout.most_gpus == 0


def test_tables_of_any_layouts_are_looked_up_together() -> None:
    tables = [table(1.0, 1, 2, 4), table(2.0, 4, 1), table(3.0, 16), table(4.0, 1, 2, 4)]
    jobs = [Job(id=f"j{k}", performance=each) for k, each in enumerate(tables)]
    configurations = enumerate_configurations(cluster(node("n", num_gpus=4)))
    assert configurations.num_gpus.tolist() == [1, 2, 4]
    found = evaluate(jobs, configurations).goodput
    np.testing.assert_array_equal(found, [[1, 2, 4], [2, 0, 8], [0, 0, 0], [4, 8, 16]])


def test_what_is_listed_is_looked_at_once() -> None:
    shapes = 200
    tables = [table(float(k), *range(1, shapes + 1)) for k in range(1, 11)]
    first, again = (work(lambda: [listed(each) for each in tables]) for _ in range(2))
    assert again < first / 2


def test_whether_layouts_are_sound_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    names = MagicMock(wraps=check._named_types.__wrapped__)
    monkeypatch.setattr(check, "_named_types", lru_cache(names))
    issues = [performance_issues(table(float(k), 1, 2), "", ("a",)) for k in range(3)]
    assert [len(each) for each in issues] == [2, 0, 0]  # a value of 0 is none
    names.assert_called_once()
