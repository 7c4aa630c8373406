from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.configurations import ConfigurationSet
from models.performance.goodput.matrix import GoodputMatrix, evaluate, placed
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputTable,
    GradientStatistics,
    Performance,
    TableEntry,
    ThroughputParameters,
    ThroughputTable,
    TypeProfile,
)
from models.workload import Adaptivity, Job
from stowplan.errors import InputError

from . import reference

ZERO = ThroughputParameters(alpha_c=0.0, beta_c=0.0, alpha_r=0.0, beta_r=0.0, alpha_n=0.0, beta_n=0.0, gamma=1.0)


def configurations(*shapes: tuple[int, int, str], gpu_types: tuple[str, ...] = ("A", "B", "C")) -> ConfigurationSet:
    """Configurations in the paper's notation (nodes, GPUs, type)."""
    return ConfigurationSet(
        gpu_types=gpu_types,
        type_index=np.array([gpu_types.index(name) for _, _, name in shapes], dtype=np.int64),
        num_nodes=np.array([nodes for nodes, _, _ in shapes], dtype=np.int64),
        num_gpus=np.array([gpus for _, gpus, _ in shapes], dtype=np.int64),
        bandwidth_fraction=np.ones(len(shapes)),
    )


MANY = configurations(
    *[(1, n, name) for name in ("A", "B", "C") for n in (1, 2, 4, 6)],
    *[(n, 6 * n, name) for name in ("A", "B", "C") for n in (2, 3, 8)],
)


def model(
    profiles: Mapping[str, TypeProfile],
    batch: tuple[int, int] = (8, 64),
    squared_norm: float = 1.0,
    variance: float = 1.0,
) -> GoodputModel:
    return GoodputModel(
        batch=BatchRange(initial=batch[0], maximum=batch[1]),
        gradient=GradientStatistics(squared_norm=squared_norm, variance=variance),
        profiles=profiles,
    )


def job(performance: Performance | None, adaptivity: Adaptivity = Adaptivity.ELASTIC) -> Job:
    return Job(id="job", performance=performance, adaptivity=adaptivity)


def one(found: GoodputMatrix, c: int = 0) -> tuple[float, float, int, int, int]:
    """Row 0, configuration c: goodput, throughput, batch, local batch, accumulation steps."""
    return (
        float(found.goodput[0, c]),
        float(found.throughput[0, c]),
        int(found.batch_size[0, c]),
        int(found.local_batch_size[0, c]),
        int(found.accumulation_steps[0, c]),
    )


def test_pure_noise_takes_the_largest_batch() -> None:
    """A step takes 1 s whatever its batch and no sample is worth less: two replicas of 8 give 16 samples/s."""
    profiles = {"A": TypeProfile(parameters=replace(ZERO, alpha_c=1.0), max_local_batch=8)}
    found = evaluate([job(model(profiles, (4, 16), squared_norm=0.0))], configurations((1, 2, "A")))
    assert one(found) == pytest.approx((16.0, 16.0, 16, 8, 0))


def test_pure_signal_keeps_the_initial_batch() -> None:
    """Efficiency is B0 / B, so goodput is B0 / T_iter, and more samples only cost time."""
    profiles = {"A": TypeProfile(parameters=replace(ZERO, beta_c=1.0), max_local_batch=8)}
    found = evaluate([job(model(profiles, (4, 16), variance=0.0))], configurations((1, 2, "A")))
    assert one(found) == pytest.approx((2.0, 2.0, 4, 2, 0))


def test_accumulation_where_memory_is_short() -> None:
    """B = 32 on two replicas of at most 6: s = ceil(32/2/6) - 1 = 2, m = ceil(16/3) = 6, at 36 capped to 32 samples.

    T_grad = 6, T_sync = 8, gamma = 2: T_iter = 2*6 + 10 = 22.
    """
    parameters = replace(ZERO, beta_c=1.0, alpha_r=8.0, gamma=2.0)
    profiles = {"A": TypeProfile(parameters=parameters, max_local_batch=6)}
    found = evaluate([job(model(profiles, (32, 32)))], configurations((1, 2, "A")))
    assert one(found) == pytest.approx((32 / 22, 32 / 22, 32, 6, 2))


