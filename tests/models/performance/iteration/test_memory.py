"""Peak memory against arithmetic by hand (Suika A.3)."""

from dataclasses import replace

import pytest

from models.performance.iteration.model import PerformanceModel
from models.pipeline_schedule import PipelineSchedule
from tests.models.performance.iteration.plan_scenes import model, plan, profile

TWO_STAGES = ((2, 2, {"a": [2], "b": [2]}), (2, 2, {"a": [2], "b": [2]}))


def test_pipeline_by_hand() -> None:
    # 2 layers on 2 tensor ranks: weights 10 x 2 / 2 = 10, optimiser 40, gradients 30 bytes. A sample keeps
    # 2 x (6 / 2 + 1) = 8 bytes: stage 0 holds 2 samples of each of min(2, 3) micro-batches, stage 1 of one.
    first, last = model(profile(4)).memory(plan(*TWO_STAGES, num_micro_batches=3))
    assert (first.parameter_bytes, first.optimizer_bytes, first.gradient_bytes) == (10, 40, 30)
    assert (first.activation_bytes, last.activation_bytes) == (32, 16)
    assert (first.total_bytes, last.total_bytes) == (112, 96)


def test_last_of_several_stages_holds_a_copy_of_tied_embeddings() -> None:
    # 20 tied parameters are 2 mean layers: the last stage holds as much as 4 layers on its 2 tensor ranks.
    tied, plain = (model(profile(4, tied_parameters=count)) for count in (20.0, 0.0))
    two = plan(*TWO_STAGES, num_micro_batches=3)
    first, last = tied.memory(two)
    assert first == plain.memory(two)[0]
    assert (last.parameter_bytes, last.optimizer_bytes, last.gradient_bytes) == (20, 80, 60)
    assert last.activation_bytes == 16
    alone = plan((4, 1, {"a": [2], "b": [2]}))
    assert tied.memory(alone) == plain.memory(alone)
    # Without ZeRO 176 bytes; its stage 1 shares the 80 bytes of optimiser states among two replicas.
    for zero_stage, needed in ((0, 176.0), (1, 136.0)):
        job = model(profile(4, tied_parameters=20.0, zero_stage=zero_stage), headroom=0.0)
        for usable, fits in ((needed, True), (needed - 1, False)):
            assert replace(job, memory_bytes={"x": usable}).fits(two) is fits


def test_gradients_come_when_activations_go() -> None:
    # With 2 micro-batches stage 0 has run all forward passes before its first backward pass: 32 bytes of activations
    # fall to 0 while gradients grow to 30. With 1 micro-batch it is 16 to 30, and the peak is 14 above activations.
    few, one = (model(profile(4)).memory(plan(*TWO_STAGES, num_micro_batches=n))[0] for n in (2, 1))
    assert (few.gradient_bytes, few.activation_bytes) == (0, 32)
    assert (one.gradient_bytes, one.activation_bytes) == (14, 16)


@pytest.mark.parametrize(
    ("zero_stage", "weights", "optimizer", "gradients"),
    # 4 layers, 4 replicas without tensor parallelism. Of the layer at work another 3/4 come in: of its gradients, at
    # stage 3 of its weights, too.
    [(0, 40, 160, 120), (1, 40, 40, 120), (2, 40, 40, 30 + 22.5), (3, 10 + 7.5, 40, 30 + 22.5)],
)
def test_zero_by_hand(zero_stage: int, weights: float, optimizer: float, gradients: float) -> None:
    job = model(profile(4, zero_stage=zero_stage))
    (memory,) = job.memory(plan((4, 1, {"a": [1, 1], "b": [1, 1]})))
    found = (memory.parameter_bytes, memory.optimizer_bytes, memory.gradient_bytes)
    assert found == pytest.approx((weights, optimizer, gradients))


def test_headroom_decides() -> None:
    # The two stages need 112 and 96 bytes.
    needs_112 = plan(*TWO_STAGES, num_micro_batches=3)
    for memory_bytes, headroom, fits in ((112, 0.0, True), (111, 0.0, False), (112, 0.1, False), (125, 0.1, True)):
        assert _with_memory(x=memory_bytes, headroom=headroom).fits(needs_112) is fits


