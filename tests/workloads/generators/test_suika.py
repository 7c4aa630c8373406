from collections import Counter
from dataclasses import replace

import pytest

from models.catalogue import find_model
from stowplan.errors import InputError
from tests.growth import work
from tests.paths import SHARED
from tests.workloads.jobs import jobs_of, trace_job
from workloads.generators.suika import SUIKA_64, SUIKA_1024, Scaling, SuikaSetting, suika_workload
from workloads.generators.table_1 import GLOBAL_BATCH, TABLE_1, basic_demand
from workloads.readers import read_trace
from workloads.trace import Trace, sorted_trace

PHILLY = SHARED / "data" / "traces" / "philly.csv"
_SETTING = SuikaSetting(num_gpus=50, window_s=3600.0, trace_gpus=100)
_GPUS = {model: basic_demand(degrees) for models in TABLE_1.values() for model, degrees in models.items()}


def _traced(num_jobs: int = 400) -> Trace:
    jobs = [trace_job(f"j{k}", 9.0 * k, 1 + k % 8, duration_s=60.0 * (1 + k % 5)) for k in range(num_jobs)]
    return sorted_trace("traced", [*jobs, trace_job("cpu", 0.0, 0, duration_s=5.0), trace_job("unknown", 1.0, 2)])


def test_jobs_keep_their_submissions_and_in_all_their_gpu_time() -> None:
    traced = _traced()
    for scaling in Scaling:
        workload = suika_workload(traced, replace(_SETTING, scaling=scaling), seed=1)
        sampled = {job.id: job for job in traced.jobs}
        # 3600 s hold 400 submissions, half of which are drawn.
        assert len(workload.jobs) == 200
        assert all(job.submit_s == sampled[job.id].submit_s for job in workload.jobs)
        assert sum(job.gpu_s or 0.0 for job in workload.jobs) == pytest.approx(
            sum(sampled[job.id].gpu_s or 0.0 for job in workload.jobs)
        )
        ratios = {(round((job.duration_s or 0.0) / (sampled[job.id].duration_s or 1.0), 9)) for job in workload.jobs}
        assert (len(ratios) == 1) is (scaling is Scaling.GLOBAL)
        if scaling is Scaling.PER_JOB:
            assert all(job.gpu_s == pytest.approx(sampled[job.id].gpu_s) for job in workload.jobs)


def test_jobs_train_the_models_of_table_1_on_their_default_gpus() -> None:
    workload = suika_workload(_traced(), _SETTING, seed=3)
    size_of = {model: size for size, models in TABLE_1.items() for model in models}
    for job in workload.jobs:
        assert job.application is not None
        assert (job.num_gpus, job.global_batch) == (_GPUS[job.application], GLOBAL_BATCH[size_of[job.application]])
    drawn = Counter(size_of[job.application or ""] for job in workload.jobs)
    # 200 draws at 3 : 1 : 1; five standard deviations are 35 and 29.
    assert drawn["S"] == pytest.approx(120, abs=35)
    assert drawn["M"] == pytest.approx(40, abs=29)
    assert set(drawn) == {"S", "M", "L"}


def test_the_models_are_in_the_catalogue() -> None:
    for size, models in TABLE_1.items():
        for model in models:
            assert find_model(model, global_batch=GLOBAL_BATCH[size]) is not None


def test_a_stated_load_takes_the_place_of_the_traced_gpu_time() -> None:
    for scaling in Scaling:
        usual = suika_workload(_traced(), replace(_SETTING, scaling=scaling), seed=1)
        loaded = suika_workload(_traced(), replace(_SETTING, scaling=scaling, load=0.8), seed=1)
        assert sum(job.gpu_s or 0.0 for job in loaded.jobs) == pytest.approx(0.8 * 50 * 3600.0)
        ratios = [
            (job.duration_s or 0.0) / (other.duration_s or 1.0)
            for job, other in zip(loaded.jobs, usual.jobs, strict=True)
        ]
        assert ratios == pytest.approx([ratios[0]] * len(ratios))


def test_same_seed_same_workload() -> None:
    traced = _traced()
    assert suika_workload(traced, _SETTING, seed=1) == suika_workload(traced, _SETTING, seed=1)
    assert suika_workload(traced, _SETTING, seed=1) != suika_workload(traced, _SETTING, seed=2)


def test_iterations_follow_from_the_time_of_one() -> None:
    times = {model: 0.5 for models in TABLE_1.values() for model in models}
    workload = suika_workload(_traced(), _SETTING, seed=1, iteration_s=times)
    assert all(job.iterations == pytest.approx(2 * (job.duration_s or 0.0)) for job in workload.jobs)
    with pytest.raises(InputError, match="no time of an iteration of"):
        suika_workload(_traced(), _SETTING, seed=1, iteration_s={})


def test_settings_and_traces_that_are_none_are_refused() -> None:
    for wrong in (
        {"num_gpus": 101},
        {"num_gpus": 0},
        {"load": 0.0},
        {"shares": {"XS": 1}},
        {"shares": {"S": 0}},
        {"shares": {"S": -1}},
    ):
        with pytest.raises(InputError, match=next(iter(wrong))):
            replace(_SETTING, **wrong)
    with pytest.raises(InputError, match="no busiest time"):
        suika_workload(jobs_of((0.0, 1, None)), _SETTING, seed=1)


def test_making_grows_with_the_trace() -> None:
    def cost(num_jobs: int) -> int:
        traced = _traced(num_jobs)
        return work(lambda: suika_workload(traced, _SETTING, seed=1))

    assert cost(200) <= 2.3 * cost(100)


@pytest.mark.slow
@pytest.mark.skipif(not PHILLY.is_file(), reason="needs the published trace beside the checkout")
def test_the_settings_of_the_paper_on_philly() -> None:
    philly = read_trace(PHILLY)
    small, large = (suika_workload(philly, setting, seed=1) for setting in (SUIKA_64, SUIKA_1024))
    # 2,335 and 4,015 submissions in the busiest times, 64 and 1,024 GPUs of 2,490.
    assert (len(small.jobs), len(large.jobs)) == (60, 1651)
    assert max(job.submit_s for job in small.jobs) < SUIKA_64.window_s
    assert max(job.num_gpus for job in small.jobs) == 16
    assert max(job.num_gpus for job in large.jobs) == 256
