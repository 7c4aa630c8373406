import math
from dataclasses import replace
from typing import Any

import pytest

from models.performance.goodput.check import performance_issues
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputObservations,
    GoodputTable,
    GradientStatistics,
    Observation,
    Performance,
    TableEntry,
    ThroughputParameters,
    ThroughputTable,
    TypeProfile,
)
from stowplan.errors import Severity

PARAMETERS = ThroughputParameters(alpha_c=0.1, beta_c=0.01, alpha_r=0.0, beta_r=0.0, alpha_n=0.2, beta_n=0.0, gamma=1.5)
PROFILE = TypeProfile(parameters=PARAMETERS, max_local_batch=16)
BATCH = BatchRange(initial=8, maximum=64)
GRADIENT = GradientStatistics(squared_norm=1.0, variance=2.0)
MODEL = GoodputModel(batch=BATCH, gradient=GRADIENT, profiles={"A": PROFILE})
OBSERVATION = Observation(gpu_type="A", num_nodes=1, num_replicas=2, local_batch=4, step_time_s=0.3, sync_time_s=0.1)
OBSERVATIONS = GoodputObservations(batch=BATCH, gradient=GRADIENT, observations=(OBSERVATION,))
ENTRY = TableEntry(gpu_type="A", num_gpus=4, value=2.0)


def codes(performance: Performance) -> list[tuple[str, str]]:
    return [
        (issue.code, issue.pointer.removeprefix("/jobs/3/performance"))
        for issue in performance_issues(performance, "/jobs/3/performance", ("A", "B"))
    ]


