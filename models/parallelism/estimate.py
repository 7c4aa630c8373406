"""A plan where it is: on the nodes of the cluster or virtual ones, estimated there and checked."""

from collections.abc import Sequence
from dataclasses import replace

from models.parallel_plan import ParallelPlan
from models.parallelism.binding import bind_plan
from models.parallelism.efficiency import busy_shares, efficiency_of
from models.parallelism.legality import plan_violations
from models.parallelism.request import Offer, ParallelRequest, Planner, PlanPoint
from models.parallelism.results import PlanEstimate, RejectionReason
from models.performance.iteration.breakdown import breakdown
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import performance_model, virtual_model
from models.wording import counted
from models.workload import NodeGpus
from stowplan.errors import UnverifiedPlanError


def fastest_point(
    request: ParallelRequest,
    offer: Offer,
    plans: Sequence[ParallelPlan],
    nodes: tuple[NodeGpus, ...] | None,
    count: int,
) -> PlanPoint:
    """The fastest of some plans on these nodes (None: virtual ones), the first of equals, with the fastest symmetric
    one beside it."""
    model = offer_model(request, offer)
    bound = [plan if nodes is None else bind_plan(plan, nodes) for plan in plans]
    points = [point_of(request, model, plan, offer.gpu_type.name, count) for plan in bound]
    fastest = min(points, key=lambda point: point.seconds)
    if fastest.estimate.plan.is_symmetric:
        return fastest
    even = [point for point in points if point.estimate.plan.is_symmetric]
    return replace(fastest, symmetric=min(even, key=lambda point: point.seconds, default=None))


def point_of(
    request: ParallelRequest, model: PerformanceModel, plan: ParallelPlan, gpu_type: str, num_gpus: int
) -> PlanPoint:
    """Estimate a plan where it is, and check it.

    Raises
    ------
    UnverifiedPlanError
        When it is not legal.
    """
    faults = plan_violations(plan, model)
    if plan is request.running or request.planner is Planner.GIVEN:
        # They are not ours; what they lack is told.
        faults = [issue for issue in faults if issue.code != RejectionReason.OUT_OF_MEMORY]
    if faults:
        raise UnverifiedPlanError(
            f"the plan {plan.notation()} failed {counted(len(faults), 'check')}; it is withheld", faults
        )
    iteration, measured_s = model.iteration(plan), request.measured_s(plan)
    parts, busy = breakdown(iteration, plan.num_micro_batches), busy_shares(plan, iteration)
    if measured_s is not None:
        iteration = replace(iteration, total_s=measured_s)
    throughput = plan.global_batch / iteration.total_s
    return PlanPoint(
        gpu_type=gpu_type,
        num_gpus=num_gpus,
        model=request.model,
        estimate=PlanEstimate(
            plan=plan,
            iteration=iteration,
            memory=model.memory(plan),
            throughput=throughput,
            measured=measured_s is not None,
        ),
        breakdown=parts,
        efficiency=efficiency_of(request.model, plan, throughput, _peaks(request), request.num_tokens, busy),
        usable_bytes=tuple(
            min(model.usable_bytes(replica.gpu_type) for replica in stage.replicas) for stage in plan.stages
        ),
    )


def _peaks(request: ParallelRequest) -> dict[str, float]:
    kinds = [offer.gpu_type for offer in request.offers] if request.cluster is None else request.cluster.gpu_types
    return {kind.name: kind.peak_flops_per_s for kind in kinds}


def offer_model(request: ParallelRequest, offer: Offer) -> PerformanceModel:
    """The performance model of an offer, on nodes of the cluster or virtual ones."""
    if request.cluster is not None:
        return performance_model(request.model, request.cluster, request.calibration)
    nodes = len(virtual_nodes(offer))
    return virtual_model(request.model, offer.gpu_type, offer.gpus_per_node, nodes, request.calibration)


def virtual_nodes(offer: Offer) -> tuple[NodeGpus, ...]:
    """Nodes for the largest number of GPUs of an offer that names none."""
    size = offer.gpus_per_node
    return tuple(NodeGpus(node=str(k), gpus=tuple(range(size))) for k in range(-(-max(offer.counts) // size)))