def test_one_replica_accumulates_above_the_initial_batch() -> None:
    """Gradient noise cannot be seen in a single local batch, so one replica splits even what would fit."""
    profiles = {"A": TypeProfile(parameters=replace(ZERO, alpha_c=1.0, beta_c=1.0), max_local_batch=64)}
    cheap = model(profiles, (4, 32), squared_norm=0.0)
    found = evaluate([job(cheap)], configurations((1, 1, "A")))
    assert one(found) == pytest.approx((32 / 34, 32 / 34, 32, 16, 1))
    assert one(evaluate([job(cheap, Adaptivity.RIGID)], configurations((1, 1, "A")))) == pytest.approx(
        (4 / 5, 4 / 5, 4, 4, 0)
    )


@pytest.mark.parametrize("adaptivity", [Adaptivity.STRONG_SCALING, Adaptivity.RIGID])
def test_a_fixed_batch(adaptivity: Adaptivity) -> None:
    """B0 = 10: on 4 replicas local batches 3, 3, 3, 1; on 16 replicas some would get nothing."""
    profiles = {"A": TypeProfile(parameters=replace(ZERO, beta_c=1.0, alpha_n=1.0), max_local_batch=8)}
    found = evaluate([job(model(profiles, (10, 1000)), adaptivity)], configurations((1, 4, "A"), (4, 16, "A")))
    assert one(found) == pytest.approx((10 / 3, 10 / 3, 10, 3, 0))
    assert one(found, 1) == (0, 0, 0, 0, 0)


def test_a_smallest_local_batch() -> None:
    """At least 4 a replica: 4 replicas have 16, 8 would have 32, which is above the maximum of 20."""
    profiles = {"A": TypeProfile(parameters=replace(ZERO, beta_c=1.0), min_local_batch=4, max_local_batch=8)}
    found = evaluate([job(model(profiles, (8, 20), variance=0.0))], configurations((1, 4, "A"), (1, 8, "A")))
    assert found.local_batch_size.tolist() == [[4, 0]]
    assert found.goodput[0] == pytest.approx([8 / 4, 0])


def test_hybrid_parallel_replicas() -> None:
    """The 2.8B GPT of section 5.3: 2 A100 or 8 RTX GPUs a replica, 48 micro-batches of one sample, gamma = 1.

    dgx-ext, 4 GPUs:  R = 2 in a node,  s = 23, T = 24 * 0.144 + 0.018                 = 3.474
    dgx-ext, 16 GPUs: R = 8 on 2 nodes, s = 5,  T = 6 * 0.144 + 0.180 + 6 * 0.01667    = 1.14402
    rtx, 8 GPUs:      R = 1,            s = 47, T = 48 * 0.099                         = 4.752
    """
    a100 = ThroughputParameters(
        alpha_c=0.144, beta_c=0.0, alpha_r=0.018, beta_r=0.00183, alpha_n=0.180, beta_n=0.01667, gamma=1.0
    )
    gpt = model(
        {
            "dgx-ext": TypeProfile(parameters=a100, max_local_batch=1, gpus_per_replica=2),
            "rtx": TypeProfile(parameters=replace(a100, alpha_c=0.099), max_local_batch=1, gpus_per_replica=8),
        },
        (48, 48),
    )
    shapes = [(1, 1, "dgx-ext"), (1, 4, "dgx-ext"), (2, 16, "dgx-ext"), (1, 4, "rtx"), (1, 8, "rtx")]
    found = evaluate([job(gpt)], configurations(*shapes, gpu_types=("rtx", "dgx-ext")))
    assert found.goodput[0] == pytest.approx([0, 48 / 3.474, 48 / 1.14402, 0, 48 / 4.752])
    assert found.accumulation_steps.tolist() == [[0, 23, 5, 0, 47]]
    assert found.local_batch_size.tolist() == [[0, 1, 1, 0, 1]]


def test_a_replica_over_two_nodes_does_not_synchronise_with_itself() -> None:
    parameters = replace(ZERO, alpha_c=1.0, alpha_n=5.0)
    profiles = {"A": TypeProfile(parameters=parameters, max_local_batch=8, gpus_per_replica=16)}
    found = evaluate([job(model(profiles, (8, 8)))], configurations((1, 8, "A"), (2, 16, "A"), (4, 32, "A")))
    assert found.throughput[0] == pytest.approx([0, 8 / 1, 8 / 6])


