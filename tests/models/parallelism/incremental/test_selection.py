"""What is remembered of earlier choices and searches changes nothing but the time."""

import gc
import weakref
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.incremental import compiled, selection, tables
from models.parallelism.incremental import expand as expanding
from models.parallelism.incremental.expand import expand
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.incremental.problem import Problem
from models.parallelism.incremental.progress import Searches, searches
from models.parallelism.incremental.search import Growth, Search
from models.parallelism.incremental.shrink import shrink
from models.parallelism.incremental.tables import CostTables
from models.performance.iteration.model import PerformanceModel
from stowplan.arrays import IntArray
from stowplan.recent import Recent
from tests.models.parallelism.incremental.scenes import gpus_of, job, models, plans, symmetric

_OPTIONS = IncrementalOptions(tolerance=0.0)


def _forget() -> None:
    tables.kept.clear()
    searches.clear()


@pytest.fixture
def num_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many steps searches have made since it was last asked."""
    made: list[IntArray] = []
    step = Search.step

    def counted(search: Search, growth: Growth, available: IntArray) -> Growth:
        made.append(available)
        return step(search, growth, available)

    def num_made() -> int:
        count = len(made)
        made.clear()
        return count

    monkeypatch.setattr(Search, "step", counted)
    return num_made


@settings(max_examples=6, deadline=None)
@given(st.data())
def test_plans_are_those_of_tables_that_remember_nothing(data: st.DataObject) -> None:
    model = data.draw(models(num_types=2))
    plan, other = data.draw(plans(model)), data.draw(plans(model))
    # More and fewer GPUs, on more and fewer nodes than before, and another plan between.
    few, many = sorted(data.draw(st.lists(st.integers(1, 7), min_size=2, max_size=2)))
    asked = [(plan, few), (other, many), (plan, many), (plan, few), (other, few)]

    def answers(*, is_forgetful: bool) -> list[object]:
        _forget()
        found: list[object] = []
        for held, count in asked:
            if is_forgetful:
                _forget()
            released = [(f"node {2 + k // 4}", k % 4) for k in range(8)]
            free = [gpu for gpu in released if gpu not in held.gpus][:count]
            found += [expand(model, held, free, _OPTIONS), shrink(model, held, held.gpus[:1], _OPTIONS)]
        return found

    assert answers(is_forgetful=False) == answers(is_forgetful=True)


@pytest.mark.parametrize("window", [None, 2])
def test_a_search_goes_on_where_what_is_released_differs(num_steps: Callable[[], int], window: int | None) -> None:
    """Six GPUs of a third node, then three of these and four of a fourth: what the first three bring is known."""
    model = job("llama2-7b", num_nodes=4)
    plan = symmetric(model, 2, 2, 2, 16, gpus_of(0, 8))
    options = replace(_OPTIONS, window=window)
    expand(model, plan, gpus_of(16, 22), options)
    num_steps()
    released = [*gpus_of(16, 19), *gpus_of(24, 28)]
    resumed = expand(model, plan, released, options)
    assert num_steps() == 4
    _forget()
    assert expand(model, plan, released, options) == resumed
    assert num_steps() == 7


def test_large_jobs_are_remembered_and_drive_no_others_out(num_steps: Callable[[], int]) -> None:
    """A job of 512 GPUs that could get as many, one of 256, and a small one."""
    asked = []
    for num_gpus in (8, 256, 512):
        model = job("llama2-7b", num_nodes=num_gpus // 4, global_batch=1024)
        plan = symmetric(model, 2, num_gpus // 8, 4, 16, gpus_of(0, num_gpus))
        options = replace(_OPTIONS, window=1, unit=num_gpus // 8)
        asked.append((model, plan, gpus_of(num_gpus, 2 * num_gpus), options))
    found = [expand(*question) for question in asked]
    assert num_steps() >= 3 * 8
    assert [expand(*question) for question in asked] == found
    assert num_steps() == 0


def test_what_is_full_drops_the_oldest_search(monkeypatch: pytest.MonkeyPatch, num_steps: Callable[[], int]) -> None:
    """Room for one search and a half; the plans differ in their micro-batches."""
    model = job("llama2-7b", num_nodes=3)
    first, second = (symmetric(model, 2, 2, 2, count, gpus_of(0, 8)) for count in (16, 32))
    alone = Searches()
    monkeypatch.setattr(expanding, "searches", alone)
    expand(model, first, gpus_of(8, 16), _OPTIONS)
    most = alone.num_numbers * 3 // 2
    both = Searches(most_numbers=most, most_of_one=most)
    monkeypatch.setattr(expanding, "searches", both)
    for plan in (first, second):
        expand(model, plan, gpus_of(8, 16), _OPTIONS)
    num_steps()
    expand(model, second, gpus_of(8, 16), _OPTIONS)
    assert num_steps() == 0
    expand(model, first, gpus_of(8, 16), _OPTIONS)
    assert num_steps() == 8
    assert 0 < both.num_numbers <= most


def test_a_search_that_is_too_large_keeps_its_first_steps(
    monkeypatch: pytest.MonkeyPatch, num_steps: Callable[[], int]
) -> None:
    model = job("llama2-7b", num_nodes=3)
    plan = symmetric(model, 2, 2, 2, 16, gpus_of(0, 8))
    alone = Searches()
    monkeypatch.setattr(expanding, "searches", alone)
    found = expand(model, plan, gpus_of(8, 16), _OPTIONS)
    half = Searches(most_of_one=alone.num_numbers // 2)
    monkeypatch.setattr(expanding, "searches", half)
    expand(model, plan, gpus_of(8, 16), _OPTIONS)
    num_steps()
    assert expand(model, plan, gpus_of(8, 16), _OPTIONS) == found
    assert 0 < num_steps() < 8
    assert half.num_numbers <= alone.num_numbers // 2


def test_a_job_that_sits_alike_elsewhere_is_not_reckoned_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One node of the plan, and the same number of GPUs of another node: which ones these are makes no difference."""
    monkeypatch.setattr(compiled, "core", None)
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


