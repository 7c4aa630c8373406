"""What a job needs to be deployed, and the deployment of what a plan gives it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from executor.deployed.submission import Submission, deployment_of, read_submission, write_submission
from executor.deployment import TrainingOptions
from executor.progress import ScalingRule
from executor.training_options import EngineName, Schedule
from models.parallel_plan import ParallelPlan, Replica, Stage
from models.parallelism.training import ALL_CHECKPOINTING, Choices, Training
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputObservations,
    GoodputTable,
    GradientStatistics,
    Performance,
    TableEntry,
    ThroughputParameters,
    ThroughputTable,
    TypeProfile,
)
from models.transformer import Checkpointing, Precision
from models.workload import Job, Parallelism
from stowplan.errors import InputError
from tests.executor.control.test_controller import given_to
from tests.executor.deployed.scenes import MODEL, job_of, submitted
from tests.models.allocation.gang.scenes import cluster

_ENTRIES = (TableEntry(gpu_type="a", num_gpus=2, value=16.0),)


@pytest.mark.parametrize(
    "performance",
    [
        None,
        ThroughputTable(entries=_ENTRIES),
        GoodputTable(entries=_ENTRIES),
        GoodputObservations(
            batch=BatchRange(initial=8, maximum=8),
            gradient=GradientStatistics(squared_norm=1.0, variance=2.0),
            observations=(),
        ),
    ],
)
def test_a_submission_comes_back_as_it_was_written(performance: Performance | None, tmp_path: Path) -> None:
    written = submitted(job_of("j", parallelism=Parallelism(tp=2, pp=1, dp=1), performance=performance))
    write_submission(written, tmp_path / "submission.json")
    assert read_submission(tmp_path / "submission.json") == written


def test_a_damaged_submission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "submission.json"
    write_submission(submitted(job_of("j")), path)
    path.write_text(path.read_text().replace('"performance": null', '"performance": {"speed": 1}'))
    with pytest.raises(InputError, match=r"/job/performance: has the fields \['speed'\]"):
        read_submission(path)
    path.write_text("{")
    with pytest.raises(InputError, match=r"submission\.json cannot be read"):
        read_submission(path)


def test_a_job_that_cannot_be_deployed_is_refused_when_it_comes() -> None:
    with pytest.raises(InputError, match=r"/job/transformer: is missing; a job is deployed by the model"):
        Submission(job=Job(id="j", min_gpus=2))
    with pytest.raises(InputError, match="fp16"):
        Submission(job=job_of("j", transformer=replace(MODEL, precision=Precision.FP16)))
    with pytest.raises(InputError, match="num_steps: is 0; at least 1"):
        submitted(job_of("j"), steps=0)
    with pytest.raises(InputError, match="learning_rate"):
        Submission(job=job_of("j"), training=TrainingOptions(schedule=Schedule(learning_rate=-1.0)))
    with pytest.raises(InputError, match="/launch/spares: must be left out"):
        submitted(job_of("j"), spares=("a1",))
    with pytest.raises(InputError, match="backend is 'pigeons'"):
        submitted(job_of("j"), backend="pigeons")


@pytest.mark.parametrize(
    ("degrees", "nodes", "notation"),
    [
        (None, {"a0": range(4)}, "PP1 DP4 TP1 (4 layers, 2 x 4)"),
        (Parallelism(tp=2, pp=1, dp=1), {"a0": range(2), "a1": range(2)}, "PP1 DP2 TP2 (4 layers, 4 x 2)"),
        (Parallelism(tp=1, pp=2, dp=1), {"a0": range(1), "a1": range(1)}, "PP2 DP1 TP1 (2+2 layers, 8 x 1)"),
    ],
)
def test_replicas_fill_the_gpus(degrees: Parallelism | None, nodes: dict[str, Any], notation: str) -> None:
    """At least four micro-batches a stage, as far as the batch of 8 goes: 4 of 2, 8 of 1; with DP4 no more than 2."""
    made = deployment_of(submitted(job_of("j", parallelism=degrees)), given_to("j", **nodes), cluster(4, 4))
    assert (made.name, made.plan.notation()) == ("j", notation)
    assert made.plan.gpus == tuple((node, gpu) for node, gpus in nodes.items() for gpu in gpus)


def test_a_plan_with_its_own_parallelism_is_run_as_it_is_or_by_the_nearest_that_is_symmetric() -> None:
    def stage(num_layers: int, *gpus: tuple[int, int]) -> Stage:
        return Stage(
            num_layers=num_layers,
            replicas=tuple(Replica(node="a0", gpu_type="a", gpus=(gpu,), local_batch=batch) for gpu, batch in gpus),
        )

    even = ParallelPlan(stages=(stage(1, (0, 2)), stage(3, (1, 2))), num_micro_batches=4)
    uneven = ParallelPlan(stages=(stage(1, (0, 2)), stage(3, (1, 1), (2, 1))), num_micro_batches=4)
    job = submitted(job_of("j"))
    given = replace(given_to("j", a0=range(2)), parallel_plan=even)
    assert deployment_of(job, given, cluster(4)).plan == even
    given = replace(given_to("j", a0=range(3)), parallel_plan=uneven)
    found = deployment_of(job, given, cluster(4)).plan
    assert found.is_symmetric
    assert set(found.gpus) <= set(uneven.gpus)
    native = replace(job, training=replace(job.training, engine=EngineName.NATIVE))
    assert deployment_of(native, given, cluster(4)).plan == uneven


def test_a_plan_says_how_a_job_trains_that_leaves_it_open(tmp_path: Path) -> None:
    job = submitted(job_of("j", choices=Choices(checkpointing=ALL_CHECKPOINTING)))
    write_submission(job, tmp_path / "submission.json")
    assert read_submission(tmp_path / "submission.json") == job
    given = given_to("j", a0=range(2))
    with pytest.raises(InputError, match="no plan that says how it trains"):
        deployment_of(job, given, cluster(4))
    full = Training(checkpointing=Checkpointing.FULL, zero_stage=1)
    plan = replace(deployment_of(submitted(job_of("j")), given, cluster(4)).plan, training=full)
    made = deployment_of(job, replace(given, parallel_plan=plan), cluster(4))
    assert made.model == replace(MODEL, checkpointing=Checkpointing.FULL)
    assert made.plan == plan


def test_what_does_not_fit_the_job_is_refused() -> None:
    job = submitted(job_of("j", parallelism=Parallelism(tp=2, pp=1, dp=1)))
    with pytest.raises(InputError, match="gets 3 GPUs; TP2 PP1 needs a multiple of 2"):
        deployment_of(job, given_to("j", a0=range(3)), cluster(4))
    with pytest.raises(InputError, match="leaves its node"):
        deployment_of(job, given_to("j", a0=range(1), a1=range(1)), cluster(4, 4))
    with pytest.raises(InputError, match="a batch of 8 does not divide over 3 replicas"):
        deployment_of(submitted(job_of("j")), given_to("j", a0=range(3)), cluster(4))
    with pytest.raises(InputError, match="a batch of 16; the trainer keeps the model's of 8"):
        deployment_of(submitted(job_of("j")), replace(given_to("j", a0=range(2)), batch_size=16), cluster(4))


_RANGE = GoodputObservations(
    batch=BatchRange(initial=8, maximum=64),
    gradient=GradientStatistics(squared_norm=1.0, variance=2.0),
    observations=(),
)
_ADAPTS = Schedule(scaling=ScalingRule.SQUARE_ROOT, initial_batch=8)


def _adaptive(schedule: Schedule = _ADAPTS, **more: Any) -> Submission:
    made = submitted(job_of("j"))
    job = job_of("j", **{"performance": _RANGE} | more)
    return replace(made, job=job, training=replace(made.training, schedule=schedule))


def test_a_job_trains_with_the_batch_that_sia_chooses() -> None:
    chosen = replace(given_to("j", a0=range(3)), batch_size=36, local_batch_size=6, accumulation_steps=2)
    made = deployment_of(_adaptive(), chosen, cluster(4))
    assert made.plan.notation() == "PP1 DP3 TP1 (4 layers, 2 x 18)"
    assert (made.model, made.training.schedule) == (replace(MODEL, global_batch=36), _ADAPTS)
    # Smaller last shares keep within the maximum: what all replicas can have alike is a little less.
    made = deployment_of(_adaptive(), replace(chosen, batch_size=34), cluster(4))
    assert made.model.global_batch == made.plan.global_batch == 30
    # The next plan of the run, of another size.
    alone = replace(given_to("j", a0=range(1)), batch_size=8, local_batch_size=8, accumulation_steps=1)
    after = made.changed_to(deployment_of(_adaptive(), alone, cluster(4)).plan)
    assert (after.model.global_batch, after.training) == (8, made.training)
    with pytest.raises(InputError, match="the plan makes 8 sequences a step, the model's global batch is 30"):
        replace(made, plan=after.plan)


def test_a_batch_that_cannot_be_is_refused() -> None:
    chosen = replace(given_to("j", a0=range(4)), batch_size=6, local_batch_size=2, accumulation_steps=2)
    with pytest.raises(InputError, match="batch of 6 in 2 micro-batches on 4 GPUs: none has a sequence in each") as no:
        deployment_of(_adaptive(), chosen, cluster(4))
    assert no.value.issues[0].pointer == "/job/performance/batch"
    with pytest.raises(InputError, match="/training/schedule/initial_batch: is 4, the model's global batch 8"):
        _adaptive(replace(_ADAPTS, initial_batch=4))
    with pytest.raises(InputError, match="/job/performance/batch/initial: is 16; the model's global batch"):
        _adaptive(performance=replace(_RANGE, batch=BatchRange(initial=16, maximum=64)))
    with pytest.raises(InputError, match="/job/parallelism: is TP2 PP1; a batch that Sia chooses"):
        _adaptive(parallelism=Parallelism(tp=2, pp=1, dp=1))
    times = ThroughputParameters(
        alpha_c=1.0,
        beta_c=1.0,
        alpha_r=0.0,
        beta_r=0.0,
        alpha_n=0.0,
        beta_n=0.0,
        gamma=1.0,
    )
    profile = TypeProfile(parameters=times, min_local_batch=100, max_local_batch=200)
    model = GoodputModel(batch=_RANGE.batch, gradient=_RANGE.gradient, profiles={"a": profile})
    with pytest.raises(InputError, match="/job/performance/batch/maximum: is 64; one GPU works on 100 sequences"):
        _adaptive(performance=model)
