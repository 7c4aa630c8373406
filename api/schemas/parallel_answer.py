"""3D-parallel plans for one job: what clients get."""

from pydantic import Field

from api.schemas.base import Document
from api.schemas.launch import LaunchDoc
from api.schemas.model import TransformerDoc
from api.schemas.parallel_plan import ParallelPlanDoc, TrainingChoiceDoc
from api.schemas.problem import IssueDoc
from models.parallelism.request import Planner
from models.parallelism.results import RejectionReason


class ModelFactsDoc(Document):
    """What the model costs."""

    name: str
    num_parameters: float
    """Embedding and head included."""
    num_layers: int
    """Transformer blocks or operators."""
    flops_per_sample: float
    """Forward and backward pass."""
    global_batch: int


class BreakdownDoc(Document):
    """Seconds of the predicted iteration, seen from the slowest stage; the parts add up to the total."""

    total_s: float
    compute_s: float
    tensor_s: float
    """Tensor-parallel communication."""
    ring_s: float
    """Context parallelism: attention waits for keys and values of other replicas."""
    all_to_all_s: float
    """Expert parallelism: tokens go to experts of other replicas and come back."""
    data_s: float
    """Gradient reduction that the backward pass does not hide."""
    optimizer_s: float
    straggling_s: float
    """Waiting for stragglers, and congestion, in a large plan."""
    bubble_s: float
    """The slowest stage has nothing to do."""
    send_s: float
    """Waiting for activations between stages, where they are counted."""


class StageDetailDoc(Document):
    """One stage: what it holds, how long a micro-batch takes, and the memory of its fullest GPU in bytes."""

    num_layers: int
    dp: int
    tp: int
    forward_s: float
    backward_s: float
    tensor_communication_s: float
    """Part of forward and backward pass."""
    ring_s: float
    """Part of both passes: waiting for keys and values of other replicas."""
    all_to_all_s: float
    """Part of both passes: tokens that go to experts of other replicas and come back."""
    weight_s: float
    """Part of the backward pass that the schedule has as a pass of its own: gradients of weights."""
    reduction_s: float
    exposed_reduction_s: float
    optimizer_s: float
    parameter_bytes: float
    optimizer_bytes: float
    gradient_bytes: float
    activation_bytes: float
    total_bytes: float
    usable_bytes: float
    """Memory of the GPU less the headroom."""
    recomputing: str
    """Checkpointing of its own: `selective`, `full 5` (of so many layers); empty: as `training` says."""


class EfficiencyDoc(Document):
    """What a plan makes of its GPUs."""

    mfu: float | None
    """Model FLOPs per second over the peak of the plan's GPUs at the precision of the products. Model FLOPs are three
    times those of the forward pass: per token 6 for every weight of a product that works on it (head included,
    embedding not) and 12 x heads x head size x length of the sequence per layer for attention, not halved for the
    causal mask. What checkpointing repeats does not count."""
    tokens_per_s_per_gpu: float | None
    """Null: the model has no sequences."""
    days: float | None
    """To train on `num_tokens`; null where the request does not say how many."""
    iteration_kwh: float | None
    """Energy of the plan's GPUs in one iteration: at work they take the power that they are built for (TDP), while they
    wait half of it. Hosts, network and cooling come on top. Null: the catalogue does not know the power."""
    joules_per_token: float | None
    total_kwh: float | None
    """To train on `num_tokens`."""


class AlternativeDoc(Document):
    """The best plan of one way to train on a number of GPUs."""

    gpu_type: str
    num_gpus: int
    training: TrainingChoiceDoc
    notation: str | None
    """Null: there is no plan."""
    iteration_s: float | None
    why: str
    """Why there is no plan."""


class PlanPointDoc(Document):
    """The best plan on a number of GPUs of a type."""

    gpu_type: str
    num_gpus: int
    notation: str = Field(examples=["PP2 DP2 TP4 (20+20 layers, 8 x 4)"])
    training: TrainingChoiceDoc
    throughput: float
    """Samples per second."""
    iteration_s: float
    iteration_low_s: float
    iteration_high_s: float
    """The iteration time is between these two 9 times of 10, by how far published runs are from what is predicted."""
    bound_s: float | None
    """No symmetric or interleaved plan that was tried, whether looked at or not, is predicted to take less: all degrees
    and ways to train that were open, layers as even as they go, micro-batches of about every power of two. Null where
    that was not searched for, or nodes are those of a cluster."""
    gap: float | None
    """Share of `iteration_s` that such a plan may be faster by: 0 where none is."""
    fits: bool
    """Whether the memory is enough; only plans that are given or run may be without."""
    needed_bytes: float
    """Of a GPU of the stage that comes closest to its limit, or is furthest above it."""
    usable_bytes: float
    """Memory of that GPU less the headroom."""
    efficiency: EfficiencyDoc
    measured: bool
    """The iteration time was supplied; the breakdown is that of the prediction."""
    breakdown: BreakdownDoc
    stages: tuple[StageDetailDoc, ...]
    plan: ParallelPlanDoc
    """On nodes of the cluster; without one, on virtual nodes named `0`, `1`, ..."""


