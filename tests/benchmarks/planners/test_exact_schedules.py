"""Exact times against passes one by one, and what is counted of jobs."""

from dataclasses import replace

import pytest

from benchmarks.planners.exact_schedules import exact_s, summary
from models.parallel_plan import symmetric_plan
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.schedule import schedule
from models.transformer import Transformer
from topology.gpu_catalogue import find_product, gpu_type_of

GPT = Transformer(
    num_layers=7, hidden_size=1024, num_heads=16, vocabulary_size=32000, sequence_length=512, global_batch=16
)


@pytest.mark.parametrize("num_micro_batches", [2, 16])
def test_exact_times_are_those_of_the_passes_one_by_one(num_micro_batches: int) -> None:
    """Uneven stages, without transfers."""
    model = replace(virtual_model(GPT, gpu_type_of(find_product("h100"), "bf16"), 8, 1), send_receive=False)
    plan = symmetric_plan(
        num_layers=(1, 4, 2),
        pp=3,
        dp=1,
        tp=2,
        global_batch=16,
        num_micro_batches=num_micro_batches,
        gpu_type="h100",
        gpus=tuple(("0", gpu) for gpu in range(6)),
    )
    stages = model.iteration(plan).stages
    passes = schedule([s.forward_s for s in stages], [s.backward_s for s in stages], num_micro_batches)
    last_s = [max(one.end_s for one in passes if one.stage == i) + s.optimizer_s for i, s in enumerate(stages)]
    assert exact_s(model, plan) == pytest.approx(max(last_s), rel=0.002)


def test_a_summary_counts_other_choices() -> None:
    row = {"candidates": 3, "search_cpu_s": 1.0, "exact_cpu_s": 0.5}
    found = summary([{**row, "loss": 0.0}, {**row, "loss": 0.01}])
    assert (found["jobs"], found["candidates"], found["other choice"]) == (2, 6, 1)
    assert found["largest loss"] == 0.01
