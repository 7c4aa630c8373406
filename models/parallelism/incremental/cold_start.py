"""A plan on GPUs that nobody uses yet: laid out evenly in every possible way, and improved from there.

The grid planner compares all partitions of a few operators into stages whose sizes are powers of two times an odd part;
this one all pipeline and tensor degrees on whole layers, and then Algorithm 1's expansions and foldings of the best of
them, as `shrink` does with what is left of a plan.
"""

from collections.abc import Mapping

import numpy as np

from models.parallel_plan import ParallelPlan
from models.parallelism.incremental.assembly import assemble
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.options import IncrementalOptions
from models.parallelism.incremental.search import Search
from models.parallelism.incremental.tables import CostTables
from models.performance.iteration.model import PerformanceModel

_DEFAULT = IncrementalOptions()


def lay_out(
    model: PerformanceModel, num_gpus: Mapping[str, int], options: IncrementalOptions = _DEFAULT
) -> ParallelPlan | None:
    """Best plan that is found on GPUs 0, 1, ... of some nodes.

    None when it does not use all of them, does not give the job's own micro-batch to every replica of the widest stage,
    or none is legal.

    Raises
    ------
    InputError
        When a node or its GPU type is not one of the model's.
    """
    landscape = Landscape.of(model.fabric, list(num_gpus))
    available = np.array(list(num_gpus.values()), dtype=np.int64)
    powers = [2**k for k in range(int(available.max()).bit_length())]
    tables = CostTables.of(model, landscape.kinds, [tp for tp in powers if model.profile.admits_tensor_degree(tp)])
    best = Search(tables, landscape, options).relayout(available)
    if best is None or sum(best.skeleton.sizes) < available.sum():
        return None
    free = [(node, gpu) for node, count in num_gpus.items() for gpu in range(count)]
    num_micro_batches = int(tables.num_micro_batches[best.batch])
    plan = assemble(tables, landscape, best.skeleton, best.layers, num_micro_batches, [], free)
    widest = max(plan.stages, key=lambda stage: stage.dp)
    own = model.profile.micro_batch
    if own is not None and any(replica.local_batch != own for replica in widest.replicas):
        return None
    return plan
