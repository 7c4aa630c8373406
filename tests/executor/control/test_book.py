"""What a book of jobs tells policies of what was measured."""

from dataclasses import replace

import pytest

from executor.control.backend import Facts, JobFacts, Measured
from executor.control.book import Book
from tests.executor.deployed.scenes import job_of
from tests.models.allocation.gang.scenes import cluster


@pytest.mark.parametrize(("said_s", "measured_s", "told_s"), [(0.0, None, 0.0), (0.0, 7.5, 7.5), (4.0, 7.5, 4.0)])
def test_what_a_change_costs_is_told_where_the_job_says_nothing(
    said_s: float, measured_s: float | None, told_s: float
) -> None:
    job = replace(job_of("j"), restart_cost_s=said_s)
    facts = Facts(cluster=cluster(2), jobs=(JobFacts(job=job, submitted_s=0.0, since_s=0.0, remaining_s=None),))
    (now,) = Book(facts).snapshot(1.0, lambda _: Measured(restart_cost_s=measured_s)).jobs
    assert now.restart_cost_s == told_s
