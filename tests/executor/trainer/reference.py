"""The training that all layouts must reproduce: one process, plain torch, no DeepSpeed, no pipeline."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import compress
from typing import Any

import torch
from torch import nn

from executor.learning_rate import learning_rate_at
from executor.progress import Progress
from executor.token_stream import TokenStream, open_stream
from executor.trainer.context import LayerContext
from executor.trainer.documents import IGNORED, Documents, apply
from executor.trainer.layers import PipelineLayers, TiedLayerSpec, layers_of
from executor.training_job import TrainingJob
from models.transformer import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceStep:
    """Loss and squared gradient norms of a step: over the whole batch, and over a replica's, averaged."""

    loss: float
    large_gradient_square: float
    small_gradient_square: float


class Sequence(nn.Module):
    """All layers in a row; a tied layer is built once."""

    def __init__(self, layers: PipelineLayers) -> None:
        super().__init__()
        built: dict[str, nn.Module] = {}
        self._steps = []
        for spec in layers.specs:
            if isinstance(spec, TiedLayerSpec):
                module = built.setdefault(spec.key, built.get(spec.key) or spec.build())
                self._steps.append((spec.forward_fn, module))
            else:
                module = spec.build()
                self._steps.append((None, module))
        self.parts = nn.ModuleList(dict.fromkeys(module for _, module in self._steps))

    def forward(self, values: torch.Tensor, documents: Documents | None = None) -> torch.Tensor:
        for function, module in self._steps:
            values = apply(module, values, documents) if function is None else function(module, values)
        return values


@cache
def reference(job: TrainingJob, replicas: int = 1, without: str | None = None) -> tuple[ReferenceStep, ...]:
    """Train in this process.

    Parameters
    ----------
    replicas
        Into how many parts the batch is cut for the gradients of single replicas.
    without
        Part of the names of parameters that do not count in the squared norms.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return tuple(_train(job, replicas, without))
    finally:
        torch.set_num_threads(threads)


def stream_documents(job: TrainingJob, stream: TokenStream, first: int, count: int) -> Documents | None:
    """Those of samples, where attention stays within them."""
    return Documents.beginning_at(stream.batch_starts(first, count)[:, :-1]) if job.document_mask else None


def stream_labels(job: TrainingJob, stream: TokenStream, first: int, count: int) -> torch.Tensor:
    """Labels of samples, of which first tokens of documents may be left out."""
    labels = torch.from_numpy(stream.batch(first, count)[:, 1:])
    if not job.eod_mask_loss:
        return labels
    return labels.masked_fill(torch.from_numpy(stream.batch_starts(first, count)[:, 1:]), IGNORED)


def _train(job: TrainingJob, replicas: int, without: str | None) -> list[ReferenceStep]:
    layers = layers_of(job, LayerContext(seed=job.seed))
    model, schedule, stream = Sequence(layers), job.schedule, open_stream(job)
    parameters = list(model.parameters())
    counts = [without is None or without not in parameter.stored_name for parameter in parameters]
    # Norms and biases are vectors, and do not decay.
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": schedule.weight_decay},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer: torch.optim.Optimizer = (
        torch.optim.SGD(groups, momentum=schedule.beta1)
        if job.model.optimizer is Optimizer.SGD
        else torch.optim.AdamW(groups, betas=(schedule.beta1, schedule.beta2), eps=schedule.epsilon)
    )
    steps = []
    for step in range(job.num_steps):
        num_counted = (stream_labels(job, stream, step * job.global_batch, job.global_batch) != IGNORED).sum()
        losses, replica_gradients = [], []
        for data in range(replicas):
            count = job.num_micro_batches // replicas
            total = torch.tensor(0.0)
            for index in range(count):
                first = step * job.global_batch + (index * replicas + data) * job.micro_batch
                tokens = torch.from_numpy(stream.batch(first, job.micro_batch))
                labels = stream_labels(job, stream, first, job.micro_batch)
                outputs = model(tokens[:, :-1], stream_documents(job, stream, first, job.micro_batch))
                share = (labels != IGNORED).sum() / num_counted * replicas
                total = total + layers.loss(outputs, labels) * share
            losses.append(float(total.detach()))
            replica_gradients.append(torch.autograd.grad(total, parameters))
        for parameter, *gradients in zip(parameters, *replica_gradients, strict=True):
            parameter.grad = torch.stack(gradients).mean(dim=0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate_at(job, Progress.plain(step * job.global_batch))
        large = _square(parameter.grad for parameter in compress(parameters, counts))
        torch.nn.utils.clip_grad_norm_(parameters, schedule.gradient_clipping)
        optimizer.step()
        small = sum(_square(compress(gradients, counts)) for gradients in replica_gradients) / replicas
        loss = sum(losses) / replicas
        steps.append(ReferenceStep(loss=loss, large_gradient_square=large, small_gradient_square=small))
    return steps


def _square(gradients: Iterable[torch.Tensor]) -> float:
    return sum(float(gradient.square().sum()) for gradient in gradients)
