"""The replays of `horizon` beside others: which there are, what their rows say, and the tables made of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.horizon import horizon_replays
from benchmarks.horizon.case import Asked, Case, Variant, moved
from benchmarks.horizon.observed import observe
from benchmarks.horizon.parts import PARTS, hurried
from benchmarks.horizon.reserved import LARGE, retention
from benchmarks.horizon.table import tables
from benchmarks.workloads.published.sia_traces import DATA
from executor.control.events import CalendarChange
from executor.control.options import ControlOptions
from executor.simulation.setup import ReplaySetup
from models.allocation.gang.parameters import GangParameters
from models.allocation.horizon.parameters import HorizonParameters
from solver.monitor import SolveMonitor
from stowplan.errors import InputError
from tests.models.placement.scenes import cluster, node
from topology.bandwidth import fractions_of
from topology.calendar import CalendarEntry, EntryKind
from workloads.trace import TraceJob, sorted_trace


def small() -> ReplaySetup:
    """Two GPUs of two nodes; a job of 100 s on each, the second one after 50 s, and nothing is planned better later."""
    jobs = [TraceJob(id=f"j{k}", submit_s=50.0 * k, num_gpus=1, duration_s=100.0) for k in range(2)]
    return ReplaySetup(
        cluster=cluster(node("n", 1), node("m", 1)),
        trace=sorted_trace("made", jobs),
        control=ControlOptions(parameters=GangParameters()),
    )


def row(**changed: Any) -> dict[str, Any]:
    case = Case(trace="made", variant=Variant(name="gang", policy="gang"), make=small)
    return {**horizon_replays.row_of(case, small(), observe(small(), SolveMonitor())), **changed}


def test_a_row_has_what_was_asked_for() -> None:
    made = row()
    assert made["mean_h"] == made["median_h"] == pytest.approx(100 / 3600, abs=1e-4)
    assert made["makespan_h"] == pytest.approx(150 / 3600, abs=5e-3)
    assert (made["restarts"], made["longest_wait_h"], made["ended"], made["jobs"]) == (0, 0, 2, 2)
    assert len(made["decision_ms"]) == 4
    assert made["gap"] == [0, 0, 0]
    assert made["retention"] is None


def test_retention_is_what_others_use_of_reserved_nodes_before_the_large_job_comes() -> None:
    """From 1 to 3 h; one of two jobs has the reserved node for half of that."""
    entry = CalendarEntry(name=LARGE, kind=EntryKind.RESERVATION, from_s=10_800.0, nodes=("n",), hard=False)
    jobs = [TraceJob(id=name, submit_s=0.0, num_gpus=1, duration_s=7_200.0) for name in ("x", "y")]
    setup = replace(
        small(), trace=sorted_trace("made", jobs), calendars=(CalendarChange(at_s=3_600.0, entries=(entry,)),)
    )
    assert retention(observe(setup, SolveMonitor()).result, setup) == pytest.approx(0.5)


def test_load_makes_arrivals_more_frequent() -> None:
    assert [job.submit_s for job in hurried(small().trace, 2.0).jobs] == [0, 25]


def test_arrivals_are_moved_by_minutes_the_same_for_all_variants() -> None:
    trace = sorted_trace("made", [TraceJob(id=f"j{k}", submit_s=300.0 * k, num_gpus=1) for k in range(40)])
    before, after = ({job.id: job.submit_s for job in it.jobs} for it in (trace, moved(trace, 1)))
    assert 100 < max(abs(after[name] - before[name]) for name in before) <= 600
    assert [job.submit_s for job in moved(trace, 1).jobs] == sorted(after.values())
    assert moved(trace, 1) == moved(trace, 1) != moved(trace, 2)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the published traces of Sia are not at {DATA}")
def test_horizon_plans_at_events_and_the_released_policy_in_rounds_of_what_it_takes_restarts_for() -> None:
    cases = {case.variant.name: case for case in PARTS["sia"].cases(Asked()) if case.trace == "helios/workload-1"}
    rounds = {name: case.make().control.round_s for name, case in cases.items()}
    assert (rounds["horizon"], rounds["horizon, every 60 s"], rounds["sia, told as released"]) == (None, 60, 60)
    told = {
        name: {known.application: known.planned_restart_s for known in case.make().profiles or ()}["cifar10"]
        for name, case in cases.items()
    }
    assert {name for name, restart_s in told.items() if restart_s is not None} == {"sia, told as released"}


@pytest.mark.parametrize("part", PARTS)
def test_replays_of_a_part_are_told_apart_and_have_the_first_variant(part: str) -> None:
    cases = list(PARTS[part].cases(Asked(seeds=2, parameters={"restart_price": 2})))
    assert len({case.key for case in cases}) == len(cases)
    assert PARTS[part].first in {case.variant.name for case in cases}
    for case in cases:
        if case.variant.policy.startswith("horizon"):
            assert '"restart_price":' in case.variant.policy


def test_parts_are_taken_away_from_what_was_asked_for() -> None:
    asked = Asked(parameters={"restart_price": 2, "horizon_s": 600})
    assert asked.horizon(num_intervals=1, horizon_s=None) == (
        'horizon:{"restart_price":2,"horizon_s":null,"num_intervals":1}'
    )
    assert asked.horizon({"interval_s": 300}, restart_price=0) == (
        'horizon:{"interval_s":300,"restart_price":0,"horizon_s":600}'
    )


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the published traces of Sia are not at {DATA}")
def test_errors_are_in_what_is_told_alone() -> None:
    asked = Asked()
    by_name = {case.variant.name: case for case in PARTS["ablation"].cases(asked) if case.trace.endswith("-1")}
    exact, wrong = by_name["horizon"].make(), by_name["work x or ÷ 2"].make()
    assert replace(wrong, truth=exact.truth).key() == exact.key() != wrong.key()
    assert (wrong.truth.misjudged, by_name["goodputs ±20 %"].make().truth.noise) == (2.0, 0.2)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the published traces of Sia are not at {DATA}")
def test_leaves_have_less_bandwidth_between_them_and_jobs_come_until_they_are_to() -> None:
    by_name = {case.variant.name: case for case in PARTS["leaves"].cases(Asked(hours=1.0)) if case.trace.endswith("-1")}
    setup = by_name["no placement classes"].make()
    assert fractions_of(setup.cluster) == (0.25, 1.0)
    assert setup.cluster.num_gpus == 64
    assert 0 < max(job.submit_s for job in setup.trace.jobs) < 3600
    with_classes = by_name["horizon"].make().control.parameters
    assert isinstance(with_classes, HorizonParameters)
    assert setup.control.parameters == replace(with_classes, placement_classes=False)


def test_rows_that_are_asked_for_replace_those_that_there_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(horizon_replays, "RESULTS", tmp_path)
    monkeypatch.setattr("benchmarks.rows.RESULTS", tmp_path)
    monkeypatch.setattr(
        horizon_replays, "observe_all", lambda setups, _: (observe(setup, SolveMonitor()) for setup in setups)
    )
    cases = [Case(trace=name, variant=Variant(name="gang", policy="gang"), make=small) for name in ("a", "b")]
    horizon_replays._replay("load", cases, 7.0, "x", 1)
    horizon_replays._replay("load", cases[1:], 9.0, "x", 1)
    rows = json.loads((tmp_path / "horizon_replays_load_x.json").read_text())["rows"]
    assert [(item["trace"], item["limit_s"]) for item in rows] == [("a", 7.0), ("b", 9.0)]


def test_tables_compare_means_over_traces_with_the_first_variant() -> None:
    first = PARTS["sia"].first
    rows = [
        row(trace=trace, variant=name, mean_h=mean_h, command="c")
        for trace, name, mean_h in (("a", first, 1.0), ("b", first, 2.0), ("a", "horizon", 0.5), ("b", "horizon", 1.5))
    ]
    text = tables({"sia": [*rows, row(trace="b", variant="only there", mean_h=1.0, command="c")]})
    assert "| `horizon` | 2 | 4 of 4 | 1.000 | 62.5% |" in text
    assert "| `only there` | 1 | 2 of 2 | 1.000 | 50.0% |" in text
    assert text.count("only there") == 1


def test_wrong_words_are_refused() -> None:
    with pytest.raises(InputError, match="the parts are"):
        horizon_replays.main(parts=["best"], horizon="{}", readme=False, seeds=1, hours=None)
    for text in ("{", "[]"):
        with pytest.raises(InputError, match="--horizon"):
            horizon_replays.main(parts=["load"], horizon=text, readme=False, seeds=1, hours=None)
    with pytest.raises(InputError, match="no replay"):
        horizon_replays.main(parts=["load"], traces=["x"], horizon="{}", readme=False, seeds=1, hours=None)
