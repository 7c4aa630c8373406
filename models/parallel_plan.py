"""3D-parallel plans in the hierarchy PP - DP - TP (Suika appendix A.1), with context and expert parallelism in DP.

A plan is a sequence of pipeline stages; a stage is a set of replicas; a replica is one tensor-parallel group, whose
GPUs sit in one node and are of one type. Degrees may differ between stages, local batches between the replicas of a
stage. A plan in hand is well formed; whether it is legal for a job on a cluster is decided by
`models.parallelism.legality`.

Context parallelism (Liu et al. 2023, "Ring attention") of degree c: c consecutive replicas of a stage work on the same
sequences, each on one c-th of their tokens. Expert parallelism (Lepikhin et al. 2020, GShard) of degree e: e
consecutive replicas hold an e-th of the experts each, and all else of their layers whole. Both are made of replicas, as
in Megatron-Core, whose ranks go TP - CP - EP - DP - PP: gradients are reduced, and ZeRO shards, over all replicas of a
stage, of experts over every e-th.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

from models.parallelism.training import Training
from models.pipeline_schedule import PipelineSchedule, in_flight, part_words, waiting
from models.transformer import Checkpointing
from models.wording import counted, listed
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors
from stowplan.living import Living

# (node, index on it)
Gpu = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One tensor-parallel group: replica j of a stage.

    `gpus` are indices on `node`, in the order of the tensor coordinate. `local_batch`: sequences of every micro-batch
    that the replica works on (b_ij of the paper), or on its part of, where there is context parallelism.
    """

    node: str
    gpu_type: str
    gpus: tuple[int, ...]
    local_batch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage: `num_layers` layers (l_i), replicated `dp` times with `tp` GPUs each.

    The first stage also holds the embedding, the last one the head; neither is counted in `num_layers`.
    `checkpointing`: of its layers, None: as the job's model says. `recomputed_layers`: the first so many layers (of
    every virtual stage as many) are recomputed in full and the others keep everything; None: all alike.
    """

    num_layers: int
    replicas: tuple[Replica, ...]
    checkpointing: Checkpointing | None = None
    recomputed_layers: int | None = None

    @property
    def dp(self) -> int:
        """Replicas, over which gradients are reduced: the data-parallel degree, times the context-parallel one."""
        return len(self.replicas)

    @property
    def tp(self) -> int:
        """Tensor-parallel degree, the same in all replicas."""
        return len(self.replicas[0].gpus)

    @property
    def num_gpus(self) -> int:
        """GPUs of the stage."""
        return self.dp * self.tp

    @property
    def micro_batch(self) -> int:
        """Sequences of one micro-batch, over all replicas; each as often as it has context-parallel parts."""
        return sum(replica.local_batch for replica in self.replicas)

    @property
    def recomputing(self) -> str:
        """`full 12`: the checkpointing of its own, empty without one."""
        count = "" if self.recomputed_layers is None else f" {self.recomputed_layers}"
        return "" if self.checkpointing is None else f"{self.checkpointing}{count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPlan(Living):
    """Stages in pipeline order, and the number of micro-batches of one iteration (N_b).

    `virtual_stages`: parts into which the layers of every stage are cut; above 1 the pipeline is interleaved, part k of
    the last stage hands on to part k + 1 of the first one (Narayanan et al. 2021), but for the `schedule` zbv, where
    the last stage hands on to itself and the first one has the end of the model (`v_parts`). `context_parallel`,
    `expert_parallel`: replicas of every stage that share their sequences, and their experts (module docstring).
    `training`: how it trains, where the job leaves that open; None: as the job's model says.

    Raises
    ------
    InputError
        When there is no stage or replica, a count is below 1, the replicas of a stage differ in their tensor degree,
        the stages in the size of their micro-batch, a GPU occurs twice, or an interleaved pipeline has one stage only,
        a stage with fewer layers than parts, or micro-batches that its stages do not divide (zbv: any); when a schedule
        is zero-bubble without several parts (zbv: two), or with a stage that has a checkpointing of its own; when a
        stage recomputes layers that it does not have, or not equally many in its parts; when context or expert
        parallelism does not divide the replicas of a stage, or replicas that share sequences differ in their batch.
    """

    stages: tuple[Stage, ...]
    num_micro_batches: int
    virtual_stages: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    training: Training | None = None
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B

    def __post_init__(self) -> None:
        raise_for_errors(list(_faults(self)), "parallel plan")

    @property
    def pp(self) -> int:
        """Pipeline degree."""
        return len(self.stages)

    def in_flight(self, stage: int) -> float:
        """What `in_flight` says of a stage."""
        return in_flight(self.pp, stage, self.virtual_stages, self.schedule)

    def waiting(self, stage: int) -> float:
        """What `waiting` says of a stage."""
        return waiting(self.pp, stage, self.virtual_stages, self.schedule)

    @property
    def num_gpus(self) -> int:
        """GPUs of all stages."""
        return sum(stage.num_gpus for stage in self.stages)

    @property
    def num_layers(self) -> int:
        """Layers of all stages."""
        return sum(stage.num_layers for stage in self.stages)

    @property
    def micro_batch(self) -> int:
        """Sequences of one micro-batch."""
        return self.stages[0].micro_batch // self.context_parallel

    @property
    def global_batch(self) -> int:
        """Sequences of one iteration."""
        return self.micro_batch * self.num_micro_batches

    def data_parallel(self, stage: Stage) -> int:
        """Data-parallel degree of one of the stages: groups of replicas with sequences of their own."""
        return stage.dp // self.context_parallel

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """(node, GPU) of every rank: pipe slowest, then data, tensor fastest."""
        return tuple((replica.node, gpu) for stage in self.stages for replica in stage.replicas for gpu in replica.gpus)

    @property
    def is_symmetric(self) -> bool:
        """Whether all stages have the same degrees and all replicas the same local batch.

        Layers may differ between stages: an uneven partition is no asymmetry of the groups.
        """
        degrees = {(stage.dp, stage.tp) for stage in self.stages}
        batches = {replica.local_batch for stage in self.stages for replica in stage.replicas}
        return len(degrees) == len(batches) == 1

    @property
    def has_own_checkpointing(self) -> bool:
        """Whether stages recompute something else than the job's model says."""
        return any(stage.checkpointing is not None for stage in self.stages)

    def notation(self) -> str:
        """Short form: `PP2 DP2 TP4 (20+20 layers, 8 x 4)` when symmetric, else stage by stage `20L 2x4 | 20L 3x2`;
        interleaved pipelines have `PP2x3` for three parts a stage, zero-bubble ones `PP2x3ZB` and `PP2ZBV`, and
        `CP2 EP4` stands behind TP where it is not 1;
        stages with a checkpointing of their own `recomputing 2 selective, 2 none`, `recomputing full 5, full 2`."""
        batches = f"{self.num_micro_batches} x {self.micro_batch}"
        if self.has_own_checkpointing:
            groups = [
                (words or "as the job", len(list(of))) for words, of in groupby(s.recomputing for s in self.stages)
            ]
            alike = (words if count == 1 else f"{count} {words}" for words, count in groups)
            batches += f", recomputing {', '.join(alike)}"
        layers = listed([stage.num_layers for stage in self.stages], "layer")
        parts = part_words(self.virtual_stages, self.schedule)
        within = "".join(
            f" {name}{degree}"
            for name, degree in (("CP", self.context_parallel), ("EP", self.expert_parallel))
            if degree > 1
        )
        if self.is_symmetric:
            first = self.stages[0]
            return f"PP{self.pp}{parts} DP{self.data_parallel(first)} TP{first.tp}{within} ({layers}, {batches})"
        stages = " | ".join(f"{stage.num_layers}L {self.data_parallel(stage)}x{stage.tp}" for stage in self.stages)
        return f"PP{self.pp}{parts} {stages}{within} ({batches})" if parts else f"{stages}{within} ({batches})"