def bootstrap_model(**single_gpu_only: bool) -> GoodputModel:
    """At m = 8: T_grad of A 2 s, of B 1 s, of C 4 s. A and C synchronise alike in seconds."""
    return model(
        {
            name: TypeProfile(
                parameters=replace(ZERO, alpha_c=alpha_c, alpha_r=2.0, beta_r=1.0, alpha_n=4.0),
                max_local_batch=8,
                single_gpu_only=single_gpu_only.get(name, False),
            )
            for name, alpha_c in (("A", 2.0), ("B", 1.0), ("C", 4.0))
        },
        (64, 64),
    )


def test_bootstrapping_by_hand() -> None:
    """Eq. 1: xput_A(8 on one node) = 64 / (2 + 8) = 6.4, xput_B(1) / xput_A(1) = 2, so est-xput_B(8) = 12.8.

    C is further from B than A is (4 against 2). On two nodes xput_A = 64 / (2 + 4).
    """
    found = evaluate([job(bootstrap_model(B=True))], configurations((1, 1, "B"), (1, 8, "B"), (2, 8, "B")))
    assert found.throughput[0] == pytest.approx([8.0, 12.8, 2 * 64 / 6])


def test_bootstrapping_breaks_ties_by_name() -> None:
    """A (2 s) lies between B (1 s) and C (4 s): B is taken, and est-xput_A(8) = xput_B(8) / 2 = 64 / (1 + 8) / 2."""
    found = evaluate([job(bootstrap_model(A=True))], configurations((1, 8, "A")))
    assert found.throughput[0, 0] == pytest.approx(64 / 9 / 2)


def test_perfect_scaling_while_nothing_is_known() -> None:
    found = evaluate(
        [job(bootstrap_model(A=True, B=True, C=True))], configurations((1, 1, "A"), (1, 4, "A"), (2, 8, "A"))
    )
    assert found.throughput[0] == pytest.approx([4.0, 16.0, 32.0])


def entry(gpu_type: str, num_gpus: int, value: float, num_nodes: int | None = None) -> TableEntry:
    return TableEntry(gpu_type=gpu_type, num_gpus=num_gpus, value=value, num_nodes=num_nodes)


def test_tables_prefer_the_exact_entry() -> None:
    entries = (entry("A", 4, 7.0, num_nodes=2), entry("A", 4, 5.0), entry("B", 4, 3.0, num_nodes=4), entry("A", 9, 1.0))
    shapes = configurations((1, 4, "A"), (2, 4, "A"), (1, 2, "A"), (1, 4, "B"), (4, 4, "B"))
    expected = [5.0, 7.0, 0.0, 0.0, 3.0]
    jobs = [job(GoodputTable(entries=entries)), job(ThroughputTable(entries=entries, batch_size=32)), job(None)]
    found = evaluate(jobs, shapes)
    assert found.goodput.tolist() == [expected, expected, [0.0] * 5]
    assert found.throughput.tolist() == [[0.0] * 5, expected, [0.0] * 5]
    assert found.batch_size.tolist() == [[0] * 5, [32, 32, 0, 0, 32], [0] * 5]
    assert not found.local_batch_size.any()


def test_nothing_to_evaluate() -> None:
    assert evaluate([], MANY).goodput.shape == (0, len(MANY))
    assert evaluate([job(None)], configurations()).goodput.shape == (1, 0)
    elsewhere = model({"D": TypeProfile(parameters=replace(ZERO, alpha_c=1.0), max_local_batch=8)})
    assert not evaluate([job(elsewhere)], MANY).goodput.any()


@pytest.mark.parametrize("alpha_c", [float("nan"), 1e-320])
def test_a_goodput_that_is_no_number_is_refused(alpha_c: float) -> None:
    profiles = {"A": TypeProfile(parameters=replace(ZERO, alpha_c=alpha_c), max_local_batch=8)}
    with pytest.raises(InputError) as caught:
        evaluate([job(None), job(model(profiles))], configurations((1, 1, "A")))
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [("not_finite", "/jobs/1/performance")]


seconds = st.floats(1e-4, 10.0)


@st.composite
def parameters(draw: st.DrawFn) -> ThroughputParameters:
    return ThroughputParameters(
        alpha_c=draw(seconds),
        beta_c=draw(st.one_of(st.just(0.0), seconds)),
        alpha_r=draw(seconds),
        beta_r=draw(seconds),
        alpha_n=draw(seconds),
        beta_n=draw(seconds),
        gamma=draw(st.floats(1, 10)),
    )


