"""Profiling stages one after another, on CPU with a tiny model."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor extra is not installed")
pytest.importorskip("deepspeed", reason="the executor extra is not installed")

from executor.records import read_record, write_record
from executor.stage_profile import StageProfile
from executor.trainer.profile import main, stage_profile
from executor.training_options import Device
from models.parallel_plan import symmetric_plan
from models.performance.iteration.modelling import virtual_model
from models.transformer import Precision, Transformer
from stowplan.errors import InputError
from topology.gpu_catalogue import find_product, gpu_type_of

pytestmark = [pytest.mark.slow, pytest.mark.training]

TINY = Transformer(
    num_layers=3,
    hidden_size=64,
    num_heads=4,
    vocabulary_size=128,
    sequence_length=16,
    global_batch=8,
    precision=Precision.FP32,
)
# Two layers and one, two GPUs each: what one worker of each stage does is measured.
PLAN = symmetric_plan(
    num_layers=(2, 1),
    pp=2,
    dp=1,
    tp=2,
    global_batch=8,
    num_micro_batches=4,
    gpu_type="cpu",
    gpus=(("0", 0), ("0", 1), ("1", 0), ("1", 1)),
)


def test_every_stage_is_measured_and_gives_coefficients() -> None:
    profile = stage_profile(TINY, PLAN, Device.CPU, repeats=3)
    assert [measured.stage for measured in profile.measurements] == [0, 1]
    assert all(measured.forward_s > 0 and measured.backward_s > 0 for measured in profile.measurements)
    # The activation of a micro-batch of two sequences in fp32.
    assert profile.measurements[0].output_bytes == 2 * 16 * 64 * 4
    assert profile.calibration.gpus["cpu"].compute_s > 0


def test_a_small_micro_batch_is_predicted_as_it_was_measured() -> None:
    """Its kernels are slow for their size: that is the model's to say, not the coefficients'."""
    kind = gpu_type_of(find_product("h100"), "fp32")
    plan = symmetric_plan(
        num_layers=3, pp=1, dp=1, tp=1, global_batch=8, num_micro_batches=8, gpu_type="h100", gpus=(("0", 0),)
    )
    profile = stage_profile(TINY, plan, Device.CPU, repeats=1)
    (stage,) = virtual_model(TINY, kind, 1, 1, profile.calibration).iteration(plan).stages
    (seen,) = profile.measurements
    assert (stage.forward_s, stage.backward_s) == pytest.approx((seen.forward_s, seen.backward_s))


def test_the_command_writes_what_can_be_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", "gpt2-350m", "--gpu-type", "h100", "--device", "cuda", "-o", str(tmp_path / "p.json")]
    with pytest.raises(InputError, match="no GPU"):
        stage_profile(TINY, PLAN, Device.CUDA, repeats=1)
    assert main(arguments) == 2
    assert "this machine shows no GPU" in capsys.readouterr().err
    assert main(["--model", "gpt5", "--gpu-type", "h100", "-o", str(tmp_path / "p.json")]) == 2
    assert "gpt5" in capsys.readouterr().err


def test_a_model_of_a_file_that_the_trainer_cannot_build(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.sh"
    shape = "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --vocab-size 128"
    arguments = ["--model", str(file), "--gpu-type", "h100", "--device", "cpu", "-o", str(tmp_path / "p.json")]
    file.write_text(f"{shape} --num-experts 4 --bf16", encoding="utf-8")
    assert main(arguments) == 2
    assert "/model/num_experts: is 4; profiles are of dense models: calibrate with steps" in capsys.readouterr().err
    file.write_text(f"{shape} --precision fp16 --fp16", encoding="utf-8")
    assert main([*arguments, "--precision", "fp32", "--repeats", "1", "--global-batch", "1"]) == 0
    assert read_record(StageProfile, tmp_path / "p.json", "profile").model.sequence_length == 8


def test_profiles_are_records(tmp_path: Path) -> None:
    profile = stage_profile(TINY, PLAN, Device.CPU, repeats=1)
    write_record(profile, tmp_path / "profile.json")
    assert read_record(StageProfile, tmp_path / "profile.json", "profile") == profile
