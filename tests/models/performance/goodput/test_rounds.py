"""Rounds that follow one another: what is taken from the round before is what would be found anew."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import fields, replace
from functools import partial

import numpy as np
import pytest

from models.configurations import ConfigurationSet, enumerate_configurations
from models.performance.goodput import matrix as evaluation
from models.performance.goodput import rounds
from models.performance.goodput.batch import Pairs, choose_batches
from models.performance.goodput.listed import Listed
from models.performance.goodput.matrix import GoodputMatrix, evaluate
from models.performance.goodput.rounds import forget_rounds
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputObservations,
    GoodputTable,
    GradientStatistics,
    TableEntry,
    ThroughputParameters,
    TypeProfile,
)
from models.performance.goodput.tables import TableLookup
from models.workload import Adaptivity, Job, checked_snapshot
from stowplan.arrays import FloatArray, IntVector, Mask
from tests.growth import work
from tests.models.performance.goodput.test_fit import TRUE, measured
from tests.models.placement.scenes import cluster, node
from topology.cluster import NodeState

SEEN = measured(TRUE, gpu_type="a")
CLUSTER = cluster(*(node(f"n{k}") for k in range(4)))
CONFIGURATIONS = enumerate_configurations(CLUSTER)


def evaluate_round(jobs: Sequence[Job], configurations: ConfigurationSet, wanted: Mask) -> GoodputMatrix:
    return rounds.evaluate_round(checked_snapshot(CLUSTER, tuple(jobs)), configurations, wanted)


@pytest.fixture(autouse=True)
def _no_earlier_round() -> Iterator[None]:
    forget_rounds()
    yield
    forget_rounds()


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pairs each search of batches was of."""
    sizes: list[int] = []

    def counted(pairs: Pairs, num_candidates: int) -> object:
        sizes.append(pairs.num_nodes.size)
        return choose_batches(pairs, num_candidates)

    monkeypatch.setattr(evaluation, "choose_batches", counted)
    return sizes


def goodput_model(speed: float) -> GoodputModel:
    parameters = ThroughputParameters(
        alpha_c=0.1, beta_c=0.01 / speed, alpha_r=0.02, beta_r=0.001, alpha_n=0.05, beta_n=0.002, gamma=1.5
    )
    return GoodputModel(
        batch=BatchRange(initial=8, maximum=512),
        gradient=GradientStatistics(squared_norm=1.0, variance=50.0),
        profiles={"a": TypeProfile(parameters=parameters, max_local_batch=64)},
    )


def generated_job(name: str, rng: np.random.Generator) -> Job:
    kind = rng.integers(4)
    adaptivity = Adaptivity.ELASTIC if rng.random() < 0.7 else Adaptivity.STRONG_SCALING
    if kind == 0:
        values = tuple(TableEntry(gpu_type="a", num_gpus=n, value=float(n)) for n in (1, 2, 4))
        return Job(id=name, performance=GoodputTable(entries=values))
    if kind == 1:
        own = GoodputObservations(
            batch=BatchRange(initial=8, maximum=512),
            gradient=GradientStatistics(squared_norm=1.0, variance=50.0),
            observations=SEEN[: int(rng.integers(2, len(SEEN)))],
            max_local_batch={"a": 64},
            shared_with="application" if rng.random() < 0.5 else None,
        )
        return Job(id=name, performance=own, adaptivity=adaptivity)
    speed = 1.0 + (rng.random() if rng.random() < 0.5 else 0.0)
    return Job(id=name, performance=goodput_model(speed), adaptivity=adaptivity)


def changed(jobs: list[Job], rng: np.random.Generator, next_id: int) -> list[Job]:
    """A round later: some are others now, some are gone, some are new, and the order is another."""
    changes: list[Callable[[Job], Job]] = [
        lambda job: generated_job(job.id, rng),
        lambda job: replace(job, age_s=job.age_s + 60.0),
        lambda job: replace(job, adaptivity=Adaptivity.RIGID),
        # Equal, and another object.
        lambda job: replace(job, performance=deepcopy(job.performance)),
    ]
    kept = [
        changes[rng.integers(len(changes))](job) if rng.random() < 0.3 else job for job in jobs if rng.random() < 0.9
    ]
    kept += [generated_job(f"j{next_id + k}", rng) for k in range(int(rng.integers(3)))]
    return [kept[k] for k in rng.permutation(len(kept))]


def assert_same(found: GoodputMatrix, expected: GoodputMatrix) -> None:
    for field in fields(GoodputMatrix):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name), field.name)