@st.composite
def profile(draw: st.DrawFn) -> TypeProfile:
    smallest = draw(st.integers(1, 6))
    return TypeProfile(
        parameters=draw(parameters()),
        min_local_batch=smallest,
        max_local_batch=smallest + draw(st.integers(0, 100)),
        single_gpu_only=draw(st.booleans()),
        gpus_per_replica=draw(st.sampled_from([1, 1, 2, 4])),
    )


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    initial = draw(st.integers(1, 200))
    names = draw(st.lists(st.sampled_from("ABC"), min_size=1, unique=True))
    return job(
        model(
            {name: draw(profile()) for name in names},
            (initial, initial + draw(st.integers(0, 5000))),
            squared_norm=draw(st.floats(0.0, 1e3)),
            variance=draw(st.floats(1e-3, 1e3)),
        ),
        draw(st.sampled_from(Adaptivity)),
    )


def goodput_model(one_job: Job) -> GoodputModel:
    assert isinstance(one_job.performance, GoodputModel)
    return one_job.performance


@given(st.lists(jobs(), min_size=1, max_size=4))
@settings(max_examples=12, deadline=None)
def test_the_matrix_is_the_scalar_reference(some: list[Job]) -> None:
    found = evaluate(some, MANY)
    for j, one_job in enumerate(some):
        performance = goodput_model(one_job)
        elastic = one_job.adaptivity is Adaptivity.ELASTIC
        for c in range(len(MANY)):
            name, nodes, gpus = MANY.gpu_types[MANY.type_index[c]], int(MANY.num_nodes[c]), int(MANY.num_gpus[c])
            best = reference.best_goodput(performance, name, nodes, gpus, elastic=elastic)
            assert found.goodput[j, c] == pytest.approx(best, rel=1e-9)
            if best == 0:
                assert not any(array[j, c] for array in (found.throughput, found.batch_size, found.local_batch_size))
                continue
            profile_ = performance.profiles[name]
            goodput, throughput, batch = reference.goodput(
                performance,
                name,
                nodes,
                gpus // profile_.gpus_per_replica,
                int(found.local_batch_size[j, c]),
                int(found.accumulation_steps[j, c]),
                maximum=performance.batch.maximum if elastic else performance.batch.initial,
            )
            assert found.goodput[j, c] == pytest.approx(goodput, rel=1e-9)
            assert found.throughput[j, c] == pytest.approx(throughput, rel=1e-9)
            assert found.batch_size[j, c] == batch
            assert profile_.min_local_batch <= found.local_batch_size[j, c] <= profile_.max_local_batch
            assert performance.batch.initial <= batch <= performance.batch.maximum


@given(jobs(), st.sampled_from([0.5, 0.1, 0.01]))
@settings(max_examples=25, deadline=None)
def test_a_share_of_the_bandwidth_is_a_model_with_slower_synchronisation(one_job: Job, fraction: float) -> None:
    """And never faster than all of it; inside a node nothing changes."""
    performance = goodput_model(one_job)
    shares = np.where(MANY.num_nodes > 1, fraction, 1.0)
    found = evaluate([one_job], replace(MANY, bandwidth_fraction=shares)).goodput
    slower = {
        name: replace(
            known,
            parameters=replace(
                known.parameters,
                alpha_n=known.parameters.alpha_n / fraction,
                beta_n=known.parameters.beta_n / fraction,
            ),
        )
        for name, known in performance.profiles.items()
    }
    same = evaluate([replace(one_job, performance=replace(performance, profiles=slower))], MANY).goodput
    np.testing.assert_allclose(found, same, rtol=1e-9)
    full = evaluate([one_job], MANY).goodput
    assert np.all(found <= full)
    np.testing.assert_array_equal(found[:, MANY.num_nodes == 1], full[:, MANY.num_nodes == 1])


def test_what_is_placed_apart_is_evaluated_anew() -> None:
    """T_grad = 1 and T_sync = 1 at all of the bandwidth, 4 at a quarter: with gamma = 1 steps take 2 s, and 5 s.

    The table of the second job, and the third job, which has the bandwidth that it was promised, stay.
    """
    profiles = {"A": TypeProfile(parameters=replace(ZERO, alpha_c=1.0, alpha_n=1.0), max_local_batch=8)}
    trained = job(model(profiles, (16, 16)))
    listed = job(ThroughputTable(entries=(TableEntry(gpu_type="A", num_gpus=2, value=3.0),)))
    two_nodes, some = configurations((2, 2, "A")), [trained, listed, trained]
    matrix = evaluate(some, two_nodes)
    chosen = np.arange(3), np.zeros(3, dtype=np.int64)
    found = placed(matrix, some, two_nodes, chosen, np.array([0.25, 0.25, 1.0]))
    assert matrix.goodput.ravel().tolist() == [8.0, 3.0, 8.0]
    assert found.goodput.ravel().tolist() == [3.2, 3.0, 8.0]
    assert found.throughput.ravel().tolist() == [3.2, 3.0, 8.0]
    assert placed(matrix, some, two_nodes, chosen, np.ones(3)) is matrix


