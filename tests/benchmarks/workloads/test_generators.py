from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.suite.case import Case
from benchmarks.suite.cases.arena import arena_cases
from benchmarks.suite.cases.gang import gang_cases
from benchmarks.suite.cases.suika import suika_cases
from benchmarks.suite.registry import all_cases, suite_cases
from benchmarks.workloads.generators import (
    GPU_MODELS,
    SiaSize,
    arnold_snapshot,
    dirichlet_split,
    even_split,
    halving_split,
    sia_cluster,
    sia_snapshot,
)
from models.allocation.sia.parameters import SiaParameters
from models.plan import PlanRequest
from models.policies import POLICIES
from models.validation import request_issues
from models.workload import Snapshot
from stowplan.errors import Severity

SIZE = SiaSize(num_gpus=512, num_jobs=300, num_types=6, running=0.7, wear=0.1)


def assert_sound(request: PlanRequest) -> None:
    issues = request_issues(request.snapshot, request.parameters)
    assert [issue for issue in issues if issue.severity is Severity.ERROR] == []


@given(st.integers(0, 10**6))
@settings(max_examples=4, deadline=None)
def test_generated_snapshots_are_legal(seed: int) -> None:
    snapshot = sia_snapshot(SIZE, seed)
    assert len(snapshot.jobs) == SIZE.num_jobs
    assert_sound(PlanRequest(snapshot=snapshot, parameters=SiaParameters()))


def test_the_seed_decides() -> None:
    assert sia_snapshot(SIZE, 1) == sia_snapshot(SIZE, 1)
    assert sia_snapshot(SIZE, 1) != sia_snapshot(SIZE, 2)


def test_no_two_jobs_are_clones() -> None:
    performances = [job.performance for job in sia_snapshot(SIZE, 0).jobs]
    assert all(performances.count(performance) == 1 for performance in performances)


def test_most_of_the_wanted_share_runs() -> None:
    """GPUs of 512 run out before 70 % of 300 jobs sit somewhere; on ten times as many they do not."""
    roomy = sia_snapshot(SiaSize(num_gpus=5120, num_jobs=300, num_types=6, running=0.7), 0)
    assert 0.6 * 300 < sum(job.current is not None for job in roomy.jobs) < 0.8 * 300


def test_a_cluster_has_equal_shares_in_whole_nodes() -> None:
    cluster = sia_cluster(100_000, GPU_MODELS, 0.0, Random(0))  # noqa: S311 - reproducible, not secret
    gpus = Counter[str]()
    for node in cluster.nodes:
        gpus[node.gpu_type] += node.num_gpus
    assert max(gpus.values()) - min(gpus.values()) < 8
    assert 100_000 - 6 * 8 < cluster.num_gpus <= 100_000


@given(st.integers(1, 3000), st.integers(1, 60), st.integers(0, 99), st.integers(0, 30))
@settings(max_examples=50, deadline=None)
def test_splits_add_up(total: int, parts: int, seed: int, spare: int) -> None:
    most = -(-total // parts) + spare
    for split in (dirichlet_split(total, parts, seed), even_split(total, parts), halving_split(total, parts)):
        assert (sum(split), len(split)) == (total, parts)
        assert min(split) >= 0
    limited = dirichlet_split(total, parts, seed, most=most)
    assert sum(limited) == total
    assert max(limited) <= most


def test_what_does_not_fit_cannot_be_split() -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        dirichlet_split(11, 2, 0, most=5)


def test_an_arnold_snapshot_has_the_nodes_that_were_asked_for() -> None:
    snapshot = arnold_snapshot((3, 0, 2), 2, 2, busy=(1, 2, 0))
    free = Counter(node.path[0] for node in snapshot.cluster.nodes if not node.gpus_in_use)
    assert free == {"minipod-0": 3, "minipod-2": 2}
    assert len(snapshot.cluster.nodes) == 8
    assert snapshot.jobs[0].parallelism is not None
    assert snapshot.jobs[0].parallelism.num_gpus == 4 * 8


# Sia's and Arnold's snapshots are quickly drawn, and what is drawn does not depend on the size: up to 512 GPUs or
# nodes, the smallest of every series, and what belongs to none, at one alpha. Those of Arena and Suika take plans
# for every model, and stand for their group. Planners of 3D plans have no snapshot: the smoke suite runs them.
_QUICK = [case for case in all_cases().values() if case.scale <= 2500 and case.problem in {"sia", "arnold"}]
_SMALLEST = {case.series: case for case in sorted(_QUICK, key=lambda case: -case.scale)}
SMALL = [
    case
    for case in _QUICK
    if case.scale <= 512 or case in _SMALLEST.values() or not (case.series or case.name.endswith("alpha0.3"))
]
FIRST = {case.name.rpartition("/")[0]: case for case in [*arena_cases(), *suika_cases(), *gang_cases()][::-1]}


@pytest.mark.slow
@pytest.mark.parametrize("case", [*SMALL, *FIRST.values()], ids=lambda case: case.name)
def test_cases_are_sound(case: Case) -> None:
    request = case.request(0)
    assert_sound(request)
    # How a snapshot is drawn does not depend on its size.
    if case.scale <= 512:
        assert (case.request(0).snapshot == request.snapshot) is True
    if case.seeded and case.scale <= 512:
        assert case.request(1).snapshot != request.snapshot
    size = _size(request.snapshot)
    assert {key: value for key, value in case.size.items() if key in size} == {
        key: value for key, value in size.items() if key in case.size
    }


def _size(snapshot: Snapshot) -> dict[str, int]:
    minipod = snapshot.cluster.minipod_tier
    if minipod is None:
        return {"jobs": len(snapshot.jobs)}
    return {"nodes": len(snapshot.cluster.nodes)}


def test_the_smoke_suite_needs_no_data() -> None:
    """One case of every policy and planner; those that are made from published data would be missing without them."""
    smoke = suite_cases("smoke")
    assert [case.problem for case in smoke] == [*POLICIES, "grid", "exhaustive", "incremental"]
    assert not [case.name for case in smoke if {"recorded", "fitted", "philly"} & set(case.name.split("/"))]
