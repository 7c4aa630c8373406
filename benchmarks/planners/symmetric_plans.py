"""All symmetric plans of a job on equal nodes that are filled one after another."""

from collections.abc import Iterator

from models.parallel_plan import ParallelPlan, symmetric_plan
from models.performance.iteration.model import PerformanceModel


def symmetric_plans(
    model: PerformanceModel, gpu_type: str, num_nodes: int, gpus_per_node: int
) -> Iterator[ParallelPlan]:
    """Plans on every GPU of nodes `0`, `1`, ... that are legal and fit into memory.

    Degrees divide the number of GPUs, tensor degrees that of a node; numbers of micro-batches are powers of two.
    """
    gpus = tuple((str(node), gpu) for node in range(num_nodes) for gpu in range(gpus_per_node))
    profile = model.profile
    for tp in _divisors(gpus_per_node):
        for pp in _divisors(len(gpus) // tp):
            dp = len(gpus) // tp // pp
            if not profile.admits_tensor_degree(tp) or pp > profile.num_layers:
                continue
            num_micro_batches = 1
            while profile.global_batch % (num_micro_batches * dp) == 0:
                plan = symmetric_plan(
                    num_layers=profile.num_layers,
                    pp=pp,
                    dp=dp,
                    tp=tp,
                    global_batch=profile.global_batch,
                    num_micro_batches=num_micro_batches,
                    gpu_type=gpu_type,
                    gpus=gpus,
                )
                if model.fits(plan):
                    yield plan
                num_micro_batches *= 2


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]
