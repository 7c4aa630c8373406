"""The layers of a stage, or of a part of it, as a module; its parameters by names that are the same in every layout."""

from typing import Any

import torch
from torch import nn

from executor.trainer.documents import Documents, apply
from executor.trainer.layers import PipelineLayers
from executor.training_job import Compiler
from stowplan.errors import InputError

_TIED = "tied"


class StageModule(nn.Module):
    """Layers `bounds[index]` to `bounds[index + 1] - 1` of a model, in a row.

    Parameters are named by the place of their layer in the model, `layers.3.attention.query.weight`, those that layers
    share by the key of the tie, `tied.embedding.weight`.

    Parameters
    ----------
    bounds
        First layer of every part of a stage, in pipeline order, and the number of layers at the end.
    num_stages
        Part k is one of stage k modulo this.
    compiler
        Of the layers that the plan spreads over the stages; None: they are not compiled.

    Raises
    ------
    InputError
        When more than two stages share parameters, or parts of one stage.
    """

    def __init__(
        self,
        layers: PipelineLayers,
        bounds: list[int],
        index: int,
        num_stages: int,
        compiler: Compiler | None = None,
    ) -> None:
        super().__init__()
        self._index = index
        self.layers, self.tied = nn.ModuleDict(), nn.ModuleDict()
        self._order: list[tuple[nn.Module, Any]] = []
        self.spread: list[nn.Module] = []
        specs = layers.specs
        for place in range(bounds[index], bounds[index + 1]):
            spec, key = specs[place], getattr(specs[place], "key", None)
            family, name = (self.layers, str(place)) if key is None else (self.tied, key)
            if name not in family:
                family[name] = spec.build()
                if compiler is not None and layers.is_spread(place):
                    family[name].compile(backend=compiler.value, dynamic=False)
            self._order.append((family[name], getattr(spec, "forward_fn", None)))
            if layers.is_spread(place):
                self.spread.append(family[name])
        self._parts: dict[str, set[int]] = {}
        for k in range(len(bounds) - 1):
            for spec in specs[bounds[k] : bounds[k + 1]]:
                if (key := getattr(spec, "key", None)) is not None:
                    self._parts.setdefault(key, set()).add(k)
        for key, parts in self._parts.items():
            stages = [part % num_stages for part in sorted(parts)]
            if len(stages) > 2 or len(set(stages)) < len(stages):
                raise InputError(f"parts of the stages {stages} share {key}; the native engine ties two stages at most")

    @property
    def has_ties(self) -> bool:
        """Whether any two stages share parameters."""
        return any(len(parts) > 1 for parts in self._parts.values())

    @property
    def ties(self) -> dict[str, bool]:
        """Parameters that another stage has, too; and whether this is the one that counts them."""
        shared = {key for key, parts in self._parts.items() if len(parts) > 1}
        return {
            f"{_TIED}.{name}": self._index == min(self._parts[name.split(".")[0]])
            for name, _ in self.tied.named_parameters()
            if name.split(".")[0] in shared
        }

    def forward(self, values: torch.Tensor, documents: Documents | None = None) -> torch.Tensor:
        """Apply the layers."""
        for module, function in self._order:
            values = apply(module, values, documents) if function is None else function(module, values)
        return values
