"""What all formats of `export` are made of: which GPU every rank has, and how the ranks share the work."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from executor.deployment import deployment_name
from executor.hosts import HOST, HOST_FORM
from models.parallel_plan import Gpu, ParallelPlan, layers_of_parts, symmetric_plan
from models.parallelism.training import trained
from models.performance.goodput.batch import equal_share
from models.pipeline_schedule import PipelineSchedule, part_words
from models.plan import JobAllocation, Plan
from models.transformer import Checkpointing, Transformer
from models.wording import counted
from models.workload import Parallelism
from stowplan.errors import InputError, Issue


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees that are the same in all stages; rank = ((stage * dp + replica) * cp + part) * tp + shard.

    `cp`: parts of a sequence, `ep`: consecutive ranks of equal shard that hold different experts (`ParallelPlan`).
    `recomputed_layers`: of every part of a stage the first so many are recomputed in full (all, where it has fewer),
    others keep everything; None: as the model says. `stage_layers`, `virtual_stages` and `schedule` as in
    `ParallelPlan`, None: whoever planned it knew no layers. `micro_batch`: sequences of one micro-batch per replica,
    `num_micro_batches` of which make a step; None: nobody has said.
    """

    pp: int
    dp: int
    tp: int
    cp: int = 1
    ep: int = 1
    recomputed_layers: int | None = None
    stage_layers: tuple[int, ...] | None = None
    virtual_stages: int = 1
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
    micro_batch: int | None = None
    num_micro_batches: int | None = None

    @property
    def global_batch(self) -> int | None:
        """Sequences of a step."""
        if self.micro_batch is None or self.num_micro_batches is None:
            return None
        return self.micro_batch * self.num_micro_batches * self.dp

    @property
    def part_layers(self) -> tuple[int, ...] | None:
        """Layers of every part of a stage in the order of the model: part 0 of all stages, then part 1 ..., which zbv
        has from the last stage to the first."""
        if self.stage_layers is None:
            return None
        return layers_of_parts(self.stage_layers, self.virtual_stages, self.schedule)

    def notation(self) -> str:
        """Short form."""
        parts = part_words(self.virtual_stages, self.schedule)
        shared = "".join(f" {name}{degree}" for name, degree in (("CP", self.cp), ("EP", self.ep)) if degree > 1)
        return f"PP{self.pp}{parts} DP{self.dp} TP{self.tp}{shared}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedJob:
    """A planned job. `gpus`: (host, GPU) of every rank. `plan`, where there is one, may be asymmetric: `layout` says
    what frameworks with equal degrees can make of it. `degrees`: of a job without a plan, None where nobody has said
    any. `model`: what it trains, None where that is not known; `gpu_type`: of a job without a plan.

    Raises
    ------
    InputError
        When there are no GPUs, one occurs twice, a host has no host's name, or the degrees have other GPUs.
    """

    name: str
    gpus: tuple[Gpu, ...]
    plan: ParallelPlan | None = None
    degrees: Layout | None = None
    model: Transformer | None = None
    gpu_type: str = ""

    def __post_init__(self) -> None:
        if issues := list(_faults(self)):
            raise InputError(f"job {self.name!r} cannot be exported", issues)

    @property
    def hosts(self) -> dict[str, tuple[int, ...]]:
        """Ranks of every host, hosts in the order of their first rank."""
        ranks: dict[str, list[int]] = {}
        for rank, (host, _) in enumerate(self.gpus):
            ranks.setdefault(host, []).append(rank)
        return {host: tuple(of) for host, of in ranks.items()}

    @property
    def plain_name(self) -> str:
        """Its name as a word of letters, digits and dashes."""
        return deployment_name(self.name)

    def gpus_of(self, ranks: Sequence[int]) -> tuple[int, ...]:
        """GPUs of the ranks of a host: local rank k has the k-th of them."""
        return tuple(self.gpus[rank][1] for rank in ranks)

    def layout(self, framework: str, *, zero_bubble: bool = False) -> Layout:
        """How the ranks share the work, for a framework whose stages have equal degrees; `zero_bubble`: it runs such
        schedules.

        Raises
        ------
        InputError
            When the plan is asymmetric, has a schedule that the framework has not, or nobody has said any degrees.
        """
        if self.plan is not None:
            _refuse_asymmetry(self.plan, framework)
            if self.plan.schedule.splits_backward and not zero_bubble:
                raise InputError(
                    f"{framework} runs no schedule {self.plan.schedule}: {self.plan.notation()}; torchtitan does, or "
                    "plan with schedules 1f1b"
                )
            return _layout_of(self.plan, framework)
        if self.degrees is None:
            raise InputError(
                f"the plan gives job {self.name!r} {counted(len(self.gpus), 'GPU')} and says nothing of degrees, which "
                f"{framework} needs; torchrun, slurm and mpi need none"
            )
        return self.degrees

    def as_plan(self) -> ParallelPlan | None:
        """The 3D plan; of a job without one that of its degrees, layers spread evenly; None where its model or its
        batch are not known.

        Raises
        ------
        InputError
            When its degrees go with no plan: a tensor group leaves its node, a stage has no layer.
        """
        layout, model = self.degrees, self.model
        if self.plan is not None or layout is None or model is None or layout.global_batch is None:
            return self.plan
        return symmetric_plan(
            num_layers=model.num_layers,
            pp=layout.pp,
            dp=layout.dp,
            tp=layout.tp,
            global_batch=layout.global_batch,
            num_micro_batches=layout.num_micro_batches or 1,
            gpu_type=self.gpu_type,
            gpus=self.gpus,
        )

    def in_one_go(self, launcher: str) -> dict[str, tuple[int, ...]]:
        """`hosts`, for a launcher that numbers the ranks of a host one after another.

        Raises
        ------
        InputError
            When the plan has the ranks of a host in pieces.
        """
        for host, ranks in self.hosts.items():
            if ranks[-1] - ranks[0] >= len(ranks):
                raise InputError(
                    f"{launcher} numbers the ranks of a host one after another; host {host} has ranks "
                    f"{_pieces(ranks)}: slurm and mpi can have that"
                )
        return self.hosts


