"""What a launcher needs of a 3D-parallel plan: ranks with coordinates, hostfile, stage bounds."""

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from api.schemas.launch import LaunchDoc, RankDoc
from models.parallel_plan import ParallelPlan


def launch_document(plan: ParallelPlan) -> LaunchDoc:
    """Give ranks, hostfile and stage bounds of a plan, symmetric or not."""
    slots = Counter(node for node, _ in plan.gpus)
    return LaunchDoc(
        notation=plan.notation(),
        symmetric=plan.is_symmetric,
        world_size=plan.num_gpus,
        stage_bounds=tuple(accumulate((stage.num_layers for stage in plan.stages), initial=0)),
        ranks=tuple(_ranks(plan)),
        hostfile="".join(f"{node} slots={count}\n" for node, count in slots.items()),
    )


def _ranks(plan: ParallelPlan) -> Iterator[RankDoc]:
    used: dict[str, list[int]] = {}
    for node, gpu in sorted(plan.gpus):
        used.setdefault(node, []).append(gpu)
    local = {(node, gpu): k for node, gpus in used.items() for k, gpu in enumerate(gpus)}
    rank = 0
    for i, stage in enumerate(plan.stages):
        for j, replica in enumerate(stage.replicas):
            for k, gpu in enumerate(replica.gpus):
                yield RankDoc(
                    rank=rank, node=replica.node, gpu=gpu, local_rank=local[replica.node, gpu], pp=i, dp=j, tp=k
                )
                rank += 1
