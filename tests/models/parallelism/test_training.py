"""Checkpointing and ZeRO stage left to the search: the best of all fixed choices, and what each of them brings."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.parallelism.planner import answer
from models.parallelism.request import Offer, ParallelRequest
from models.parallelism.training import ALL_CHECKPOINTING, ALL_ZERO_STAGES, Choices, Training
from models.software import Software
from models.transformer import Checkpointing, OperatorModel, Transformer
from stowplan.errors import InputError
from topology.cluster import GpuType

KIND = GpuType(
    name="gpu",
    memory_bytes=40 * 10**9,
    peak_flops_per_s=312e12,
    intra_node_bandwidth_bytes_per_s=300e9,
    inter_node_bandwidth_bytes_per_s=25e9,
)
GPT = Transformer(
    num_layers=8, hidden_size=2048, num_heads=16, vocabulary_size=51200, sequence_length=1024, global_batch=16
)
OPEN = Choices(checkpointing=ALL_CHECKPOINTING, zero_stages=ALL_ZERO_STAGES)


def request(memory_gb: int = 40, counts: tuple[int, ...] = (4, 8), **training: object) -> ParallelRequest:
    kind = replace(KIND, memory_bytes=memory_gb * 10**9)
    model = replace(GPT, **training)  # type: ignore[arg-type]
    return ParallelRequest(model=model, offers=(Offer(gpu_type=kind, gpus_per_node=4, counts=counts),))


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    memory_gb=st.sampled_from([1, 2, 3, 5, 80]),
    software=st.sampled_from(list(Software)),
    sequence_length=st.sampled_from([1024, 8192]),
)
def test_the_search_chooses_what_is_best_of_all_fixed_choices(
    memory_gb: int, software: Software, sequence_length: int
) -> None:
    # Small, since every one of the choices is searched by itself, too.
    of = request(memory_gb, (8,), software=software, sequence_length=sequence_length, num_layers=4, global_batch=8)
    fixed = {}
    for model in OPEN.models(of.model):
        try:
            fixed[Training.of(model)] = answer(replace(of, model=model)).best.estimate.iteration.total_s
        except InputError:
            continue
    if not fixed:
        with pytest.raises(InputError, match="no plan"):
            answer(replace(of, choices=OPEN))
        return
    found = answer(replace(of, choices=OPEN))
    told = {other.training: other.estimate.iteration.total_s for other in found.alternatives if other.estimate}
    assert found.best.seconds == min(told.values())
    assert (
        told[Training.of(found.best.model, by_stage=found.best.estimate.plan.has_own_checkpointing)]
        == found.best.seconds
    )
    assert {training: seconds for training, seconds in told.items() if not training.by_stage} == fixed
    alike = [other for other in found.alternatives if not other.training.by_stage]
    assert len(alike) == len(ALL_CHECKPOINTING) * len(ALL_ZERO_STAGES)


def test_each_number_of_gpus_has_its_own_way() -> None:
    """4 GPUs of 4 GB need to repeat what 16 have room for."""
    found = answer(replace(request(4, (4, 16)), choices=Choices(checkpointing=ALL_CHECKPOINTING)))
    few, many = (Training.of(point.model).checkpointing for point in found.points)
    assert (few, many) == (Checkpointing.SELECTIVE, Checkpointing.NONE)
    assert {grid.num_gpus for grid in found.grids} == {4, 16}
    assert found.tuner is not None


def test_when_the_time_is_over_the_first_way_is_answered() -> None:
    found = answer(replace(request(), choices=OPEN), over=lambda: True)
    assert [point.num_gpus for point in found.points] == [4]
    assert [Training.of(point.model).words for point in found.points] == ["none checkpointing, ZeRO 1"]
    assert all("time was over" in other.why for other in found.alternatives if other.estimate is None)


def test_operators_have_no_checkpointing_to_choose() -> None:
    with pytest.raises(InputError, match="transformers only"):
        OPEN.models(OperatorModel(operators=(), global_batch=1))