def symmetric_plan(
    *,
    num_layers: int | tuple[int, ...],
    pp: int,
    dp: int,
    tp: int,
    global_batch: int,
    num_micro_batches: int,
    gpu_type: str | Mapping[str, str],
    gpus: tuple[Gpu, ...],
    virtual_stages: int = 1,
    cp: int = 1,
    ep: int = 1,
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B,
) -> ParallelPlan:
    """Build the plan of equal degrees in all stages.

    Parameters
    ----------
    num_layers
        Layers of the model, spread as evenly as they go with the longer stages first; or the layers of each stage.
    gpu_type
        Type of all GPUs, or of those of each node.
    gpus
        (node, GPU) of every rank: pipe slowest, then data, context, tensor fastest; length pp x dp x cp x tp.
    cp, ep
        Context-parallel degree; expert-parallel degree, which takes none of the GPUs for itself.

    Raises
    ------
    InputError
        When the batch does not divide into micro-batches and replicas, a tensor group leaves its node, or the number
        of GPUs or stages is not that of the degrees.
    """
    layers = even_split(num_layers, pp) if isinstance(num_layers, int) else num_layers
    replicas_of_stage = dp * cp
    needed = pp * replicas_of_stage * tp
    if len(gpus) != needed or len(layers) != pp:
        name = f"PP{pp} DP{dp} TP{tp}" + (f" CP{cp}" if cp > 1 else "")
        raise InputError(
            f"{name} needs {counted(needed, 'GPU')} and {counted(pp, 'stage')}, not {len(gpus)}, {len(layers)}"
        )
    if global_batch % (num_micro_batches * dp):
        raise InputError(
            f"a global batch of {global_batch} does not divide into {num_micro_batches} micro-batches for "
            f"{counted(dp, 'replica')}"
        )
    local_batch = global_batch // (num_micro_batches * dp)
    groups = [gpus[k : k + tp] for k in range(0, len(gpus), tp)]
    if any(len({node for node, _ in group}) > 1 for group in groups):
        raise InputError(f"a tensor-parallel group of {tp} GPUs leaves its node; order the GPUs node by node")
    replicas = [
        Replica(
            node=group[0][0],
            gpu_type=gpu_type if isinstance(gpu_type, str) else gpu_type[group[0][0]],
            gpus=tuple(gpu for _, gpu in group),
            local_batch=local_batch,
        )
        for group in groups
    ]
    return ParallelPlan(
        stages=tuple(
            Stage(num_layers=count, replicas=tuple(replicas[k * replicas_of_stage : (k + 1) * replicas_of_stage]))
            for k, count in enumerate(layers)
        ),
        num_micro_batches=num_micro_batches,
        virtual_stages=virtual_stages,
        context_parallel=cp,
        expert_parallel=ep,
        schedule=schedule,
    )


