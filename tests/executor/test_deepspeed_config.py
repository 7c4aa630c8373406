"""Settings that faults of the library make necessary, and those that follow from the job."""

import json
from dataclasses import replace

from executor.deepspeed_config import ds_config
from executor.training_options import Device
from models.transformer import Precision
from tests.executor.jobs import GPT, tiny_job


def test_batch_of_the_job() -> None:
    config = ds_config(tiny_job(stage_layers=(2, 2), dp=2))
    assert config["train_batch_size"] == 8
    assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 2 == 8


def test_adam_that_needs_no_compiler() -> None:
    on_cpu, on_cuda = (ds_config(tiny_job(device=device))["optimizer"]["params"] for device in Device)
    assert on_cpu["torch_adam"] is on_cuda["torch_adam"] is True
    assert on_cuda["fused"] is True
    assert "fused" not in on_cpu


def test_zero_1_and_no_timers_of_the_library() -> None:
    config = ds_config(tiny_job())
    assert config["zero_optimization"]["stage"] == 1
    assert config["timers"]["throughput"]["enabled"] is False
    assert not {"wall_clock_breakdown", "comms_logger", "flops_profiler"} & config.keys()


def test_bf16_accumulates_in_fp32() -> None:
    config = ds_config(tiny_job(replace(GPT, precision=Precision.BF16)))
    assert config["bf16"]["enabled"] is True
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
    assert "bf16" not in ds_config(tiny_job())


def test_is_json() -> None:
    config = ds_config(tiny_job())
    assert json.loads(json.dumps(config)) == config