@pytest.mark.parametrize("seed", range(6))
def test_rounds_find_what_is_found_alone(seed: int) -> None:
    """Over random changes of jobs, of what is wanted of them, and of the configurations that there are."""
    rng = np.random.default_rng(seed)
    jobs = [generated_job(f"j{k}", rng) for k in range(8)]
    for round_ in range(8):
        configurations = CONFIGURATIONS if rng.random() < 0.7 else CONFIGURATIONS.up_to(int(rng.integers(8, 24)))
        wanted = rng.random((len(jobs), len(configurations))) < 0.8
        assert_same(evaluate_round(jobs, configurations, wanted), evaluate(jobs, configurations, wanted))
        jobs = changed(jobs, rng, 100 * (round_ + 1))


def test_only_what_changed_is_searched(searched: list[int]) -> None:
    jobs = [Job(id=f"j{k}", performance=goodput_model(1.0 + k)) for k in range(50)]
    everything = np.ones((50, len(CONFIGURATIONS)), dtype=np.bool_)
    evaluate_round(jobs, CONFIGURATIONS, everything)
    cold = sum(searched)
    searched.clear()
    evaluate_round(jobs, CONFIGURATIONS, everything)
    assert not searched
    jobs[17] = replace(jobs[17], performance=goodput_model(0.5))
    evaluate_round(jobs, CONFIGURATIONS, everything)
    assert sum(searched) == cold // 50


def test_a_new_job_has_what_another_one_like_it_had(searched: list[int]) -> None:
    """As far as that was wanted; not one that differs in its profiles alone, or whose batch may not change."""
    jobs = [Job(id=f"j{k}", performance=goodput_model(1.0 + k)) for k in range(3)]
    wanted = np.ones((3, len(CONFIGURATIONS)), dtype=np.bool_)
    wanted[2, -2:] = False
    evaluate_round(jobs, CONFIGURATIONS, wanted)
    searched.clear()
    jobs[0] = Job(id="new", performance=deepcopy(jobs[2].performance), max_gpus=4)
    wanted = wanted.copy()
    wanted[0, -1] = False
    found = evaluate_round(jobs, CONFIGURATIONS, wanted)
    assert searched == [1]
    assert_same(found, evaluate(jobs, CONFIGURATIONS, wanted))
    for other in (
        Job(id="other", performance=goodput_model(0.5)),
        Job(id="fixed", performance=jobs[2].performance, adaptivity=Adaptivity.STRONG_SCALING),
    ):
        searched.clear()
        jobs[1] = other
        assert_same(evaluate_round(jobs, CONFIGURATIONS, wanted), evaluate(jobs, CONFIGURATIONS, wanted))
        assert searched[0] > 1


def test_a_round_like_the_one_before_has_its_matrix(searched: list[int]) -> None:
    """Whatever else of jobs changes; where they stand, what is wanted of them, or how fast they are, it has another."""
    jobs = [Job(id=f"j{k}", performance=goodput_model(1.0 + k)) for k in range(3)]
    everything = np.ones((3, len(CONFIGURATIONS)), dtype=np.bool_)
    found = evaluate_round(jobs, CONFIGURATIONS, everything)
    for field in fields(GoodputMatrix):
        assert not getattr(found, field.name).flags.writeable
    searched.clear()
    for _ in range(2):
        jobs[1] = replace(jobs[1], age_s=jobs[1].age_s + 60.0, performance=deepcopy(jobs[1].performance))
        assert evaluate_round(jobs, CONFIGURATIONS, everything.copy()) is found
    assert not searched
    less = everything.copy()
    less[0, 0] = False
    others: list[tuple[list[Job], Mask]] = [
        (jobs, less),
        (jobs[::-1], everything),
        ([*jobs[:2], replace(jobs[2], adaptivity=Adaptivity.RIGID)], everything),
        ([*jobs[:2], replace(jobs[2], performance=goodput_model(9.0))], everything),
        ([*jobs[:2], replace(jobs[2], performance=None)], everything),
        ([*jobs[:2], replace(jobs[2], id="other")], everything),
    ]
    for now, wanted in others:
        forget_rounds()
        evaluate_round(jobs, CONFIGURATIONS, everything)
        assert_same(evaluate_round(now, CONFIGURATIONS, wanted), evaluate(now, CONFIGURATIONS, wanted))


