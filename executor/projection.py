"""The symmetric plan that comes closest to an asymmetric one, for a runtime that knows only symmetric ones."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.model import PerformanceModel
from models.wording import counted
from stowplan.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A symmetric plan on GPUs of the given one; times in seconds per iteration.

    `loss`: share of the throughput that is lost, 0.1 is 10 %; negative when the symmetric plan is faster.
    """

    plan: ParallelPlan
    before_s: float
    after_s: float

    @property
    def loss(self) -> float:
        """Share of the predicted throughput that the projection costs."""
        return 1.0 - self.before_s / self.after_s


def project(plan: ParallelPlan, model: PerformanceModel) -> Projection:
    """Find the fastest symmetric plan that uses GPUs of `plan`, in the order of its ranks, and fits their memory.

    Raises
    ------
    InputError
        When no symmetric plan fits.
    """
    before_s = model.iteration(plan).total_s
    if plan.is_symmetric:
        return Projection(plan=plan, before_s=before_s, after_s=before_s)
    fitting = [candidate for candidate in _symmetric(plan, model) if model.fits(candidate)]
    if not fitting:
        raise InputError(
            f"no symmetric plan on the {counted(plan.num_gpus, 'GPU')} of {plan.notation()} fits their memory"
        )
    best_s, _, best = min((model.iteration(candidate).total_s, k, candidate) for k, candidate in enumerate(fitting))
    return Projection(plan=replace(best, training=plan.training), before_s=before_s, after_s=best_s)


def _symmetric(plan: ParallelPlan, model: PerformanceModel) -> Iterator[ParallelPlan]:
    """Symmetric plans on prefixes of the GPUs of each node, with tensor groups inside nodes of one type."""
    nodes: dict[str, list[int]] = {}
    for node, gpu in plan.gpus:
        nodes.setdefault(node, []).append(gpu)
    types = {replica.node: replica.gpu_type for stage in plan.stages for replica in stage.replicas}
    batch = plan.global_batch
    counts = [count for count in range(1, batch + 1) if batch % count == 0]
    for tp in range(1, max(map(len, nodes.values())) + 1):
        if not model.profile.admits_tensor_degree(tp):
            continue
        groups = [
            tuple((node, gpu) for gpu in gpus[k : k + tp])
            for node, gpus in nodes.items()
            for k in range(0, len(gpus) - tp + 1, tp)
        ]
        for pp in range(1, min(len(groups), model.profile.num_layers) + 1):
            # More replicas of the same stages are faster; of the numbers that divide the batch the largest is enough.
            dp = max(n for n in counts if n <= len(groups) // pp)
            used = groups[: pp * dp]
            for count in (n for n in counts if batch % (n * dp) == 0):
                yield symmetric_plan(
                    num_layers=model.profile.num_layers,
                    pp=pp,
                    dp=dp,
                    tp=tp,
                    global_batch=batch,
                    num_micro_batches=count,
                    gpu_type=types,
                    gpus=tuple(place for group in used for place in group),
                )