def test_every_replica_is_held_against_its_own_gpus() -> None:
    # One stage of 4 layers on two types without tensor parallelism: 40 + 160 + 120 bytes and 28 for each sample.
    unequal = plan((4, 1, {"a": [1], "c": [5]}))
    assert _with_memory(x=348.0, y=460.0).fits(unequal)
    assert not _with_memory(x=347.0, y=460.0).fits(unequal)
    assert not _with_memory(x=348.0, y=459.0).fits(unequal)


def _with_memory(*, x: float, y: float = 1000.0, headroom: float = 0.0) -> PerformanceModel:
    return model(profile(4), memory_bytes={"x": x, "y": y}, headroom=headroom)


def test_sequence_parallelism_splits_what_is_replicated() -> None:
    """Of one replica with two shards: 6 / 2 + 1 bytes a sample and layer without it, (6 + 1) / 2 with it."""
    whole, split = (
        model(replace(profile(), sequence_parallel=flag)).memory(plan((6, 2, {"a": [1]}), num_micro_batches=1))[0]
        for flag in (False, True)
    )
    assert (whole.activation_bytes, split.activation_bytes) == (6 * 4.0, 6 * 3.5)


def test_the_layer_that_is_being_repeated_is_there_beside_what_is_kept() -> None:
    working = replace(profile(), working_partitioned_bytes=10.0, working_replicated_bytes=3.0)
    (stage,) = model(working).memory(plan((6, 2, {"a": [2]}), num_micro_batches=1))
    (without,) = model().memory(plan((6, 2, {"a": [2]}), num_micro_batches=1))
    assert stage.activation_bytes - without.activation_bytes == 2 * (10 / 2 + 3)


def test_interleaved_stages_keep_more() -> None:
    """1 + (p - 1) / (p v) of what the first stage keeps otherwise (Korthikanti et al. 2022, section 4.2.3)."""
    plain = plan((3, 1, {"a": [1]}), (3, 1, {"b": [1]}), num_micro_batches=8)
    first, last = (
        [stage.activation_bytes for stage in model().memory(of)] for of in (plain, replace(plain, virtual_stages=3))
    )
    assert last[0] == pytest.approx(first[0] * (1 + 1 / (2 * 3)))
    assert last[1] == pytest.approx(first[1] * (2 * 2 + 1) / 3)


def test_what_waits_for_its_weights_is_kept_by_all_stages() -> None:
    """As much as the first stage of 1F1B keeps, the last one with gradients that wait, each 0.6 of a micro-batch: of
    one of two parts; under zbv of both, when 1.5 micro-batches are left. Its first stage ends the model, too."""
    plain = plan((4, 1, {"a": [1]}), (4, 1, {"b": [1]}), num_micro_batches=8)
    ends = replace(
        profile(8),
        embedding=replace(profile(8).embedding, parameters=24.0),
        head=replace(profile(8).head, parameters=48.0),
    )
    one, looped, folded = (
        model(ends).memory(replace(plain, virtual_stages=parts, schedule=schedule))
        for parts, schedule in (
            (1, PipelineSchedule.ONE_F_ONE_B),
            (2, PipelineSchedule.ZERO_BUBBLE),
            (2, PipelineSchedule.ZBV),
        )
    )
    for found, last in ((looped, 2.3), (folded, 2.1)):
        expected = [one[0].activation_bytes, one[0].activation_bytes / 2 * last]
        assert [stage.activation_bytes for stage in found] == pytest.approx(expected)
    assert looped[1].parameter_bytes == one[1].parameter_bytes
    assert folded[0].parameter_bytes + folded[1].parameter_bytes == pytest.approx(
        one[0].parameter_bytes + one[1].parameter_bytes
    )
    assert folded[1].parameter_bytes < min(one[0].parameter_bytes, one[1].parameter_bytes)


def test_the_driver_reports_overhead_too() -> None:
    of = plan((6, 1, {"a": [1]}))
    assert model(overhead_bytes=7.0).reported_bytes(of) == model().memory(of)[0].total_bytes + 7
