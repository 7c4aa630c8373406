"""3D-parallel plans for one job: what clients ask for."""

from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from api.schemas.base import Count, Document, GpuMap, Name, NumGpus, Positive
from api.schemas.incremental import IncrementalOptionsDoc
from api.schemas.model import CalibrationSource
from api.schemas.open_model import OpenModelDoc
from api.schemas.parallel_plan import ParallelPlanDoc, Sharing, SymmetricPlanDoc
from api.schemas.request import MAX_TIME_LIMIT_S
from api.schemas.snapshot import ClusterDoc, GpuTypeDoc
from models.parallelism.grid.options import MAX_OPERATORS, PlanRule
from models.parallelism.request import Planner
from models.pipeline_schedule import PipelineSchedule
from models.transformer import MAX_LAYERS

MAX_COUNTS = 64
MAX_GPUS_OF_A_PLAN = 65_536
_PlanGpus = Annotated[int, Field(ge=1, le=MAX_GPUS_OF_A_PLAN)]
_Degree = Annotated[int, Field(ge=1, le=MAX_LAYERS)]


class GpuOfferDoc(Document):
    """GPUs of one type on equal nodes under one switch, and how many of them the job may get."""

    gpu_type: Name
    """A product of the catalogue, such as `h100`, or one of `gpu_types`; with a cluster, one of its types."""
    counts: Annotated[tuple[_PlanGpus, ...], Field(min_length=1, max_length=MAX_COUNTS)] | None = None
    """Numbers of GPUs to plan for."""
    min_gpus: _PlanGpus | None = None
    max_gpus: _PlanGpus | None = None
    """In place of `counts`: these two and every power of two between them."""
    gpus_per_node: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Default: that of the product's usual node, else 8. With a cluster it follows from the nodes."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        ranged = self.min_gpus is not None or self.max_gpus is not None
        if ranged and (self.counts is not None or self.min_gpus is None or self.max_gpus is None):
            raise PydanticCustomError("one_of", "give counts, or both min_gpus and max_gpus")
        if self.min_gpus is not None and self.max_gpus is not None and self.min_gpus > self.max_gpus:
            raise PydanticCustomError("out_of_range", "has min_gpus above max_gpus")
        return self


class MeasuredPlanDoc(Document):
    """A measured iteration time of a symmetric plan; it takes the place of the predicted one."""

    gpu_type: Name
    pp: _Degree
    dp: NumGpus
    tp: NumGpus
    num_micro_batches: Count | None = None
    """Null: whatever their number."""
    iteration_s: Positive


class ParallelOptionsDoc(Document):
    """How to search."""

    planner: Planner | None = None
    """grid: Arena's grids. exhaustive: every plan between clustered operators, for a few GPUs. incremental: Suika's
    Algorithm 1, grows `running` onto `released`. given: no search, `degrees` as they are. Default: what the request
    brings the data for, else grid."""
    rule: PlanRule = PlanRule.ARENA
    """Grid: which plan stands for a grid."""
    num_operators: Annotated[int, Field(ge=1, le=MAX_OPERATORS)] = 16
    """Layers are clustered into as many operators, between which stages are cut."""
    pipeline_degrees: Annotated[tuple[_Degree, ...], Field(min_length=1, max_length=1000)] | None = None
    """Grid and exhaustive: only these."""
    context_degrees: Annotated[tuple[Sharing, ...], Field(min_length=1, max_length=1000)] | None = None
    """Only these degrees of context parallelism; null: 1, and for long sequences what leaves every part some thousand
    tokens, where the software has it. Above 1: symmetric plans."""
    expert_degrees: Annotated[tuple[Sharing, ...], Field(min_length=1, max_length=1000)] | None = None
    """Only these degrees of expert parallelism; null: all, where the software has it. Above 1: symmetric plans."""
    schedules: Annotated[tuple[PipelineSchedule, ...], Field(min_length=1, max_length=len(PipelineSchedule))] | None = (
        None
    )
    """Only pipelines with these schedules; null: all that the software runs. Zero-bubble ones: symmetric plans in which
    nothing is recomputed."""
    num_micro_batches: Annotated[tuple[Count, ...], Field(min_length=1, max_length=1000)] | None = None
    """Grid: only these numbers; null: about four times the stages, others where that does not fit."""
    max_frontier: Annotated[int, Field(ge=1, le=1000)] = 16
    """Grid: most plans of a Pareto frontier."""
    refine: bool = True
    """Grid: look through the frontiers with every number of micro-batches, not at the proxy plans only."""
    incremental: IncrementalOptionsDoc = IncrementalOptionsDoc()
    time_limit_s: Annotated[float, Field(gt=0, le=MAX_TIME_LIMIT_S)] | None = None
    """Wall-clock limit; null: that of the service."""


class ParallelPlanBody(Document):
    """A job, and the GPUs that it may get: `gpus` of the catalogue, or a `cluster`."""

    job: OpenModelDoc
    """A transformer, or a model as a list of operators; `{"model": "llama2-13b", "global_batch": 256}` is enough."""
    gpus: Annotated[tuple[GpuOfferDoc, ...], Field(max_length=16)] = ()
    """GPU types and counts; with a cluster it may be left out: all free GPUs, in powers of two."""
    gpu_types: Annotated[tuple[GpuTypeDoc, ...], Field(max_length=256)] = ()
    """GPU types of your own, beside those of the catalogue."""
    cluster: ClusterDoc | None = None
    placement: GpuMap | None = None
    """Exactly these GPUs of the cluster, type by type."""
    degrees: SymmetricPlanDoc | None = None
    """The symmetric plan to evaluate, instead of a search."""
    running: ParallelPlanDoc | None = None
    """The plan that the job runs with on the cluster, to be grown."""
    released: GpuMap | None = None
    """GPUs of the cluster that a running job may have in addition."""
    measurements: Annotated[tuple[MeasuredPlanDoc, ...], Field(max_length=10_000)] = ()
    calibration: CalibrationSource | None = None
    """What was measured of the site, or the name of a calibration."""
    num_tokens: Annotated[int, Field(ge=1, le=2**53)] | None = None
    """Tokens to train on: points then say how many days that takes."""
    options: ParallelOptionsDoc = ParallelOptionsDoc()