def job_of_plan(name: str, plan: ParallelPlan, model: Transformer | None = None) -> ExportedJob:
    """A job with a 3D plan."""
    as_planned = None if model is None else trained(model, plan.training)
    assert as_planned is None or isinstance(as_planned, Transformer)  # noqa: S101 - it stays what it is
    alike = _recomputing_alike(plan)
    if as_planned is not None and alike is not None:
        as_planned = replace(as_planned, checkpointing=alike)
    return ExportedJob(name=name, gpus=plan.gpus, plan=plan, model=as_planned)


def refuse_virtual_nodes(plan: ParallelPlan, option: str) -> None:
    """Raise InputError where nodes are numbers, as planners call those of a plan for which they were given no cluster.

    Parameters
    ----------
    option
        Where hosts can be named.
    """
    nodes = sorted({node for node, _ in plan.gpus}, key=lambda node: (len(node), node))
    if all(node.isdecimal() for node in nodes):
        raise InputError(f"the plan is on nodes {', '.join(nodes[:8])}, which are no hosts; name yours with {option}")


def job_of(
    plan: Plan, job_id: str, *, parallelism: Parallelism | None = None, model: Transformer | None = None
) -> ExportedJob:
    """A job of any policy's plan: with its 3D plan, as a pre-training placement, now or ahead, or data-parallel.

    Parameters
    ----------
    parallelism
        Degrees that the snapshot has for the job, where the plan says none.

    Raises
    ------
    InputError
        When the plan has no GPUs for the job.
    """
    found = next((known for known in plan.allocations if known.job_id == job_id), None)
    ahead = next((known for known in plan.ahead if known.placement.job_id == job_id), None)
    if found is not None and found.parallel_plan is not None:
        return job_of_plan(job_id, found.parallel_plan, model)
    if found is None and ahead is not None:
        hosts, placed = ahead.placement.hosts, ahead.parallelism
        gpus = tuple((host, gpu) for host in hosts for gpu in range(placed.num_gpus // len(hosts)))
        degrees = _with_batch(Layout(pp=placed.pp, dp=placed.dp, tp=placed.tp), model)
        return ExportedJob(name=job_id, gpus=gpus, degrees=degrees, model=model, gpu_type=ahead.gpu_type)
    if found is None:
        known = [*(a.job_id for a in plan.allocations), *(a.placement.job_id for a in plan.ahead)]
        raise InputError(f"the plan has no GPUs for job {job_id!r}; it has some for {known}")
    if plan.pretraining is not None and plan.pretraining.job_id == job_id:
        parallelism = plan.pretraining.parallelism or parallelism
    layout = _degrees(found, parallelism, model)
    return ExportedJob(name=job_id, gpus=found.rank_gpus, degrees=layout, model=model, gpu_type=found.gpu_type)


def _degrees(found: JobAllocation, parallelism: Parallelism | None, model: Transformer | None) -> Layout | None:
    """Degrees of an allocation without a 3D plan: those of the job, else data-parallel where it has a batch."""
    local, count = found.local_batch_size, found.accumulation_steps
    if parallelism is not None and parallelism.num_gpus == found.num_gpus:
        layout = Layout(
            pp=parallelism.pp, dp=parallelism.dp, tp=parallelism.tp, micro_batch=local, num_micro_batches=count
        )
        return layout if layout.global_batch else _with_batch(layout, model)
    if local is None:
        return None
    layout = Layout(pp=1, dp=found.num_gpus, tp=1, micro_batch=local, num_micro_batches=count)
    if found.batch_size is None or count is None or layout.global_batch == found.batch_size:
        return layout
    # Smaller last shares keep a batch within the maximum of its job; frameworks have equal ones.
    even = equal_share(found.batch_size, layout.dp, count)
    return replace(layout, micro_batch=even) if even else replace(layout, num_micro_batches=None)


def _with_batch(layout: Layout, model: Transformer | None) -> Layout:
    """With the micro-batch that the model names, where that divides its global batch."""
    if model is None or model.micro_batch is None or model.global_batch % (model.micro_batch * layout.dp):
        return layout
    count = model.global_batch // (model.micro_batch * layout.dp)
    return replace(layout, micro_batch=model.micro_batch, num_micro_batches=count)


def _layout_of(plan: ParallelPlan, framework: str) -> Layout:
    first = plan.stages[0]
    return Layout(
        pp=plan.pp,
        dp=plan.data_parallel(first),
        tp=first.tp,
        cp=plan.context_parallel,
        ep=plan.expert_parallel,
        recomputed_layers=_recomputed_layers(plan, framework),
        stage_layers=tuple(stage.num_layers for stage in plan.stages),
        virtual_stages=plan.virtual_stages,
        schedule=plan.schedule,
        micro_batch=first.replicas[0].local_batch,
        num_micro_batches=plan.num_micro_batches,
    )


def _recomputing_alike(plan: ParallelPlan) -> Checkpointing | None:
    """The checkpointing of all layers of all stages, where these have one of their own and it is the same."""
    (first, *others) = {(stage.checkpointing, stage.recomputed_layers) for stage in plan.stages}
    return first[0] if not others and first[1] is None else None


def _recomputed_layers(plan: ParallelPlan, framework: str) -> int | None:
    """Layers of every part that are recomputed in full, where one number says it; None: the model does."""
    if not plan.has_own_checkpointing or _recomputing_alike(plan) is not None:
        return None
    parts = plan.virtual_stages
    counts = [stage.num_layers if stage.recomputed_layers is None else stage.recomputed_layers for stage in plan.stages]
    found = max(-(-count // parts) for count in counts)
    alike = all(count == min(found * parts, stage.num_layers) for count, stage in zip(counts, plan.stages, strict=True))
    if not alike or any(stage.checkpointing is not Checkpointing.FULL for stage in plan.stages):
        raise InputError(
            f"{framework} is told once for all stages what they recompute, and those of the plan differ: "
            f"{plan.notation()}; plan with a checkpointing that is not auto"
        )
    return found


def _refuse_asymmetry(plan: ParallelPlan, framework: str) -> None:
    if plan.is_symmetric:
        return
    degrees = sorted({f"DP{stage.dp} TP{stage.tp}" for stage in plan.stages})
    what = (
        f"the same degrees in all stages, and the plan has {' and '.join(degrees)}"
        if len(degrees) > 1
        else "the same share of a micro-batch for all replicas, and the plan has uneven ones"
    )
    raise InputError(f"{framework} needs {what}: {plan.notation()}; torchrun, slurm and mpi need neither")


def _faults(job: ExportedJob) -> Iterator[Issue]:
    if not job.gpus:
        yield Issue(code="no_gpus", pointer="", detail="it has no GPUs")
    for host in job.hosts:
        if not HOST.fullmatch(host):
            yield Issue(code="bad_node_name", pointer="", detail=f"{host!r} is no host name; {HOST_FORM}")
    if len(set(job.gpus)) < len(job.gpus):
        yield Issue(code="gpu_taken_twice", pointer="", detail="a GPU has two ranks")
    layout = job.degrees
    if layout is not None and layout.pp * layout.dp * layout.cp * layout.tp != len(job.gpus):
        detail = f"{layout.notation()} has other than {counted(len(job.gpus), 'GPU')}"
        yield Issue(code="degrees", pointer="", detail=detail)


def _pieces(ranks: Sequence[int]) -> str:
    """Ranks as ranges: `0-3 and 8-11`."""
    starts = [k for k, rank in enumerate(ranks) if k == 0 or rank != ranks[k - 1] + 1]
    ends = [*(k - 1 for k in starts[1:]), len(ranks) - 1]
    return " and ".join(f"{ranks[a]}-{ranks[b]}" if a < b else str(ranks[a]) for a, b in zip(starts, ends, strict=True))
