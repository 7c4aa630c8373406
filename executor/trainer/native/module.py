"""The layers of a stage, or of a part of it, as a module; its parameters by names that are the same in every layout."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import nn

from executor.trainer.documents import Documents, apply
from executor.trainer.layers import Buildable, PipelineLayers
from executor.trainer.native.sharded import ShardedParameters, Turns
from executor.training_options import Compiler
from stowplan.errors import InputError

_TIED = "tied"

# Takes parameters by name, and whether this stage counts those that another one has, too.
Sharding = Callable[[Sequence[tuple[str, nn.Parameter]], Mapping[str, bool]], Sequence[ShardedParameters]]


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
    sharding
        At ZeRO stages 2 and 3, called as soon as a layer is built that the plan spreads over the stages, and for all
        together that are before those, or behind them.

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
        sharding: Sharding | None = None,
    ) -> None:
        super().__init__()
        self._index, specs, num_before = index, layers.specs, len(layers.before)
        self._parts = _parts_by_key(specs, bounds, num_stages)
        self.layers, self.tied = nn.ModuleDict(), nn.ModuleDict()
        # What comes one after the other, in each what is sharded together: modules with what applies them.
        self._order: list[list[tuple[nn.Module, Any]]] = []
        self.spread: list[nn.Module] = []
        self._built: list[list[nn.Module]] = []
        flats: dict[nn.Module, Sequence[ShardedParameters]] = {}

        def number(place: int) -> int:
            """Of a layer that the plan spreads; what is before or behind has one together."""
            return min(max(place - num_before, -1), len(layers.layers))

        for _, places in groupby(range(bounds[index], bounds[index + 1]), key=number):
            row: list[tuple[nn.Module, Any]] = []
            built: dict[str, nn.Module] = {}
            for place in places:
                spec, key = specs[place], getattr(specs[place], "key", None)
                family, name = (self.layers, str(place)) if key is None else (self.tied, key)
                if name not in family:
                    family[name] = built[f"{'layers' if key is None else _TIED}.{name}"] = spec.build()
                    if compiler is not None and layers.is_spread(place):
                        family[name].compile(backend=compiler.value, dynamic=False)
                row.append((family[name], getattr(spec, "forward_fn", None)))
                if layers.is_spread(place):
                    self.spread.append(family[name])
            self._order.append(row)
            self._built.append(list(built.values()))
            if sharding is not None:
                named = [item for name, module in built.items() for item in trained(module, name)]
                flats |= dict.fromkeys(built.values(), sharding(named, self.ties) if named else ())
        self.flats = list({flat: None for held in flats.values() for flat in held})
        by_row = [list({flat: None for module, _ in row for flat in flats.get(module, ())}) for row in self._order]
        self._turns = Turns(by_row) if any(flat.shards_weights for flat in self.flats) else None

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
        for place, row in enumerate(self._order):
            if self._turns is not None:
                self._turns.come_to(place, 1)
            for module, function in row:
                values = apply(module, values, documents) if function is None else function(module, values)
            if self._turns is not None and values.requires_grad:
                values.register_hook(partial(self._come_back_to, place))
        if self._turns is not None:
            self._turns.end()
        return values

    def _come_back_to(self, place: int, _: torch.Tensor) -> None:
        """The backward pass has the gradient of what this row gave."""
        if self._turns is not None:
            self._turns.come_to(place, -1)

    def end_backward(self) -> None:
        """A backward pass has ended."""
        for flat in self.flats:
            flat.end_pass()
        if self._turns is not None:
            self._turns.end()

    def whole_parameters(self) -> Iterator[nn.Parameter]:
        """All, each with its weights until the next one is asked for; collective."""
        for place, built in enumerate(self._built):
            if self._turns is not None:
                self._turns.come_to(place, 1)
            for module in built:
                yield from module.parameters()
        if self._turns is not None:
            self._turns.end()


def trained(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Parameter]]:
    """Parameters that are trained, by name."""
    return [item for item in module.named_parameters(prefix) if item[1].requires_grad]


def _parts_by_key(specs: list[Buildable], bounds: list[int], num_stages: int) -> dict[str, set[int]]:
    """In which parts are the layers of each key."""
    found: dict[str, set[int]] = {}
    for k in range(len(bounds) - 1):
        for spec in specs[bounds[k] : bounds[k + 1]]:
            if (key := getattr(spec, "key", None)) is not None:
                found.setdefault(key, set()).add(k)
    for key, parts in found.items():
        stages = [part % num_stages for part in sorted(parts)]
        if len(stages) > 2 or len(set(stages)) < len(stages):
            raise InputError(f"parts of the stages {stages} share {key}; the native engine ties two stages at most")
    return found
