"""The layers of one stage as a module, its parameters by names that are the same in every layout."""

from typing import Any

import torch
from torch import nn

from executor.trainer.layers import PipelineLayers
from stowplan.errors import InputError

_TIED = "tied"


class StageModule(nn.Module):
    """Layers `bounds[stage]` to `bounds[stage + 1] - 1` of a model, in a row.

    Parameters are named by the place of their layer in the model, `layers.3.attention.query.weight`, those that layers
    share by the key of the tie, `tied.embedding.weight`.

    Parameters
    ----------
    bounds
        First layer of every stage, and the number of layers at the end.

    Raises
    ------
    InputError
        When more than two stages share parameters.
    """

    def __init__(self, layers: PipelineLayers, bounds: list[int], stage: int) -> None:
        super().__init__()
        self.layers, self.tied = nn.ModuleDict(), nn.ModuleDict()
        self._order: list[tuple[nn.Module, Any]] = []
        specs = layers.specs
        for index in range(bounds[stage], bounds[stage + 1]):
            spec, key = specs[index], getattr(specs[index], "key", None)
            family, name = (self.layers, str(index)) if key is None else (self.tied, key)
            if name not in family:
                family[name] = spec.build()
            self._order.append((family[name], getattr(spec, "forward_fn", None)))
        self._stages: dict[str, set[int]] = {}
        for k in range(len(bounds) - 1):
            for spec in specs[bounds[k] : bounds[k + 1]]:
                if (key := getattr(spec, "key", None)) is not None:
                    self._stages.setdefault(key, set()).add(k)
        for key, stages in self._stages.items():
            if len(stages) > 2:
                raise InputError(f"stages {sorted(stages)} share {key}; the native engine ties two at most")

    @property
    def has_ties(self) -> bool:
        """Whether any two stages share parameters."""
        return any(len(stages) > 1 for stages in self._stages.values())

    def stages_of(self, name: str) -> frozenset[int] | None:
        """Both stages that have a parameter; None where there is one stage."""
        family, key, *_ = name.split(".")
        stages = self._stages[key] if family == _TIED else set()
        return frozenset(stages) if len(stages) > 1 else None

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Apply the layers."""
        for module, function in self._order:
            values = module(values) if function is None else function(module, values)
        return values