class StageShapeDoc(Document):
    """A stage in short."""

    num_layers: int
    dp: int
    tp: int


class FrontierPlanDoc(Document):
    """A plan of a Pareto frontier."""

    notation: str
    stages: tuple[StageShapeDoc, ...]
    num_micro_batches: int
    computation_bias: float
    """Arena Eq. 3, in GPUs."""
    communication_load_s: float
    """Arena Eq. 4."""


class RejectionDoc(Document):
    """Candidates of one kind that are no plans; out of memory comes with the numbers of the closest one."""

    reason: RejectionReason
    candidate: str
    detail: str
    count: int
    needed_bytes: float | None
    usable_bytes: float | None


class GridDoc(Document):
    """One grid: GPU type, count and pipeline degree, with its frontier; the first plan of it is the proxy plan."""

    gpu_type: str
    num_gpus: int
    pp: int
    num_plans: int
    """Partitions that were compared."""
    proxy: str | None
    """Notation; null: no plan is legal."""
    proxy_throughput: float | None
    frontier: tuple[FrontierPlanDoc, ...]
    rejections: tuple[RejectionDoc, ...]


class MissingPointDoc(Document):
    """A number of GPUs without a legal plan; the closest candidate comes first."""

    gpu_type: str
    num_gpus: int
    rejections: tuple[RejectionDoc, ...]


class TunerDoc(Document):
    """What a tuner that measures must still try on the GPUs of the best point (Arena section 3.6)."""

    gpu_type: str
    num_gpus: int
    pp: int
    """The pipeline degree of the best grid: no other needs to be tried."""
    max_bias: float
    """The largest computation bias of its frontier, in GPUs: plans that are less balanced are left out."""
    num_before: float
    """Plans of all grids."""
    num_after: int
    """Plans that are left; stages of the frontier keep their GPUs and degrees."""


class MeasureNextDoc(Document):
    """The plan whose measured iteration time would help the choice among plans on the GPUs of the best point most."""

    gpu_type: str
    notation: str
    iteration_s: float
    iteration_low_s: float
    iteration_high_s: float
    expected_gain: float
    """Share of the iteration time that the choice is expected to be better by."""
    rival: str
    """Notation of the fastest other plan."""
    detail: str
    """Why this one."""
    plan: ParallelPlanDoc


class ParallelPlanAnswer(Document):
    """The best plan, the best on every number of GPUs, and why others are none."""

    planner: Planner
    job: ModelFactsDoc
    transformer: TransformerDoc | None
    """The model as the best plan trains it, in full: `job` of a deployment. Null: it is a list of operators."""
    best: PlanPointDoc
    symmetric: PlanPointDoc | None
    """Beside a best plan whose stages differ in degrees or replicas in batches, which needs an engine that runs such
    plans: the best symmetric one on the same GPUs. Null also where there is none."""
    symmetric_loss: float | None
    """How much longer its iteration takes than that of the best plan, as a share of the latter."""
    launch: LaunchDoc
    """What a launcher needs of the best plan."""
    points: tuple[PlanPointDoc, ...]
    """By GPU type, then count; for a running job by GPUs added, the first is the plan as it runs."""
    missing: tuple[MissingPointDoc, ...]
    grids: tuple[GridDoc, ...]
    tuner: TunerDoc | None
    """Null where no grid has a frontier, or more plans are left than are counted."""
    measure_next: MeasureNextDoc | None
    """Null where there is one candidate only, or none whose measurement is expected to change the choice."""
    alternatives: tuple[AlternativeDoc, ...]
    """Where checkpointing or ZeRO stage were left to the search: what each brings, the best first."""
    warnings: tuple[IssueDoc, ...]
    verified: bool
    """Every point passed a check that knows no planner. One that does not is never shown."""
    elapsed_ms: float
    """Planning, without the queue."""
    version: str
