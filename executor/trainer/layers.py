"""The layers of a model as a pipeline takes them; the built-in transformer, or the user's own.

A user's hook is a function in an importable module, named `module:function` in the job:

    def layers(model: Transformer, context: LayerContext) -> PipelineLayers: ...

Every rank calls it and gets specifications, of which the engine builds those of the rank's stage; DeepSpeed's own
(`LayerSpec`, `TiedLayerSpec`) do as well. A layer maps one tensor to one tensor; the first gets token ids (micro-batch,
sequence), and the native engine wants (micro-batch, sequence, hidden) between stages. Where attention must stay within
documents (`data.document_mask`), `layers` must say that they take these (`executor.trainer.documents`); labels that the
loss must leave out (`data.eod_mask_loss`) are -100, and its mean is then over the others. `model` carries the sizes, of
which the hook uses what it likes; `layers` must be as many as `model.num_layers`. To start from the same weights in
every layout, draw them with `executor.trainer.context.seeded_parameter`. With a tensor degree above 1 a layer shares
its parameters over `context.tensor_group` (`executor.trainer.tensor_parallel` has linear layers), or is whole on all
its ranks.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import nn

from executor.trainer.block import Block, Norm
from executor.trainer.context import WEIGHT_STD, LayerContext, seeded_parameter
from executor.trainer.documents import Documents
from executor.trainer.tensor_parallel import CrossEntropy, Vocabulary
from executor.trainer.weights import open_weights
from executor.training_job import TrainingJob
from models.transformer import Checkpointing, Positions, Transformer
from stowplan.errors import InputError

EMBEDDING = "embedding"


class Buildable(Protocol):
    """What tells how to build a layer: a `LayerSpec` of ours or of DeepSpeed.

    A tied one has `key`, which layers that share parameters have in common, and `forward_fn`, which applies the layer
    to its input where that is not its own `forward`.
    """

    def build(self) -> nn.Module:
        """Build the layer."""


class LayerSpec:
    """A layer to be built on the ranks of its stage: `kind(*arguments, **named)`."""

    def __init__(self, kind: Callable[..., nn.Module], *arguments: Any, **named: Any) -> None:
        self.kind, self.arguments, self.named = kind, arguments, named

    def build(self) -> nn.Module:
        """Build the layer."""
        return self.kind(*self.arguments, **self.named)


class TiedLayerSpec(LayerSpec):
    """A layer that shares its parameters with those of the same `key`, in whatever stage."""

    def __init__(
        self,
        key: str,
        kind: Callable[..., nn.Module],
        *arguments: Any,
        forward_fn: Callable[[Any, torch.Tensor], torch.Tensor] | None = None,
        **named: Any,
    ) -> None:
        super().__init__(kind, *arguments, **named)
        self.key, self.forward_fn = key, forward_fn


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineLayers:
    """A model in pipeline order.

    `layers` are those that the plan spreads over the stages; `before` go to the first stage, `after` to the last one.
    `loss(outputs, labels)` is a scalar, the mean over the micro-batch.
    """

    before: tuple[Buildable, ...]
    layers: tuple[Buildable, ...]
    after: tuple[Buildable, ...]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

    @property
    def specs(self) -> list[Buildable]:
        """All, in order."""
        return [*self.before, *self.layers, *self.after]

    def is_spread(self, place: int) -> bool:
        """Whether a specification is of a layer that the plan spreads over the stages."""
        return 0 <= place - len(self.before) < len(self.layers)

    def bounds(self, stage_layers: tuple[int, ...]) -> list[int]:
        """First spec of every stage, and the number of specs at the end."""
        ends = [len(self.before) + sum(stage_layers[: k + 1]) for k in range(len(stage_layers) - 1)]
        return [0, *ends, len(self.specs)]


class LearnedPositions(nn.Module):
    """Adds a learned vector to every position."""

    takes_documents = True

    def __init__(self, context: LayerContext, model: Transformer) -> None:
        super().__init__()
        self._part = context.part(model.sequence_length)
        self.weight = seeded_parameter(context, "positions", (model.sequence_length, model.hidden_size), std=WEIGHT_STD)

    def forward(self, values: torch.Tensor, documents: Documents | None = None) -> torch.Tensor:
        """(batch, sequence, hidden) -> the same; positions are those in `documents`, where they are given."""
        if documents is None:
            return values + self.weight[self._part][: values.shape[1]]
        return values + nn.functional.embedding(documents.positions[:, self._part], self.weight)


class Head(Vocabulary):
    """Projection to logits with its own weights."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """(batch, sequence, hidden) -> (batch, sequence, columns of this rank)."""
        return self.logits(values)


def transformer_layers(
    model: Transformer, context: LayerContext, checkpointing: Sequence[Checkpointing] | None = None
) -> PipelineLayers:
    """The built-in transformer; `checkpointing`: of each layer, None: as the model says.

    Tied embeddings are one parameter where first and last stage are the same; otherwise each of both stages has it,
    its gradients are summed over both, and both apply the same update.
    """
    blocks = [replace(model, checkpointing=each) for each in checkpointing or [model.checkpointing] * model.num_layers]
    size = (model.vocabulary_size, model.hidden_size)
    embedding = (context, EMBEDDING, *size)
    tied = model.tied_embeddings
    first = (
        TiedLayerSpec(EMBEDDING, Vocabulary, *embedding, std=WEIGHT_STD)
        if tied
        else LayerSpec(Vocabulary, *embedding, std=WEIGHT_STD)
    )
    last = (
        TiedLayerSpec(EMBEDDING, Vocabulary, *embedding, std=WEIGHT_STD, forward_fn=_tied_logits)
        if tied
        else LayerSpec(Head, context, "head", *size, std=WEIGHT_STD)
    )
    learned = model.positions is Positions.LEARNED
    return PipelineLayers(
        before=(first, LayerSpec(LearnedPositions, context, model)) if learned else (first,),
        layers=tuple(LayerSpec(Block, context, block, index) for index, block in enumerate(blocks)),
        after=(LayerSpec(Norm, context, model, "norm"), last),
        loss=CrossEntropy(context, model.vocabulary_size),
    )


def layers_of(job: TrainingJob, context: LayerContext) -> PipelineLayers:
    """The layers of a job: the built-in ones, with its numerics and from its initial weights, or what its hook gives.

    Raises
    ------
    InputError
        When the hook cannot be imported, fails, or gives something else or another number of layers, or the weights
        cannot be opened.
    """
    context = replace(
        context,
        numerics=job.numerics,
        weights=open_weights(job),
        routing=job.routing,
        sequence_share=1 / job.global_batch,
    )
    if job.layers_hook is None:
        return transformer_layers(job.model, context, job.layer_checkpointing)
    module_name, function_name = job.layers_hook.split(":")
    try:
        hook = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise InputError(f"the layers hook {job.layers_hook} cannot be imported: {error}") from error
    layers = hook(job.model, context)
    if not isinstance(layers, PipelineLayers):
        raise InputError(f"the layers hook {job.layers_hook} gave {type(layers).__name__}, not PipelineLayers")
    if len(layers.layers) != job.model.num_layers:
        raise InputError(
            f"the layers hook {job.layers_hook} gave {len(layers.layers)} layers; the model has {job.model.num_layers}"
        )
    return layers


def _tied_logits(embedding: Vocabulary, values: torch.Tensor) -> torch.Tensor:
    return embedding.logits(values)
