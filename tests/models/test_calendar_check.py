"""The check of allocations beside a calendar: shapes are counted, and whoever asks the windows passes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.calendar_check import calendar_violations
from models.windows import availability
from models.workload import Job, Snapshot
from tests.models.calendar_scenes import allocation, jobs_on_six_nodes
from tests.topology.test_calendar import calendars, pods, reserved, shaped
from topology.calendar import CalendarEntry
from topology.calendar_issues import calendar_issues


def test_enough_nodes_are_left_for_a_shape() -> None:
    cluster, entry = pods(4), shaped("r", 1, 2, 2)
    jobs = tuple(Job(id=f"j{k}") for k in range(3))
    snapshot = Snapshot(cluster=cluster, jobs=jobs, calendar=(entry,))
    each = [allocation(job, f"n{k}") for k, job in enumerate(jobs)]
    assert calendar_violations(snapshot, each[:2], 0.1) == []
    (issue,) = calendar_violations(snapshot, each, 0.1)
    assert (issue.code, issue.pointer) == ("calendar_not_honoured", "/allocations")
    assert "leave 1 nodes" in issue.detail
    # Two that hold at a time need four nodes, though each alone would find two.
    both = replace(snapshot, calendar=(entry, shaped("s", 1, 3, 2)))
    (issue,) = calendar_violations(both, each[:1], 0.1)
    assert "'r'" in issue.detail
    assert "'s'" in issue.detail
    behind = replace(snapshot, calendar=(entry, shaped("s", 2, 3, 2)))
    assert calendar_violations(behind, each[:2], 0.1) == []
    # Beside one that names its nodes.
    named = replace(snapshot, calendar=(entry, reserved("s", 1, 3, "n3", "n2")))
    assert len(calendar_violations(named, each[:1], 0.1)) == 1
    assert calendar_violations(named, (), 0.1) == []


@pytest.mark.slow
@given(entries=calendars(), jobs=jobs_on_six_nodes(), data=st.data())
@settings(max_examples=300, deadline=None)
def test_whoever_asks_passes_the_check(entries: tuple[CalendarEntry, ...], jobs: tuple[Job, ...], data: Any) -> None:
    """Allocations of usable nodes alone honour the calendar, and over named nodes no others do."""
    cluster = pods(3, 3, kinds=("h800", "l20"))
    if calendar_issues(cluster, entries):
        return
    snapshot = Snapshot(cluster=cluster, jobs=jobs, calendar=entries)
    found = availability(snapshot, 0.1)
    given_ = []
    for job in jobs:
        mask = found.usable(job)
        assert mask.tolist() == [found.may_use(job, node.id) for node in cluster.nodes]
        usable = [cluster.nodes[n].id for n in np.flatnonzero(mask)]
        chosen = data.draw(st.lists(st.sampled_from(usable), unique=True)) if usable else []
        given_.append(allocation(job, *chosen))
        if all(entry.shape is None for entry in entries):
            for node in cluster.nodes:
                legal = calendar_violations(snapshot, [allocation(job, node.id)], 0.1) == []
                assert legal == found.may_use(job, node.id)
    assert calendar_violations(snapshot, given_, 0.1) == []
