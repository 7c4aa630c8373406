"""Layers of a user, for tests: the built-in ones, which may kill their process, or let it stand still for ever."""

import os
import signal
from pathlib import Path

import torch

from executor.trainer.block import Block
from executor.trainer.context import LayerContext
from executor.trainer.layers import LayerSpec, PipelineLayers, transformer_layers
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


def never_saves(model: Transformer, context: LayerContext) -> PipelineLayers:
    """Rank 1 stands still in its first checkpoint, once in a deployment."""
    stood = Path.cwd().parents[1] / "stood-still"
    if os.environ["RANK"] == "1" and not stood.exists():

        def stand_still(*_: object, **__: object) -> None:
            stood.touch()
            signal.pause()

        torch.save = stand_still
    return transformer_layers(model, context)


def too_few(model: Transformer, context: LayerContext) -> PipelineLayers:
    built = transformer_layers(model, context)
    return PipelineLayers(before=built.before, layers=built.layers[1:], after=built.after, loss=built.loss)


def fails(*_: object) -> None:
    """And says nothing."""
    raise RuntimeError


def nothing(model: Transformer, context: LayerContext) -> None:
    """Forgets to return anything."""


class Deaf(Block):
    """Mixes tokens whatever their documents."""

    takes_documents = False


def unmasked(model: Transformer, context: LayerContext) -> PipelineLayers:
    built = transformer_layers(model, context)
    blocks = tuple(LayerSpec(Deaf, context, model, index) for index in range(model.num_layers))
    return PipelineLayers(before=built.before, layers=blocks, after=built.after, loss=built.loss)
