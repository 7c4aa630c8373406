"""What would make a model fit that fits nowhere: other ways to train it, other software (which splits sequences, or
whose replicas share them or experts), more GPUs, each tried.
"""

from collections.abc import Iterator
from dataclasses import replace

from models.parallelism.even import even_plans
from models.parallelism.grid.options import GridOptions
from models.parallelism.grid.planner import plan_grids
from models.parallelism.request import Offer, ParallelRequest
from models.parallelism.results import PlanEstimate
from models.performance.iteration.coefficients import Calibration
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.software import FEATURES, Software
from models.transformer import Checkpointing, JobModel, Transformer
from models.wording import counted, size_of

_MOST_GPUS = 65_536
# Of numbers of GPUs, each twice the one before.
_DOUBLINGS = 5
# Further ones say no more.
_MOST_TOLD = 4


def remedies(request: ParallelRequest, offer: Offer) -> Iterator[str]:
    """What makes the model fit on the largest number of GPUs of an offer, each with the plan and its memory.

    Changes of one thing come first, several together are tried where none of them is enough.
    """
    told = 0
    count = max(offer.counts)
    for group in (_single(request.model), _together(request.model)):
        for words, model in group:
            if told >= _MOST_TOLD or request.grid.is_over:
                return
            found = _tried(request, offer, count, model)
            if found is not None:
                told += 1
                yield f"with {words} ({_numbers(found)})"
        if told:
            break
    if request.cluster is None and not request.grid.is_over:
        yield from _more_gpus(request, offer, count)


def _more_gpus(request: ParallelRequest, offer: Offer, count: int) -> Iterator[str]:
    for _ in range(_DOUBLINGS):
        count *= 2
        if count > _MOST_GPUS or request.grid.is_over:
            return
        found = _tried(request, offer, count, request.model)
        if found is not None:
            yield f"on {counted(count, 'GPU')} ({_numbers(found)})"
            return


def _single(model: JobModel) -> Iterator[tuple[str, JobModel]]:
    """Changes of one thing."""
    if isinstance(model, Transformer):
        for kind in (Checkpointing.SELECTIVE, Checkpointing.FULL):
            if kind is not model.checkpointing and model.checkpointing is not Checkpointing.FULL:
                yield f"{kind} checkpointing", replace(model, checkpointing=kind)
    for stage in range(model.zero_stage + 1, 4):
        yield f"ZeRO stage {stage}", replace(model, zero_stage=stage)
    if isinstance(model, Transformer):
        able = (Software.MEGATRON_CORE, Software.TORCH)
        if not FEATURES[model.software].expert_parallel and model.num_experts > 1:
            yield from ((f"{one}, whose replicas share experts", replace(model, software=one)) for one in able)
        elif not model.splits_sequences and model.sequence_parallel is None:
            yield from ((f"{one}, which splits sequences", replace(model, software=one)) for one in able)


def _together(model: JobModel) -> Iterator[tuple[str, JobModel]]:
    """Full checkpointing with something else."""
    if not isinstance(model, Transformer):
        return
    full = replace(model, checkpointing=Checkpointing.FULL)
    for words, other in _single(full):
        yield f"full checkpointing and {words}", other
    for software in Software:
        if software is not model.software and FEATURES[software].pipeline_zero > FEATURES[model.software].pipeline_zero:
            yield f"full checkpointing, {software} and ZeRO stage 3", replace(full, software=software, zero_stage=3)


def _tried(request: ParallelRequest, offer: Offer, count: int, model: JobModel) -> PlanEstimate | None:
    """The best plan, if there is one. Coefficients were measured of the model as it is."""
    calibration = request.calibration if model is request.model else None
    options = GridOptions(details=False, num_operators=request.grid.num_operators)
    found = plan_grids(model, offer.gpu_type, offer.gpus_per_node, (count,), options, calibration)
    best = found.best.get((offer.gpu_type.name, count))
    return best or _symmetric(offer, count, model, options, calibration)


def _symmetric(
    offer: Offer, count: int, model: JobModel, options: GridOptions, calibration: Calibration | None
) -> PlanEstimate | None:
    """The best plan whose replicas may share sequences or experts."""
    size = offer.gpus_per_node
    job = virtual_model(model, offer.gpu_type, size, -(-count // size), calibration)
    plans = even_plans(job, offer.gpu_type.name, size, count, roofline_s(job.profile, offer.gpu_type), options)
    estimates = [
        PlanEstimate(plan=plan, iteration=time, memory=job.memory(plan), throughput=plan.global_batch / time.total_s)
        for plan in plans.found
        for time in (job.iteration(plan),)
    ]
    return min(estimates, key=lambda one: one.iteration.total_s, default=None)


def _numbers(found: PlanEstimate) -> str:
    needed = max(memory.total_bytes for memory in found.memory)
    return f"{found.plan.notation()}, {size_of(needed)} per GPU, {found.iteration.total_s:.3g} s per iteration"
