"""What a site has measured, and what that says. Light: imports no planner."""

from dataclasses import dataclass, field

from models.measured.base import Finding
from models.parallelism.request import Degrees, MeasureNext
from models.performance.iteration.coefficients import Calibration
from models.transformer import JobModel
from stowplan.errors import Issue
from topology.cluster import GpuType


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteMeasurement:
    """What was measured, under a name for messages.

    `degrees`, `stage_s`: of a training, its plan and the times of its stages. `num_nodes`: of a bandwidth test that
    does not say it; `num_ports`: network ports of a node, for tests of one port (None: one a GPU).
    """

    name: str
    found: Finding
    degrees: Degrees | None = None
    stage_s: tuple[float, ...] | None = None
    num_nodes: int | None = None
    num_ports: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSite:
    """Measurements on nodes of `gpus_per_node` GPUs of a type. `model`: what was trained, None where nothing was.
    `start`: what is known before."""

    gpu_type: GpuType
    gpus_per_node: int
    measurements: tuple[SiteMeasurement, ...]
    model: JobModel | None = None
    start: Calibration = field(default_factory=Calibration)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedSite:
    """`told`: a sentence on every measurement, in their order. `warnings`: of times that contradict the others.
    `measure_next` None: nobody asked, or there is nothing to learn."""

    calibration: Calibration
    told: tuple[str, ...]
    warnings: tuple[Issue, ...] = ()
    measure_next: MeasureNext | None = None
