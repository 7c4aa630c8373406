"""Why GPUs have no plan: what was rejected and for what, and what would help."""

from collections.abc import Iterator, Sequence

from models.parallel_plan import ParallelPlan
from models.parallelism.grid.options import GridOptions
from models.parallelism.remedies import remedies
from models.parallelism.request import MissingPoint, Offer, ParallelAnswer, ParallelRequest
from models.parallelism.results import Grid, Rejection, RejectionReason, how_close
from models.wording import counted, size_of
from stowplan.errors import Issue


def unshared(options: GridOptions, offer: Offer, num_gpus: int) -> MissingPoint:
    """That no plan has the degrees of context and expert parallelism, and the schedules, that were asked for."""
    schedules = None if options.schedules is None else [schedule.value for schedule in options.schedules]
    named = ("CP", options.context_degrees), ("EP", options.expert_degrees), ("schedules", schedules)
    asked = " and ".join(f"{name} {list(values)}" for name, values in named if values is not None)
    detail = f"no symmetric plan with {asked} fits software, model, batch, GPUs and their memory"
    candidate = f"{num_gpus} {offer.gpu_type.name}"
    rejection = Rejection(reason=RejectionReason.SHARING, candidate=candidate, detail=detail)
    return MissingPoint(gpu_type=offer.gpu_type.name, num_gpus=num_gpus, rejections=(rejection,))


def missing_point(offer: Offer, num_gpus: int, grids: Sequence[Grid], plans: Sequence[ParallelPlan]) -> MissingPoint:
    """Why there is no plan here: all rejections, the nodes for `plans`, or the time."""
    rejections = sorted((r for grid in grids for r in grid.rejections), key=how_close)
    name = f"{num_gpus} {offer.gpu_type.name}"
    if plans:
        size, wanted = counted(offer.gpus_per_node, "GPU"), counted(num_gpus, "GPU")
        detail = f"the cluster has no free nodes with {size} each for {wanted}"
        rejections = [Rejection(reason=RejectionReason.NODES, candidate=name, detail=detail)]
    elif not grids:
        detail = "was not looked at before the time was over; ask for fewer numbers of GPUs, or allow more time"
        rejections = [Rejection(reason=RejectionReason.TIME, candidate=name, detail=detail)]
    return MissingPoint(gpu_type=offer.gpu_type.name, num_gpus=num_gpus, rejections=tuple(rejections))


def nowhere(request: ParallelRequest, parts: Sequence[ParallelAnswer]) -> Iterator[Issue]:
    """Per offer, why nothing fits: the candidate that comes closest, and what would help."""
    for k, part in enumerate(parts):
        reasons = sorted((r for missing in part.missing for r in missing.rejections), key=how_close)
        if reasons:
            closest = reasons[0]
            detail = f"{closest.candidate}: {closest.detail}"
            if closest.needed_bytes is not None and closest.usable_bytes is not None:
                detail = (
                    f"the model fits nowhere; what comes closest, {closest.candidate}, needs at least "
                    f"{size_of(closest.needed_bytes)} per GPU, of which {size_of(closest.usable_bytes)} are usable"
                )
                helping = list(remedies(request, request.offers[k]))
                detail += f"; it would fit {'; or '.join(helping)}" if helping else ""
            yield Issue(code=closest.reason.value, pointer=f"/offers/{k}", detail=detail)
