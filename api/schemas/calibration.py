"""Calibrations of systems: what a site has measured, and what that says."""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.base import CalibrationName, Document, Name, Positive
from api.schemas.model import AnyModelDoc, CalibrationDoc, CalibrationSource
from api.schemas.parallel_answer import MeasureNextDoc
from api.schemas.parallel_plan import SymmetricPlanDoc
from api.schemas.problem import IssueDoc
from api.schemas.snapshot import GpuTypeDoc
from models.transformer import MAX_LAYERS

_Nodes = Annotated[int, Field(ge=1, le=1_000_000)]


class SiteMeasurementDoc(Document):
    """One measurement: what a tool printed, or seconds of an iteration."""

    name: Name | None = None
    """What messages call it. Default: measurement 1, measurement 2, ..."""
    text: Annotated[str, Field(min_length=1)] | None = None
    """The log of a training (Megatron-LM, NeMo, torchtitan), or output of nccl-tests or ib_write_bw, as it is printed;
    which of them is told by what is in it."""
    iteration_s: Positive | None = None
    """Seconds of an iteration, in place of `text`."""
    degrees: SymmetricPlanDoc | None = None
    """The plan of a training."""
    stage_s: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=MAX_LAYERS)] | None = None
    """Where known, beside it: seconds of both passes of a micro-batch, by stage."""
    num_nodes: _Nodes | None = None
    """Nodes of a bandwidth test whose output does not say it."""
    num_ports: _Nodes | None = None
    """Network ports of a node, for ib_write_bw. Default: one a GPU."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.text is None) == (self.iteration_s is None):
            raise PydanticCustomError("one_of", "give exactly one of text and iteration_s")
        return self


class CalibrationBody(Document):
    """Measurements of nodes with one GPU type, of which trainings are of one model."""

    name: CalibrationName
    """What requests name the calibration by."""
    gpu_type: Name
    """A product of the catalogue, such as `h100`, or one of `gpu_types`."""
    gpu_types: Annotated[tuple[GpuTypeDoc, ...], Field(max_length=256)] = ()
    """GPU types of your own."""
    gpus_per_node: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Default: that of the product's usual node, else 8."""
    job: AnyModelDoc | None = None
    """The model that was trained; needed where a training was measured."""
    measurements: Annotated[tuple[SiteMeasurementDoc, ...], Field(min_length=1, max_length=1000)]
    calibration: CalibrationSource | None = None
    """What is known before, such as a calibration of another model of the same site."""


CALIBRATION_BODY: TypeAdapter[CalibrationBody] = TypeAdapter(CalibrationBody)
CALIBRATION_EXAMPLE: dict[str, Any] = {
    "name": "site",
    "gpu_type": "h100",
    "job": {"model": "llama2-7b", "global_batch": 64},
    "measurements": [
        {"iteration_s": 4.0, "degrees": {"pp": 1, "dp": 8, "tp": 1, "num_micro_batches": 8}},
        {"iteration_s": 4.4, "degrees": {"pp": 2, "dp": 4, "tp": 1, "num_micro_batches": 16}},
    ],
}


class FactorDoc(Document):
    """A factor on the time of one part of an iteration: 1 is what the priors say."""

    name: str
    factor: float
    deviation: float
    """Standard deviation of its logarithm: 0.05 is some 5 %."""


class CalibrationLinksDoc(Document):
    """Where to go from here (paths)."""

    self: str


class CalibrationSummary(Document):
    """One line of the list of calibrations."""

    name: str
    created_at: datetime | None
    """Null: it comes along."""
    source: str | None
    """What was measured."""
    links: CalibrationLinksDoc


class CalibratedSystemDoc(CalibrationSummary):
    """A calibration, how certain it is, and what would help most."""

    factors: tuple[FactorDoc, ...]
    num_points: int
    """Iteration times behind them."""
    gpu_type: str | None = None
    """Null where it comes along: see `source`."""
    calibration: CalibrationDoc
    """As it may stand in a request, in place of the name."""
    measure_next: MeasureNextDoc | None = None
    """The plan whose iteration time would help most on as many GPUs as the largest plan had; null: nothing was trained,
    or nothing is left to learn there."""
    warnings: tuple[IssueDoc, ...] = ()
    """Of measurements that contradict the others."""
    input_hash: str | None = Field(default=None, examples=["sha256:9f2c"])
    """SHA-256 of the request with defaults filled in; null where it comes along."""
    version: str
    """Version of Stowplan that fitted it, or with which it comes."""


class CalibrationPageQuery(BaseModel):
    """Query parameters of the list of calibrations. Not strict: what stands in a URL is text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=100)] = 20
    """Calibrations per page."""
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """Cursor of the next page; see `next`."""


class CalibrationList(Document):
    """A page of calibrations, newest first."""

    calibrations: tuple[CalibrationSummary, ...]
    shipped: tuple[CalibrationSummary, ...]
    """Those of common systems, which come along."""
    next: str | None
    """Path of the next page; null on the last one."""