def test_tables_do_not_keep_the_nodes_of_the_model() -> None:
    model = job("llama2-7b", num_nodes=2)
    assert model.retrained is not None
    known = CostTables.of(model, Landscape.of(model.fabric, ["0"]).kinds, [1, 2])
    # It has the model on all nodes.
    retrained = weakref.ref(model.retrained)
    del model
    gc.collect()
    assert retrained() is None
    assert not known.model.fabric.hosts


def test_tables_are_kept_by_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bytes count what is made later, too; tables that are large are made and not kept."""
    few, many = (job("llama2-7b", num_nodes=2, global_batch=batch) for batch in (64, 1024))

    def of(model: PerformanceModel) -> CostTables:
        return CostTables.of(model, Landscape.of(model.fabric, ["0"]).kinds, [1, 2, 4, 8])

    known = of(many)
    arrays = (known.forward_s, known.backward_s, known.communication_s, known.layer_s, *known.fill_order)
    # Of the times by which replicas fill there is none of no sample.
    assert known.num_bytes == pytest.approx(sum(array.nbytes for array in arrays), rel=0.01)
    monkeypatch.setattr(tables, "kept", Recent(most=2**20, most_of_one=known.num_bytes - 1, most_entries=64))
    assert of(few) is of(few)
    assert of(many) is not of(many)
    np.testing.assert_array_equal(of(many).layer_s, known.layer_s)
    assert tables.kept.weight == of(few).num_bytes


def test_what_is_remembered_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "core", None)
    model = job("llama2-7b", num_nodes=3)
    plan = symmetric(model, 2, 2, 2, 16, gpus_of(0, 8))
    known = Problem.of(model, plan, _OPTIONS).tables
    monkeypatch.setattr(tables, "_MOST_CHOICES", 4)
    expand(model, plan, gpus_of(8, 16), _OPTIONS)
    assert 0 < len(known.choices) <= 4
