"""Tiny training jobs: 4 blocks of width 64, 20 steps of 8 sequences of 32 tokens."""

from dataclasses import replace
from typing import Any

from executor.training_job import TrainingJob
from executor.training_layout import StageLayout
from executor.training_options import Device, Schedule
from models.transformer import Biases, Normalisation, Positions, Precision, Transformer

# 101 rows do not divide by 2, so tensor parallelism must pad them. Clipping is in force in most steps.
GPT = Transformer(
    num_layers=4,
    hidden_size=64,
    vocabulary_size=101,
    sequence_length=32,
    global_batch=8,
    num_heads=4,
    precision=Precision.FP32,
)
LLAMA = replace(
    GPT,
    vocabulary_size=96,
    num_kv_heads=2,
    feed_forward_size=96,
    gated=True,
    normalisation=Normalisation.RMSNORM,
    biases=Biases.NONE,
    positions=Positions.ROTARY,
    tied_embeddings=False,
)
SCHEDULE = Schedule(learning_rate=3e-3, warmup_steps=4, decay_steps=20, gradient_clipping=0.5)


def tiny_job(
    model: Transformer = GPT, *, stage_layers: tuple[int, ...] = (4,), dp: int = 1, tp: int = 1, **more: Any
) -> TrainingJob:
    """A job on CPU whose replicas have micro-batches of 2 sequences."""
    stages = tuple(StageLayout(num_layers=layers, tp=tp, batches=(2,) * dp) for layers in stage_layers)
    settings: dict[str, Any] = {"num_steps": 20, "device": Device.CPU, "schedule": SCHEDULE, "seed": 7}
    settings |= {"stages": stages, "num_micro_batches": 4 // dp} | more
    return TrainingJob(model=model, **settings)
