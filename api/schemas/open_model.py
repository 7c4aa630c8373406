"""Models of whose training planners may choose."""

from typing import Annotated, Literal

from pydantic import Discriminator, Tag

from api.schemas.model import OperatorModelDoc, TransformerDoc, ZeroStage, which_model
from models.transformer import Checkpointing

AUTO = "auto"
Auto = Annotated[Literal["auto"], Tag("auto")]


def _open_or_given(value: object) -> str:
    return "auto" if value == AUTO else "given"


_OpenZero = Annotated[Annotated[ZeroStage, Tag("given")] | Auto, Discriminator(_open_or_given)]
_OpenCheckpointing = Annotated[Annotated[Checkpointing, Tag("given")] | Auto, Discriminator(_open_or_given)]


class OpenTransformerDoc(TransformerDoc):
    """A transformer of whose training the search may choose."""

    # Wider than where nothing is searched for.
    zero_stage: _OpenZero | None = None  # type: ignore[assignment]
    """What ZeRO shards over the replicas: 1 optimiser states, 2 gradients too, 3 weights too; auto: the search chooses.
    Default: 1."""
    checkpointing: _OpenCheckpointing | None = None  # type: ignore[assignment]
    """Activation checkpointing; auto: the search chooses, for 3D plans of one job also stage by stage, and how many
    layers are recomputed in full, where the software has that. Default: none."""


class OpenOperatorModelDoc(OperatorModelDoc):
    """A list of operators of whose training the search may choose."""

    zero_stage: _OpenZero | None = None  # type: ignore[assignment]
    """What ZeRO shards over the replicas: 1 optimiser states, 2 gradients too, 3 weights too; auto: the search chooses.
    Default: 1."""


OpenModelDoc = Annotated[
    Annotated[OpenTransformerDoc, Tag("transformer")] | Annotated[OpenOperatorModelDoc, Tag("operators")],
    Discriminator(which_model),
]