def _faults(plan: ParallelPlan) -> Iterator[Issue]:
    """Everything that is wrong with a plan whatever the job."""
    if plan.num_micro_batches < 1:
        yield _fault("not_positive", "/num_micro_batches", f"is {plan.num_micro_batches}; at least 1")
    if not plan.stages:
        yield _fault("no_stages", "/stages", "the plan has no stages; at least 1")
    yield from _interleaving_faults(plan)
    yield from _schedule_faults(plan)
    yield from _sharing_faults(plan)
    seen: set[Gpu] = set()
    for i, stage in enumerate(plan.stages):
        yield from _stage_faults(pointer_of("stages", i), stage, seen, plan.virtual_stages)
    sizes = {stage.micro_batch for stage in plan.stages}
    if len(sizes) > 1:
        yield _fault(
            "micro_batch_differs",
            "/stages",
            f"the stages work on micro-batches of {sorted(sizes)} sequences; every stage sees all sequences",
        )


def _interleaving_faults(plan: ParallelPlan) -> Iterator[Issue]:
    parts, where = plan.virtual_stages, "/virtual_stages"
    if parts < 1:
        yield _fault("not_positive", where, f"is {parts}; at least 1")
    if parts <= 1 or not plan.stages:
        return
    if plan.pp == 1:
        yield _fault("not_interleaved", where, f"is {parts} for one stage; 1, or several stages")
    fewest = min(stage.num_layers for stage in plan.stages)
    if fewest < parts:
        yield _fault(
            "not_interleaved", where, f"is {parts}; a stage has {counted(fewest, 'layer')}, at most as many parts"
        )
    if plan.num_micro_batches % plan.pp and plan.schedule is not PipelineSchedule.ZBV:
        detail = f"is {plan.num_micro_batches}; an interleaved pipeline takes multiples of its {plan.pp} stages"
        yield _fault("not_interleaved", "/num_micro_batches", detail)


def _schedule_faults(plan: ParallelPlan) -> Iterator[Issue]:
    """Schedules that do not go with the parts of stages, or with what these recompute."""
    if not plan.schedule.splits_backward:
        return
    is_v = plan.schedule is PipelineSchedule.ZBV
    if not (plan.virtual_stages == 2 if is_v else plan.virtual_stages > 1):
        detail = (
            f"is {plan.schedule} with {counted(plan.virtual_stages, 'part')} a stage; {'2' if is_v else '2 at least'}"
        )
        yield _fault("schedule", "/schedule", detail)
    for i, stage in enumerate(plan.stages):
        if stage.checkpointing is not None:
            detail = f"is {stage.recomputing}; stages of {plan.schedule} keep everything, as the job says: leave it out"
            yield _fault("schedule", pointer_of("stages", i, "checkpointing"), detail)