@pytest.mark.parametrize(
    "performance",
    [
        MODEL,
        replace(MODEL, gradient=GradientStatistics(squared_norm=0.0, variance=1.0)),
        OBSERVATIONS,
        replace(OBSERVATIONS, max_local_batch={"A": 32}, gpus_per_replica={"A": 2}),
        ThroughputTable(entries=(ENTRY, replace(ENTRY, num_nodes=2)), batch_size=8),
        GoodputTable(entries=(ENTRY, replace(ENTRY, num_gpus=8), replace(ENTRY, gpu_type="B"))),
    ],
)
def test_nothing_to_say(performance: Performance) -> None:
    assert codes(performance) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"alpha_c": math.nan}, [("negative", "alpha_c")]),
        ({"beta_n": -1.0}, [("negative", "beta_n")]),
        ({"alpha_r": math.inf}, [("negative", "alpha_r")]),
        ({"alpha_c": 0.0, "beta_c": 0.0}, [("not_positive", "alpha_c")]),
        ({"gamma": 0.9}, [("out_of_range", "gamma")]),
        ({"gamma": math.nan}, [("out_of_range", "gamma")]),
        ({"gamma": 11.0}, [("out_of_range", "gamma")]),
    ],
)
def test_parameters(change: dict[str, float], expected: list[tuple[str, str]]) -> None:
    profile = replace(PROFILE, parameters=replace(PARAMETERS, **change))
    found = codes(replace(MODEL, profiles={"A": profile}))
    assert found == [(code, f"/profiles/A/parameters/{field}") for code, field in expected]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"max_local_batch": 0}, [("not_positive", "max_local_batch"), ("min_above_max", "max_local_batch")]),
        ({"min_local_batch": 17}, [("min_above_max", "max_local_batch")]),
        ({"gpus_per_replica": -2}, [("not_positive", "gpus_per_replica")]),
        ({"max_local_batch": 10**400}, [("out_of_range", "max_local_batch")]),
    ],
)
def test_profiles(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = codes(replace(MODEL, profiles={"A": replace(PROFILE, **change)}))
    assert found == [(code, f"/profiles/A/{field}") for code, field in expected]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"batch": BatchRange(initial=0, maximum=8)}, [("not_positive", "/batch/initial")]),
        ({"batch": BatchRange(initial=9, maximum=8)}, [("min_above_max", "/batch/maximum")]),
        (
            {"gradient": GradientStatistics(squared_norm=-1.0, variance=math.nan)},
            [("negative", "/gradient/squared_norm"), ("negative", "/gradient/variance")],
        ),
        ({"gradient": GradientStatistics(squared_norm=0.0, variance=0.0)}, [("not_positive", "/gradient/variance")]),
    ],
)
def test_batch_and_gradient(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert codes(replace(MODEL, **change)) == expected
    assert codes(replace(OBSERVATIONS, **change)) == expected


def test_types_that_the_cluster_does_not_know() -> None:
    """The name is escaped as a JSON pointer wants it."""
    assert codes(replace(MODEL, profiles={"x/y~z": PROFILE})) == [("unknown_gpu_type", "/profiles/x~1y~0z")]
    observations = replace(
        OBSERVATIONS,
        observations=(OBSERVATION, replace(OBSERVATION, gpu_type="D")),
        max_local_batch={"E": 1},
        gpus_per_replica={"F": 1},
    )
    assert codes(observations) == [
        ("unknown_gpu_type", "/observations/1/gpu_type"),
        ("unknown_gpu_type", "/max_local_batch/E"),
        ("unknown_gpu_type", "/gpus_per_replica/F"),
    ]
    table = GoodputTable(entries=(ENTRY, replace(ENTRY, gpu_type="D")))
    assert codes(table) == [("unknown_gpu_type", "/entries/1/gpu_type")]


def test_nothing_given() -> None:
    assert codes(replace(MODEL, profiles={})) == [("empty", "/profiles")]
    assert codes(replace(OBSERVATIONS, observations=())) == [("empty", "/observations")]
    assert codes(GoodputTable(entries=())) == [("empty", "/entries")]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"num_nodes": 0}, [("not_positive", "num_nodes")]),
        ({"num_nodes": 3}, [("more_nodes_than_gpus", "num_nodes")]),
        ({"local_batch": 0}, [("not_positive", "local_batch")]),
        ({"step_time_s": math.nan}, [("not_positive", "step_time_s")]),
        ({"step_time_s": -1.0}, [("not_positive", "step_time_s")]),
        ({"step_time_s": math.inf}, [("not_positive", "step_time_s")]),
        ({"sync_time_s": -0.1}, [("negative", "sync_time_s")]),
        ({"sync_time_s": 0.3}, [("sync_above_step", "sync_time_s")]),
        ({"step_time_s": 0.0}, [("not_positive", "step_time_s")]),
        ({"bandwidth_fraction": 0.0}, [("out_of_range", "bandwidth_fraction")]),
        ({"bandwidth_fraction": 1.1}, [("out_of_range", "bandwidth_fraction")]),
    ],
)
def test_observations(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = codes(replace(OBSERVATIONS, observations=(OBSERVATION, replace(OBSERVATION, **change))))
    assert found == [(code, f"/observations/1/{field}") for code, field in expected]


def test_a_replica_may_span_nodes() -> None:
    spanning = replace(OBSERVATION, num_nodes=4)
    assert codes(replace(OBSERVATIONS, observations=(spanning,))) == [
        ("more_nodes_than_gpus", "/observations/0/num_nodes")
    ]
    assert codes(replace(OBSERVATIONS, observations=(spanning,), gpus_per_replica={"A": 2})) == []


def test_limits_without_observations_are_a_warning() -> None:
    found = performance_issues(replace(OBSERVATIONS, max_local_batch={"B": 8}), "", ("A", "B"))
    assert [(issue.code, issue.pointer, issue.severity) for issue in found] == [
        ("not_observed", "/max_local_batch/B", Severity.WARNING)
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"num_gpus": 0}, [("not_positive", "num_gpus")]),
        ({"num_gpus": 2, "num_nodes": 3}, [("more_nodes_than_gpus", "num_nodes")]),
        ({"num_gpus": 2, "num_nodes": 0}, [("not_positive", "num_nodes")]),
        ({"num_gpus": 2, "value": 0.0}, [("not_positive", "value")]),
        ({"num_gpus": 2, "value": math.nan}, [("not_positive", "value")]),
        ({"num_gpus": 2, "value": math.inf}, [("not_positive", "value")]),
    ],
)
def test_table_entries(change: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    entries = (ENTRY, replace(ENTRY, **change))
    located = [(code, f"/entries/1/{field}") for code, field in expected]
    assert codes(GoodputTable(entries=entries)) == located
    assert codes(ThroughputTable(entries=entries)) == located


def test_entries_that_say_the_same() -> None:
    table = GoodputTable(entries=(ENTRY, replace(ENTRY, num_nodes=1), replace(ENTRY, value=3.0)))
    assert codes(table) == [("duplicate_entry", "/entries/0"), ("duplicate_entry", "/entries/2")]


def test_the_batch_of_a_table() -> None:
    assert codes(ThroughputTable(entries=(ENTRY,), batch_size=0)) == [("not_positive", "/batch_size")]
