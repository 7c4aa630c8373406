"""What is remembered of earlier choices and searches changes nothing but the time."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.incremental import progress, selection, tables
from models.parallelism.incremental.expand import expand
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.incremental.problem import Problem
from models.parallelism.incremental.search import Growth, Search
from models.parallelism.incremental.shrink import shrink
from stowplan.arrays import IntArray
from tests.models.parallelism.incremental.scenes import gpus_of, job, models, plans, symmetric

_OPTIONS = IncrementalOptions(tolerance=0.0)


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_plans_are_those_of_tables_that_remember_nothing(data: st.DataObject) -> None:
    model = data.draw(models(num_types=2))
    plan, other = data.draw(plans(model)), data.draw(plans(model))
    # More and fewer GPUs, on more and fewer nodes than before, and another plan between.
    few, many = sorted(data.draw(st.lists(st.integers(1, 7), min_size=2, max_size=2)))
    asked = [(plan, few), (other, many), (plan, many), (plan, few), (other, few)]

    def answers(*, is_forgetful: bool) -> list[object]:
        tables._tables.cache_clear()
        found: list[object] = []
        for held, count in asked:
            if is_forgetful:
                tables._tables.cache_clear()
            released = [(f"node {2 + k // 4}", k % 4) for k in range(8)]
            free = [gpu for gpu in released if gpu not in held.gpus][:count]
            found += [expand(model, held, free, _OPTIONS), shrink(model, held, held.gpus[:1], _OPTIONS)]
        return found

    assert answers(is_forgetful=False) == answers(is_forgetful=True)


@pytest.mark.parametrize("window", [None, 2])
def test_a_search_goes_on_where_what_is_released_differs(monkeypatch: pytest.MonkeyPatch, window: int | None) -> None:
    """Six GPUs of a third node, then three of these and four of a fourth: what the first three bring is known."""
    model = job("llama2-7b", num_nodes=4)
    plan = symmetric(model, 2, 2, 2, 16, gpus_of(0, 8))
    options = replace(_OPTIONS, window=window)
    expand(model, plan, gpus_of(16, 22), options)
    steps = 0
    step = Search.step

    def counted(search: Search, growth: Growth, available: IntArray) -> Growth:
        nonlocal steps
        steps += 1
        return step(search, growth, available)

    monkeypatch.setattr(Search, "step", counted)
    released = [*gpus_of(16, 19), *gpus_of(24, 28)]
    resumed = expand(model, plan, released, options)
    assert steps == 4
    tables._tables.cache_clear()
    assert expand(model, plan, released, options) == resumed
    assert steps == 4 + 7


def test_a_job_that_sits_alike_elsewhere_is_not_reckoned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node of the plan, and the same number of GPUs of another node: which ones these are makes no difference."""
    model = job("llama2-7b", num_nodes=6)
    here, there = (symmetric(model, 2, 2, 2, 16, gpus_of(first, first + 8)) for first in (0, 8))
    first = expand(model, here, gpus_of(16, 22), _OPTIONS)

    def fails(*_: object) -> None:
        raise AssertionError("estimated again")

    monkeypatch.setattr(selection, "estimate", fails)
    second = expand(model, there, gpus_of(32, 38), _OPTIONS)
    assert [step.throughput for step in second.steps] == [step.throughput for step in first.steps]


def test_tables_are_those_of_the_job_whatever_its_nodes() -> None:
    model = job("llama2-7b", num_nodes=2)
    plan = symmetric(model, 2, 2, 2, 16, gpus_of(0, 8))
    elsewhere = replace(model, fabric=replace(model.fabric, hosts=dict(model.fabric.hosts)))
    own, other = (Problem.of(on, plan, _OPTIONS).tables for on in (model, elsewhere))
    assert own is other
    assert Problem.of(replace(model, headroom=0.2), plan, _OPTIONS).tables is not own
    assert Problem.of(replace(model, send_receive=not model.send_receive), plan, _OPTIONS).tables is not own


def test_what_is_remembered_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    model = job("llama2-7b", num_nodes=3)
    plan = symmetric(model, 2, 2, 2, 16, gpus_of(0, 8))
    known = Problem.of(model, plan, _OPTIONS).tables
    monkeypatch.setattr(tables, "_MOST_CHOICES", 4)
    monkeypatch.setattr(progress, "_MOST_NUMBERS", 1000)
    expand(model, plan, gpus_of(8, 16), _OPTIONS)
    assert 0 < len(known.choices) <= 4
    assert progress.progress_of(known)._numbers <= 1000
