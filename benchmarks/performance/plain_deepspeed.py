"""DeepSpeed without a pipeline, which has ZeRO 2 and 3: what `engine_rank` measures the native engine beside."""

import deepspeed
import torch
import torch.distributed as dist

from executor.deepspeed_config import ds_config
from executor.trainer.context import LayerContext
from executor.trainer.decay import parameter_groups
from executor.trainer.engine import Batches, StepResult
from executor.trainer.layers import layers_of
from executor.trainer.native.module import StageModule
from executor.training_job import TrainingJob


class PlainDeepSpeed:
    """A job of one stage without tensor parallelism, by its ZeRO stage; only steps."""

    def __init__(self, job: TrainingJob) -> None:
        layers = layers_of(job, LayerContext(seed=job.seed))
        module = StageModule(layers, layers.bounds(job.stage_layers), 0, 1)
        config = ds_config(job) | {"zero_optimization": {"stage": job.model.zero_stage}}
        config.setdefault("data_types", {"grad_accum_dtype": "fp32"})
        if "bf16" in config:
            config["bf16"] = {"enabled": True}
        self._loss, self._num_micro_batches = layers.loss, job.num_micro_batches
        self._engine, *_ = deepspeed.initialize(
            model=module,
            model_parameters=parameter_groups(module, job.schedule.weight_decay),
            config=config,
            dist_init_required=False,
        )

    def train_step(self, batches: Batches, learning_rate: float) -> StepResult:
        """Do one step."""
        for group in self._engine.optimizer.param_groups:
            group["lr"] = learning_rate
        total = torch.zeros((), dtype=torch.float64)
        for tokens, targets in batches.pairs:
            loss = self._loss(self._engine(tokens), targets)
            self._engine.backward(loss)
            self._engine.step()
            total += loss.detach().double() / self._num_micro_batches
        dist.all_reduce(total)
        norm = float(self._engine.get_global_grad_norm())
        return StepResult(
            loss=float(total) / dist.get_world_size(), gradient_norm=norm, small_square=0.0, large_square=0.0
        )
