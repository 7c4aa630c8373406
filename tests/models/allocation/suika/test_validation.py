"""What is wrong with a snapshot before anything is planned."""

from dataclasses import replace

import pytest

from models.allocation.suika.parameters import SuikaParameters
from models.allocation.suika.validation import policy_issues
from models.parallel_plan import ParallelPlan, Replica, Stage
from models.transformer import Checkpointing
from models.workload import Adaptivity, Expansion, Job, Reservation
from stowplan.errors import InputError, Severity
from tests.models.allocation.suika.real import cluster_of, gpus, job


def found(*jobs: Job) -> list[tuple[str, str]]:
    return [(issue.code, issue.pointer) for issue in policy_issues(cluster_of(*jobs), SuikaParameters())]


def plan(num_layers: int = 24, batch: int = 64) -> ParallelPlan:
    replica = Replica(node="n0000", gpu_type="h100", gpus=(0,), local_batch=1)
    return ParallelPlan(stages=(Stage(num_layers=num_layers, replicas=(replica,)),), num_micro_batches=batch)


def recomputing_some(running: ParallelPlan) -> ParallelPlan:
    (stage,) = running.stages
    return replace(running, stages=(replace(stage, checkpointing=Checkpointing.FULL, recomputed_layers=3),))


def test_a_sound_snapshot_has_no_issues() -> None:
    assert found(job("a", dp=2), job("b", current=(gpus("n0000", 0),), parallel_plan=plan())) == []


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (job("a", transformer=None), ("missing_model", "/jobs/0/transformer")),
        (
            job("a", reservation=Reservation(gpu_type="h100", num_gpus=1)),
            ("reservation_not_supported", "/jobs/0/reservation"),
        ),
        (job("a", adaptivity=Adaptivity.RIGID, max_gpus=2), ("rigid_bounds", "/jobs/0/max_gpus")),
        (job("a", gpu_types=()), ("no_gpu_type", "/jobs/0/gpu_types")),
        (job("a", dp=2, min_gpus=4), ("parallelism_mismatch", "/jobs/0/parallelism")),
        (job("a", dp=2, current=(gpus("n0000", 0),)), ("below_basic_demand", "/jobs/0/min_gpus")),
        (job("a", max_gpus=1, current=(gpus("n0000", 0, 1),)), ("above_max_gpus", "/jobs/0/current")),
        (
            job("a", current=(gpus("n0000", 0),), parallel_plan=plan(num_layers=23)),
            ("layers", "/jobs/0/parallel_plan"),
        ),
        (
            job("a", current=(gpus("n0000", 0),), parallel_plan=plan(batch=32)),
            ("global_batch", "/jobs/0/parallel_plan"),
        ),
        (
            job("a", current=(gpus("n0000", 0),), parallel_plan=recomputing_some(plan())),
            ("checkpointing", "/jobs/0/parallel_plan/stages/0/checkpointing"),
        ),
    ],
)
def test_what_is_wrong_is_named(wrong: Job, expected: tuple[str, str]) -> None:
    assert found(wrong) == [expected]


def test_basic_demand_in_an_expansion_is_no_basic_demand() -> None:
    grown = Expansion(gpus=(gpus("n0000", 1),), benefit=1.0)
    running = job("a", dp=2, current=(gpus("n0000", 0, 1),), expansions=(grown,))
    assert found(running) == [("below_basic_demand", "/jobs/0/min_gpus")]


def test_gpus_beyond_the_basic_demand_that_nobody_recorded_are_a_warning() -> None:
    (issue,) = policy_issues(cluster_of(job("a", current=(gpus("n0000", 0, 1),))), SuikaParameters())
    assert (issue.code, issue.severity) == ("expansion_not_recorded", Severity.WARNING)


def test_a_job_that_keeps_its_gpus_needs_nothing() -> None:
    assert found(Job(id="a", preemptible=False, current=(gpus("n0000", 0),))) == []


@pytest.mark.parametrize("wrong", [{"aggressiveness": -1.0}, {"aggressiveness": float("nan")}, {"max_rounds": 0}])
def test_parameters_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        SuikaParameters(**wrong)  # type: ignore[arg-type]
