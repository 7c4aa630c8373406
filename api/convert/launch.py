"""What a launcher needs of a 3D-parallel plan, as a document: ranks with coordinates, hostfile, stage bounds."""

from itertools import accumulate

from api.schemas.launch import LaunchDoc, RankDoc
from executor.rank_table import Rank, hostfile, ranks_of
from models.parallel_plan import ParallelPlan


def launch_document(plan: ParallelPlan) -> LaunchDoc:
    """Give ranks, hostfile and stage bounds of a plan, symmetric or not."""
    ranks = ranks_of(plan)
    return LaunchDoc(
        notation=plan.notation(),
        symmetric=plan.is_symmetric,
        world_size=plan.num_gpus,
        stage_bounds=tuple(accumulate((stage.num_layers for stage in plan.stages), initial=0)),
        stage_checkpointing=tuple(stage.recomputing for stage in plan.stages),
        ranks=tuple(_rank(rank, plan.context_parallel) for rank in ranks),
        hostfile=hostfile(ranks),
    )


def _rank(rank: Rank, cp: int) -> RankDoc:
    return RankDoc(
        rank=rank.rank,
        node=rank.node,
        gpu=rank.gpu,
        local_rank=rank.local_rank,
        pp=rank.pipe,
        dp=rank.data // cp,
        tp=rank.tensor,
        cp=rank.context,
        ep=rank.expert,
    )
