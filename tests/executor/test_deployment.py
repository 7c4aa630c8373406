"""What is deployed: names for files and schedulers, and models that are trained as they were planned."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from executor.deployment import Deployment, LaunchOptions, TrainingOptions, deployment_name
from executor.training_job import TrainingJob
from executor.training_options import Device, EngineName
from models.parallel_plan import symmetric_plan
from stowplan.errors import InputError
from tests.executor.jobs import GPT, LLAMA

PLAN = symmetric_plan(
    num_layers=4, pp=2, dp=1, tp=1, global_batch=8, num_micro_batches=2, gpu_type="h100", gpus=(("a", 0), ("a", 1))
)
_IDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=256)


@given(st.lists(_IDS | st.from_regex(r"[a-zA-Z0-9.-]{1,80}", fullmatch=True), min_size=2, max_size=8, unique=True))
@example(["gpt2-2.6b", "gpt2-2-6b", deployment_name("gpt2-2.6b"), "GPT2-2-6b", "gpt2_2.6b"])
@example(["-", "--", "job", "1", "job-1", "x" * 63, "x" * 64, "x" * 65])
@settings(max_examples=30, deadline=None)
def test_names_of_jobs_are_words_and_differ(job_ids: list[str]) -> None:
    names = [deployment_name(job_id) for job_id in job_ids]
    assert len(set(names)) == len(job_ids)
    for name in names:
        assert Deployment(name=name, model=GPT, plan=PLAN).name == name.lower()


def test_names_that_are_words_stay() -> None:
    assert deployment_name("llama2-13b") == "llama2-13b"
    assert deployment_name("gpt2-2.6b").startswith("gpt2-2-6b-")


@pytest.mark.parametrize(("backend", "limit_s"), [("local", None), ("slurm", 86_400.0), ("kubernetes", 86_400.0)])
def test_only_schedulers_end_a_run(backend: str, limit_s: float | None) -> None:
    assert LaunchOptions(backend=backend).run_limit_s == limit_s


@pytest.mark.parametrize("zero_stage", [0, 2, 3])
def test_no_zero_stage_is_replaced(zero_stage: int) -> None:
    model = replace(GPT, zero_stage=zero_stage)
    with pytest.raises(InputError, match=f"is {zero_stage}; the trainer runs stage 1 only under DeepSpeed.*native"):
        Deployment(name="llm", model=model, plan=PLAN)
    native = TrainingOptions(engine=EngineName.NATIVE)
    if zero_stage == 0:
        with pytest.raises(InputError, match="is 0; the trainer runs stages 1, 2 and 3 under the engine native"):
            Deployment(name="llm", model=model, plan=PLAN, training=native)
    else:
        deployed = Deployment(name="llm", model=model, plan=PLAN, training=native)
        assert deployed.training_job(Path(), Path()).model.zero_stage == zero_stage


def test_the_training_job_has_the_model_of_the_deployment(tmp_path: Path) -> None:
    job = Deployment(name="llm", model=GPT, plan=PLAN).training_job(tmp_path, tmp_path)
    assert isinstance(job, TrainingJob)
    assert (job.model, job.device, job.stage_layers, job.micro_batch) == (GPT, Device.CUDA, (2, 2), 4)


def test_the_native_engine_gets_the_parts_of_an_interleaved_plan(tmp_path: Path) -> None:
    native = TrainingOptions(engine=EngineName.NATIVE)
    job = Deployment(name="llm", model=GPT, plan=replace(PLAN, virtual_stages=2), training=native).training_job(
        tmp_path, tmp_path
    )
    assert (job.engine, job.part_layers) == (EngineName.NATIVE, (1, 1, 1, 1))


def test_the_native_engine_learns_who_shares_experts(tmp_path: Path) -> None:
    model = replace(LLAMA, num_experts=4, experts_per_token=2)
    gpus = tuple(("a", k) for k in range(4))
    plan = symmetric_plan(
        num_layers=4, pp=2, dp=2, tp=1, ep=2, global_batch=8, num_micro_batches=2, gpu_type="h100", gpus=gpus
    )
    native = TrainingOptions(engine=EngineName.NATIVE)
    made = Deployment(name="llm", model=model, plan=plan, training=native)
    assert made.training_job(tmp_path, tmp_path).expert_parallel == 2
    assert [rank.expert for rank in made.ranks()] == [0, 1, 0, 1]
