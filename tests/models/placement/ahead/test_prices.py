"""Prices on nodes that several jobs want: a bound on all options, close for those that they are made for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.placement.ahead.instance import AheadInstance, AheadJob, Option, Shape
from models.placement.ahead.prices import Prices, best_prices
from models.placement.ahead.single import place_at_best
from tests.models.placement.ahead.instances import instances, least_by_trying


def bound_of(instance: AheadInstance, prices: Prices) -> float:
    priced = prices.added(instance)
    values = [
        min(place_at_best(priced, job, o, priced.class_size).bound for o in range(len(job.options)))
        for job in priced.jobs
    ]
    return sum(values) - prices.rebate(instance)


@given(
    instance=instances(),
    values=st.lists(st.sampled_from([0.0, 0.3, 2.0]), min_size=8, max_size=8),
    instants=st.sampled_from([(0.0, 1.5), (0.5, 2.0)]),
)
@settings(deadline=None)
def test_any_prices_bound_all_plans(
    instance: AheadInstance, values: list[float], instants: tuple[float, float]
) -> None:
    table = np.array(values)[: 2 * instance.class_size.size].reshape(2, -1)
    prices = Prices(instants=np.array(instants), values=table)
    assert bound_of(instance, prices) <= least_by_trying(instance) + 1e-6


def test_what_two_jobs_want_becomes_as_dear_as_what_else_there_is() -> None:
    # Four nodes for nothing, four for 1 each; two jobs of three nodes at one time: together they cost 2, not 0.
    shape = Shape(num_groups=3, group_size=1)
    option = Option(shape=shape, start_s=0.0, end_s=5.0, cost=0.0, node_cost=np.array([0.0, 1.0]))
    jobs = tuple(AheadJob(id=name, options=(option,), minipod_weight=0.0, spread_weight=0.0) for name in "ab")
    instance = AheadInstance(minipods=("m",), class_minipod=np.array([0, 0]), class_size=np.array([4, 4]), jobs=jobs)
    prices = best_prices(instance, (0, 0), 2.0, lambda: False, lambda _: 2.0)
    assert bound_of(instance, prices) == pytest.approx(2.0, abs=0.05)
    assert prices.values.tolist() == [[pytest.approx(1.0, abs=0.05), 0.0]]