def test_a_round_goes_on_from_that_of_its_own_jobs(searched: list[int]) -> None:
    """Clusters that are planned in turns keep a round each; of more than there is room for the oldest is forgotten."""
    everything = np.ones((2, len(CONFIGURATIONS)), dtype=np.bool_)
    clusters = [
        [Job(id=f"c{c}-j{k}", performance=goodput_model(1.0 + k + 10 * c)) for k in range(2)]
        for c in range(rounds._ROUNDS + 1)
    ]
    for jobs in clusters:
        evaluate_round(jobs, CONFIGURATIONS, everything)
    searched.clear()
    for jobs in clusters[:0:-1]:
        evaluate_round(jobs, CONFIGURATIONS, everything)
    assert not searched
    evaluate_round(clusters[0], CONFIGURATIONS, everything)
    assert searched


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch, searched: list[int]) -> None:
    jobs = [Job(id="j", performance=goodput_model(1.0))]
    everything = np.ones((1, len(CONFIGURATIONS)), dtype=np.bool_)
    evaluate_round(jobs, CONFIGURATIONS, everything)
    (kept,) = rounds._kept
    # Five numbers of eight bytes and a mark for each pair.
    assert kept.num_bytes == 41 * len(CONFIGURATIONS) + rounds._JOB_BYTES
    monkeypatch.setattr(rounds, "_BYTES", kept.num_bytes - 1)
    forget_rounds()
    evaluate_round(jobs, CONFIGURATIONS, everything)
    assert not rounds._kept
    evaluate_round(jobs, CONFIGURATIONS, everything)
    assert len(searched) == 3


def test_a_cluster_that_is_down_leaves_rounds_as_they_were(searched: list[int]) -> None:
    jobs = [Job(id="j", performance=goodput_model(1.0))]
    down = enumerate_configurations(cluster(node("n", state=NodeState.DOWN)))
    everything = {len(one): np.ones((1, len(one)), dtype=np.bool_) for one in (CONFIGURATIONS, down)}
    first = evaluate_round(jobs, CONFIGURATIONS, everything[len(CONFIGURATIONS)])
    assert evaluate_round(jobs, down, everything[0]).goodput.shape == (1, 0)
    searched.clear()
    for _ in range(2):
        assert_same(evaluate_round(jobs, CONFIGURATIONS, everything[len(CONFIGURATIONS)]), first)
    assert not searched


def test_a_job_that_changes_what_it_shares_changes_the_others() -> None:
    """Models are fitted to what all of an application have observed."""
    own = GoodputObservations(
        batch=BatchRange(initial=8, maximum=512),
        gradient=GradientStatistics(squared_norm=1.0, variance=50.0),
        observations=SEEN[:6],
        shared_with="application",
    )
    jobs = [Job(id="x", performance=own), Job(id="y", performance=own)]
    everything = np.ones((2, len(CONFIGURATIONS)), dtype=np.bool_)
    first = evaluate_round(jobs, CONFIGURATIONS, everything)
    jobs[0] = replace(jobs[0], performance=replace(own, observations=SEEN[6:]))
    second = evaluate_round(jobs, CONFIGURATIONS, everything)
    assert_same(second, evaluate(jobs, CONFIGURATIONS, everything))
    assert first.models[1] != second.models[1]


def _round_of(num_jobs: int) -> tuple[list[Job], ConfigurationSet, Mask]:
    jobs = [Job(id=f"j{k}", performance=goodput_model(1.0 + k % 7)) for k in range(num_jobs)]
    return jobs, CONFIGURATIONS, np.ones((num_jobs, len(CONFIGURATIONS)), dtype=np.bool_)


def test_a_round_grows_with_its_jobs() -> None:
    costs = []
    for num_jobs in (200, 400):
        forget_rounds()
        arguments = _round_of(num_jobs)
        evaluate_round(*arguments)
        costs.append(work(partial(evaluate_round, *arguments)))
    assert costs[1] <= 2.3 * costs[0]


def test_tables_that_are_as_they_were_are_not_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    num_tables: list[int] = []

    class Counted(TableLookup):
        def fill(self, goodput: FloatArray, rows: IntVector, tables: Sequence[Listed]) -> None:
            num_tables.append(rows.size)
            super().fill(goodput, rows, tables)

    monkeypatch.setattr(evaluation, "TableLookup", Counted)

    def table(value: float) -> GoodputTable:
        return GoodputTable(entries=tuple(TableEntry(gpu_type="a", num_gpus=n, value=n * value) for n in (1, 2, 4)))

    jobs = [Job(id=f"j{k}", performance=table(1.0 + k)) for k in range(10)]
    for configurations, looked_up in ((CONFIGURATIONS, 10), (CONFIGURATIONS, 1), (CONFIGURATIONS.up_to(8), 10)):
        everything = np.ones((10, len(configurations)), dtype=np.bool_)
        found = evaluate_round(jobs, configurations, everything)
        assert sum(num_tables) == looked_up
        num_tables.clear()
        assert_same(found, evaluate(jobs, configurations, everything))
        num_tables.clear()
        jobs[3] = replace(jobs[3], performance=table(0.5))
