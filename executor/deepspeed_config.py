"""The DeepSpeed configuration of a training job."""

from typing import Any

from executor.training_job import TrainingJob
from executor.training_options import Device
from models.transformer import Precision


def ds_config(job: TrainingJob) -> dict[str, Any]:
    """Give what `deepspeed.initialize` takes, ready for JSON.

    ZeRO-1 always: with ZeRO-0 DeepSpeed clips by a wrong norm under tensor parallelism, and 2 and 3 exclude
    pipelines. The learning rate is set by the trainer before every step.
    """
    schedule = job.schedule
    adam: dict[str, Any] = {
        "lr": schedule.learning_rate,
        "betas": [schedule.beta1, schedule.beta2],
        "eps": schedule.epsilon,
        "weight_decay": schedule.weight_decay,
        # The library's own would be compiled first, for minutes, and needs a compiler on every host.
        "torch_adam": True,
    }
    if job.device is Device.CUDA:
        adam["fused"] = True
    config: dict[str, Any] = {
        "train_batch_size": job.global_batch,
        "train_micro_batch_size_per_gpu": job.stages[0].batches[0],
        "gradient_accumulation_steps": job.num_micro_batches,
        "optimizer": {"type": "AdamW", "params": adam},
        "gradient_clipping": schedule.gradient_clipping,
        "zero_optimization": {"stage": 1},
        "steps_per_print": 2**31,
        # Its timer waits for the GPU before every micro-batch, and what it reports is wrong with pipelines.
        "timers": {"throughput": {"enabled": False, "synchronized": False}},
    }
    if job.model.precision is Precision.BF16:
        # Gradients are accumulated and reduced in fp32, and the bf16 ones freed as soon as they are added.
        config["bf16"] = {"enabled": True, "immediate_grad_update": True}
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    return config