@given(jobs())
@settings(max_examples=40, deadline=None)
def test_freedom_and_noise_never_hurt(one_job: Job) -> None:
    """The initial batch is among an elastic job's candidates; noisier gradients make large batches more efficient."""
    performance = goodput_model(one_job)
    noisier = replace(performance, gradient=replace(performance.gradient, variance=2 * performance.gradient.variance))
    found = evaluate([job(performance, Adaptivity.STRONG_SCALING), job(performance), job(noisier)], MANY).goodput
    assert np.all(found[0] <= found[1] * (1 + 1e-9))
    assert np.all(found[1] <= found[2] * (1 + 1e-9))


@given(st.lists(jobs(), min_size=2, max_size=5))
@settings(max_examples=8, deadline=None)
def test_the_order_of_jobs_and_configurations_means_nothing(some: list[Job]) -> None:
    rows = np.random.default_rng(len(some)).permutation(len(some))
    columns = np.random.default_rng(1).permutation(len(MANY))
    shuffled = ConfigurationSet(
        gpu_types=MANY.gpu_types,
        type_index=MANY.type_index[columns],
        num_nodes=MANY.num_nodes[columns],
        num_gpus=MANY.num_gpus[columns],
        bandwidth_fraction=MANY.bandwidth_fraction[columns],
    )
    found = evaluate([some[j] for j in rows], shuffled).goodput
    np.testing.assert_allclose(found, evaluate(some, MANY).goodput[np.ix_(rows, columns)], rtol=1e-12)


@given(jobs(), st.sampled_from([2.0**-10, 4.0, 2.0**8]))
@settings(max_examples=25, deadline=None)
def test_a_slower_clock_only_changes_the_unit(one_job: Job, factor: float) -> None:
    performance = goodput_model(one_job)
    names = ("alpha_c", "beta_c", "alpha_r", "beta_r", "alpha_n", "beta_n")
    slower = replace(
        performance,
        profiles={
            gpu_type: replace(
                known,
                parameters=replace(
                    known.parameters, **{name: factor * getattr(known.parameters, name) for name in names}
                ),
            )
            for gpu_type, known in performance.profiles.items()
        },
    )
    found = evaluate([one_job, replace(one_job, performance=slower)], MANY).goodput
    np.testing.assert_allclose(found[1] * factor, found[0], rtol=1e-12)


@given(st.lists(jobs(), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_pairs_that_nobody_wants_are_left_out_and_the_others_stay(some: list[Job], seed: int) -> None:
    wanted = np.random.default_rng(seed).random((len(some), len(MANY))) < 0.5
    every, chosen = evaluate(some, MANY), evaluate(some, MANY, wanted)
    np.testing.assert_array_equal(chosen.goodput, np.where(wanted, every.goodput, 0.0))
    np.testing.assert_array_equal(chosen.batch_size, np.where(wanted, every.batch_size, 0))


def test_an_entry_for_exact_nodes_overrules_one_for_any_wherever_it_stands() -> None:
    """(1,8,A) and (2,8,A) hold as many GPUs; the entry for two nodes speaks about the second only."""
    shapes = configurations((1, 8, "A"), (2, 8, "A"), (1, 8, "B"))
    general = TableEntry(gpu_type="A", num_gpus=8, value=1.0)
    exact = TableEntry(gpu_type="A", num_gpus=8, num_nodes=2, value=5.0)
    unknown = TableEntry(gpu_type="A", num_gpus=9, value=7.0)
    for entries in ((general, exact, unknown), (exact, unknown, general)):
        found = evaluate([job(GoodputTable(entries=entries)), job(None)], shapes)
        assert found.goodput.tolist() == [[1.0, 5.0, 0.0], [0.0, 0.0, 0.0]]
        assert found.batch_size.sum() == 0
