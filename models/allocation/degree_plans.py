"""Plans of jobs that keep the degrees that they say: as fast as these are on each type of GPUs."""

from collections.abc import Mapping
from functools import lru_cache

from models.allocation.suika.planner import NoPlan
from models.allocation.suika.start_plan import StartQuestion, find_start_plan
from models.parallelism.adaptive import node_sizes, slowed
from models.parallelism.grid.evaluation import estimate
from models.parallelism.grid.options import GridOptions
from models.parallelism.results import PlanEstimate, Rejection, RejectionReason, how_close
from models.parallelism.training import Training, trained
from models.performance.iteration.modelling import virtual_model
from models.wording import counted
from models.workload import Job, Parallelism
from topology.cluster import Cluster

_OPTIONS = GridOptions(details=False)
_REASONS = {"out_of_memory": RejectionReason.OUT_OF_MEMORY, "batch": RejectionReason.BATCH}


def degree_plans(
    job: Job, cluster: Cluster, fractions: Mapping[tuple[str, int], float]
) -> tuple[Mapping[tuple[str, int], PlanEstimate], Rejection | None]:
    """Plan of a job that keeps its degrees by (GPU type, count), on virtual nodes, trained in the fastest way that is
    open, and where it has none what comes closest to one; `fractions`: what may be had -> share of the bandwidth."""
    assert job.model is not None  # noqa: S101 - asked in `keeps_degrees`
    assert job.parallelism is not None  # noqa: S101 - likewise
    ways = [Training.of(way) for way in job.choices.models(job.model)] if job.choices.are_open else [None]
    kinds, sizes = {kind.name: kind for kind in cluster.gpu_types}, node_sizes(cluster)
    best: dict[tuple[str, int], PlanEstimate] = {}
    rejections: list[Rejection] = []
    for (name, count), fraction in fractions.items():
        for training in ways if count == job.parallelism.num_gpus else ():
            model = trained(job.model, training)
            found = _plan(
                StartQuestion(
                    key=(model, job.calibration and job.calibration.key),
                    model=model,
                    calibration=job.calibration,
                    gpu_type=slowed(kinds[name], fraction),
                    gpus_per_node=sizes[name],
                    num_gpus=count,
                    degrees=job.parallelism,
                    training=training,
                )
            )
            if isinstance(found, NoPlan):
                rejections.append(_rejection(job.parallelism, name, found))
            elif (name, count) not in best or found.throughput > best[name, count].throughput:
                best[name, count] = found
    return best, min(rejections, key=how_close, default=None)


@lru_cache(maxsize=1024)
def _plan(question: StartQuestion) -> PlanEstimate | NoPlan:
    degrees, size = question.degrees, question.gpus_per_node
    assert degrees is not None  # noqa: S101 - of a job that keeps them
    if question.num_gpus > size and size % degrees.tp:
        return NoPlan(
            reason="degrees",
            detail=f"tensor degree {degrees.tp} does not divide nodes of {counted(size, 'GPU')}, which are given whole",
            counts={"tp": degrees.tp},
            remedy="a tensor degree that divides them",
        )
    found = find_start_plan(question)
    if found.plan is None:
        assert found.why is not None  # noqa: S101 - else there were a plan
        return found.why
    num_nodes = len({node for node, _ in found.plan.gpus})
    model = virtual_model(question.model, question.gpu_type, size, num_nodes, question.calibration)
    return estimate(found.plan, model, _OPTIONS)


def _rejection(degrees: Parallelism, gpu_type: str, why: NoPlan) -> Rejection:
    return Rejection(
        reason=_REASONS.get(why.reason, RejectionReason.DEGREES),
        candidate=f"PP{degrees.pp} DP{degrees.dp} TP{degrees.tp} on {degrees.num_gpus} {gpu_type}",
        detail=why.detail,
        needed_bytes=why.counts.get("needed_bytes"),
        usable_bytes=why.counts.get("usable_bytes"),
    )