def _sharing_faults(plan: ParallelPlan) -> Iterator[Issue]:
    """Context and expert parallelism that do not go with the replicas."""
    for name in ("context_parallel", "expert_parallel"):
        degree = getattr(plan, name)
        if degree < 1:
            yield _fault("not_positive", f"/{name}", f"is {degree}; at least 1")
        for i, stage in enumerate(plan.stages):
            if degree > 1 and stage.dp % degree:
                detail = f"is {degree}, which does not divide the {counted(stage.dp, 'replica')} of stage {i}"
                yield _fault("not_divisible", f"/{name}", detail)
    degree = plan.context_parallel
    for i, stage in enumerate(plan.stages if degree > 1 else ()):
        batches = [replica.local_batch for replica in stage.replicas]
        if any(len(set(batches[k : k + degree])) > 1 for k in range(0, len(batches), degree)):
            detail = f"have local batches of {batches}; every {degree} of them share their sequences, and have as many"
            yield _fault("context_batch_differs", pointer_of("stages", i, "replicas"), detail)


def _stage_faults(where: str, stage: Stage, seen: set[Gpu], virtual_stages: int) -> Iterator[Issue]:
    """Faults of one stage; `seen` are the GPUs of the stages before, and gets those of this one."""
    if stage.num_layers < 1:
        yield _fault("not_positive", f"{where}/num_layers", f"is {stage.num_layers}; at least 1")
    if not stage.replicas:
        yield _fault("no_replicas", f"{where}/replicas", "the stage has no replicas; at least 1")
    yield from _recomputation_faults(where, stage, virtual_stages)
    for j, replica in enumerate(stage.replicas):
        pointer = f"{where}/replicas/{j}"
        if replica.local_batch < 1:
            yield _fault("not_positive", f"{pointer}/local_batch", f"is {replica.local_batch}; at least 1")
        if not replica.gpus or len(replica.gpus) != stage.tp:
            yield _fault(
                "tensor_degree",
                f"{pointer}/gpus",
                f"has {counted(len(replica.gpus), 'GPU')}; every replica of a stage has as many, and this one "
                f"{stage.tp}",
            )
        for gpu in replica.gpus:
            if (replica.node, gpu) in seen:
                yield _fault("gpu_taken_twice", f"{pointer}/gpus", f"GPU {gpu} of node {replica.node!r} is used twice")
            seen.add((replica.node, gpu))


def _recomputation_faults(where: str, stage: Stage, virtual_stages: int) -> Iterator[Issue]:
    count, pointer = stage.recomputed_layers, f"{where}/recomputed_layers"
    if count is None:
        return
    if stage.checkpointing is not Checkpointing.FULL:
        detail = f"is {count} with checkpointing {stage.checkpointing}; only full checkpointing is of some layers: full"
        yield _fault("recomputed_layers", pointer, detail)
    if not 1 <= count <= stage.num_layers:
        detail = f"is {count}; from 1 to the {counted(stage.num_layers, 'layer')} of the stage"
        yield _fault("recomputed_layers", pointer, detail)
    elif virtual_stages > 1 and count % virtual_stages:
        detail = f"is {count}, which the {virtual_stages} parts of the stage do not divide; each recomputes as many"
        yield _fault("recomputed_layers", pointer, detail)


def _fault(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail)


def layers_of_parts(layers: Sequence[int], parts: int, schedule: PipelineSchedule) -> tuple[int, ...]:
    """Layers of the parts of stages in the order of the model: part 0 of all stages, then part 1 of the first one ...,
    of zbv from the last stage to the first; `layers`: of stages."""
    cut = [even_split(count, parts) for count in layers]
    if schedule is PipelineSchedule.ZBV:
        return (*(there for there, _ in cut), *(back for _, back in reversed(cut)))
    return tuple(each[k] for k in range(parts) for each in cut)


def v_parts(layers: Sequence[int]) -> tuple[tuple[tuple[int, int], tuple[int, int]], ...]:
    """First layer of both parts of every stage of zbv, and the one behind the last; `layers`: of stages."""
    bounds = list(pairwise(accumulate(layers_of_parts(layers, 2, PipelineSchedule.ZBV), initial=0)))
    return tuple(zip(bounds[: len(layers)], reversed(bounds[len(layers) :]), strict=True))


def even_split(total: int, parts: int) -> tuple[int, ...]:
    """Split `total` into `parts` whole numbers that differ by at most one, the larger first."""
    return tuple(math.ceil((total - k) / parts) for k in range(parts))
