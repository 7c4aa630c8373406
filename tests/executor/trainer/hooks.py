"""Layers of a user, for tests: the built-in ones with a loss that can kill its process."""

import os
import signal

import torch

from executor.trainer.context import LayerContext
from executor.trainer.layers import PipelineLayers, transformer_layers
from models.transformer import Transformer

# The micro-batch, counted from 1 in a process, in whose forward pass the last stage is killed.
KILL_AT = "TEST_KILL_AT_MICRO_BATCH"


class FatalLoss:
    """Counts micro-batches."""

    def __init__(self, layers: PipelineLayers) -> None:
        self._loss = layers.loss
        self._left = int(os.environ.get(KILL_AT, "0"))

    def __call__(self, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._loss(outputs, labels)


def layers(model: Transformer, context: LayerContext) -> PipelineLayers:
    built = transformer_layers(model, context)
    return PipelineLayers(before=built.before, layers=built.layers, after=built.after, loss=FatalLoss(built))


def too_few(model: Transformer, context: LayerContext) -> PipelineLayers:
    built = transformer_layers(model, context)
    return PipelineLayers(before=built.before, layers=built.layers[1:], after=built.after, loss=built.loss)


def nothing(model: Transformer, context: LayerContext) -> None:
    """Forgets to return anything."""
