"""When a plan of `horizon` is to be made anew."""

from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.horizon.waiting import changes_after

BY_TIME = HorizonParameters(interval_s=60.0, longest_wait_s=3600.0)


def test_a_plan_lasts_an_interval_for_one_job_too() -> None:
    assert changes_after(BY_TIME, [], []) is None
    # Its speed may change while it runs, as with the noise of its gradient.
    assert changes_after(BY_TIME, [], [(4, 100.0)]) == 60.0
    assert changes_after(BY_TIME, [(0.0, 1)], []) == 60.0
    assert changes_after(BY_TIME, [(3590.0, 1)], [(4, 100.0)]) == 10.0


def test_a_plan_of_the_present_alone_lasts_until_something_happens() -> None:
    one = HorizonParameters(num_intervals=1, longest_wait_s=None)
    assert changes_after(one, [(0.0, 1)], [(4, 100.0)]) is None
    goodput = HorizonParameters(objective=HorizonObjective.GOODPUT, num_intervals=1)
    assert changes_after(goodput, [(0.0, 1)], [(4, 100.0)]) is None
