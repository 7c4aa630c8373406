"""What every document shares: strict reading (no bool or text for a number, no NaN), nothing unknown."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import CoreSchema, core_schema

from api.schemas.limits import MAX_BYTES as MAX_BYTES
from api.schemas.limits import MAX_COUNT as MAX_COUNT
from api.schemas.limits import MAX_GPUS as MAX_GPUS
from api.schemas.limits import MAX_GPUS_PER_NODE as MAX_GPUS_PER_NODE
from api.schemas.limits import MAX_ITEMS as MAX_ITEMS
from api.schemas.limits import MAX_NAME_LENGTH as MAX_NAME_LENGTH
from api.schemas.limits import NAME_PATTERN as NAME_PATTERN

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH, pattern=NAME_PATTERN)]
# What may stand in a path.
ForecasterName = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
CalibrationName = ForecasterName
Text = Annotated[str, Field(max_length=4096)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(gt=0, le=1)]
Epsilon = Annotated[float, Field(ge=0, lt=1)]
NumGpus = Annotated[int, Field(ge=1, le=MAX_GPUS)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
GpuIndex = Annotated[int, Field(ge=0, lt=MAX_GPUS_PER_NODE)]
GpuIndices = Annotated[tuple[GpuIndex, ...], Field(min_length=1, max_length=MAX_GPUS_PER_NODE)]
GpuMap = Annotated[
    dict[Name, GpuIndices],
    Field(max_length=MAX_ITEMS, description="Node id -> GPU indices (0-based).", examples=[{"node-1": [0, 1, 2, 3]}]),
]


@dataclass(frozen=True, slots=True)
class OneOf:
    """Marks text that is one of the names in a registry: a `Literal` that is known when the program runs."""

    names: Iterable[str]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        """Give the schema of the names."""
        return core_schema.literal_schema(list(self.names))


class Document(BaseModel):
    """Base of all documents."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )
