"""The models on the measurements published with Sia."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from benchmarks.workloads.published.sia_traces import (
    APPLICATIONS,
    DATA,
    busy_snapshot,
    gradient_statistics,
    observations,
    profiles,
    read_workload,
    sia_cluster,
)
from models.configurations import enumerate_configurations
from models.performance.goodput.check import performance_issues
from models.performance.goodput.fit import fit_parameters
from models.performance.goodput.matrix import evaluate
from models.performance.goodput.spec import GoodputObservations, Observation, ThroughputParameters
from models.performance.goodput.throughput import iteration_time_s
from models.workload import Job

pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the published measurements of Sia are not at {DATA}")

TYPES = ("aws", "rtx", "dgx-ext")
DATA_PARALLEL = tuple(name for name in APPLICATIONS if name != "gpt_pmp")


def relative_errors(parameters: ThroughputParameters, held_out: Sequence[Observation]) -> list[float]:
    """|predicted - measured| / measured, of the step time."""
    return [
        abs(float(iteration_time_s(parameters, o.num_nodes, o.num_replicas, o.local_batch, 0)) / o.step_time_s - 1)
        for o in held_out
    ]


def test_predicted_step_times_of_rows_that_were_held_out() -> None:
    """Fitted on every other row: 6.4 % median error over all applications and types.

    yolov3 is the outlier (up to 40 % on dgx-ext): its gradient time is no linear function of the local batch.
    """
    pooled: list[float] = []
    for application in DATA_PARALLEL:
        for gpu_type in TYPES:
            rows = profiles(application, gpu_type, balanced_only=True)
            errors = relative_errors(fit_parameters(rows[::2]), rows[1::2])
            pooled += errors
            if application != "yolov3":
                assert np.median(errors) < 0.15, (application, gpu_type)
    assert np.median(pooled) < 0.08


@pytest.mark.parametrize("gpu_type", ["rtx", "dgx-ext"])
def test_pipeline_parallel_gpt_beyond_the_nodes_that_were_seen(gpu_type: str) -> None:
    """Fitted on up to 4 nodes, predicted on 5 to 16."""
    rows = profiles("gpt_pmp", gpu_type)
    few, many = [o for o in rows if o.num_nodes <= 4], [o for o in rows if o.num_nodes > 4]
    assert max(relative_errors(fit_parameters(few), many)) < 0.06


@pytest.mark.parametrize("synchronised", TYPES)
def test_bootstrapping_is_closer_than_perfect_scaling(synchronised: str) -> None:
    """Goodput on types where synchronisation was not seen, against the model that has seen it."""
    configurations = enumerate_configurations(sia_cluster())
    names = np.array(configurations.gpu_types)[configurations.type_index]
    estimated = (names != synchronised) & (configurations.num_gpus > 1)

    def goodput(seen: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        jobs = [Job(id=name, performance=observations(name, TYPES, 0.5, seen)) for name in DATA_PARALLEL]
        return evaluate(jobs, configurations).goodput[:, estimated]

    known = goodput(TYPES)
    bootstrapped, perfect = (np.median(np.abs(goodput(seen) / known - 1)) for seen in ((synchronised,), ()))
    assert bootstrapped < perfect
    assert bootstrapped < 0.25


@pytest.mark.parametrize(("instance", "time_s"), [("sia64_r186", 11561.0), ("sia64_r240", 14801.0)])
def test_a_busy_moment_is_close_to_the_published_simulation(instance: str, time_s: float) -> None:
    recorded = set(json.loads((DATA / "instances" / f"{instance}.json").read_text(encoding="utf-8"))["jobs"])
    snapshot = busy_snapshot(read_workload("helios/workload-1"), time_s, sia_cluster())
    active = {job.id for job in snapshot.jobs}
    assert len(active & recorded) / len(active | recorded) > 0.85


def test_a_busy_moment_can_be_evaluated() -> None:
    snapshot = busy_snapshot(read_workload("helios/workload-1"), 11561.0, sia_cluster())
    configurations = enumerate_configurations(snapshot.cluster)
    assert len(configurations) == 19
    for k, job in enumerate(snapshot.jobs):
        assert isinstance(job.performance, GoodputObservations)
        assert performance_issues(job.performance, f"/jobs/{k}/performance", configurations.gpu_types) == []
    found = evaluate(snapshot.jobs, configurations)
    assert np.all(found.goodput > 0)
    assert np.all(found.goodput <= found.throughput * (1 + 1e-12))
    single = configurations.num_gpus == 1
    by_type = dict(zip(configurations.gpu_types, found.goodput[:, single].T, strict=True))
    assert np.all(by_type["dgx-ext"] > by_type["aws"])


def test_the_gpt_needs_whole_replicas() -> None:
    configurations = enumerate_configurations(sia_cluster())
    found = evaluate([Job(id="gpt", performance=observations("gpt_pmp", TYPES, 0.0))], configurations).goodput[0]
    feasible = [configurations.label(c) for c in np.flatnonzero(found).tolist()]
    assert feasible == [
        "(1,8,rtx)",
        "(2,16,rtx)",
        "(3,24,rtx)",
        "(1,2,dgx-ext)",
        "(1,4,dgx-ext)",
        "(1,8,dgx-ext)",
        "(2,16,dgx-ext)",
    ]


def test_placements_are_digits() -> None:
    rows = profiles("bert", "aws")
    assert len(rows) == 540
    assert {(o.num_nodes, o.num_replicas) for o in rows} >= {(1, 4), (2, 8), (4, 16), (2, 3)}
    assert (2, 3) not in {(o.num_nodes, o.num_replicas) for o in profiles("bert", "aws", balanced_only=True)}


def test_gradients_get_noisier_with_progress() -> None:
    first, last = (gradient_statistics("cifar10", progress) for progress in (0.0, 1.0))
    assert first.squared_norm == 8.947307535897329
    assert last.squared_norm / last.variance < first.squared_norm / first.variance
