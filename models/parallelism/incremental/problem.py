"""A running job and GPUs that come or go, as the arrays that `search` works on."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from models.parallel_plan import Gpu, ParallelPlan
from models.parallelism.incremental.assembly import Held, assemble, held_by
from models.parallelism.incremental.landscape import Landscape
from models.parallelism.incremental.options import IncrementalOptions, MicroBatches
from models.parallelism.incremental.selection import Balanced
from models.parallelism.incremental.tables import CostTables
from models.performance.iteration.model import PerformanceModel
from stowplan.arrays import IntArray
from stowplan.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Problem:
    """A plan, less the GPUs that it loses, on the nodes in question.

    Attributes
    ----------
    held
        Node -> GPUs that every stage of the plan has left.
    gpus
        (S, V) how many these are.
    degree
        (S,) index of the tensor degree.
    """

    plan: ParallelPlan
    landscape: Landscape
    tables: CostTables
    held: Held
    gpus: IntArray
    degree: IntArray

    @classmethod
    def of(
        cls,
        model: PerformanceModel,
        plan: ParallelPlan,
        options: IncrementalOptions,
        added: Sequence[Gpu] = (),
        lost: Collection[Gpu] = (),
    ) -> "Problem":
        """Problem of a job that gets or loses GPUs.

        Raises
        ------
        InputError
            When layers or batch of the plan are not those of the model, or the model does not know a node or its type.
        """
        _check(model, plan)
        held = held_by(plan, frozenset(lost))
        nodes = list(dict.fromkeys([*(node for of_stage in held for node in of_stage), *(node for node, _ in added)]))
        index = {node: v for v, node in enumerate(nodes)}
        gpus = np.zeros((plan.pp, len(nodes)), dtype=np.int64)
        for s, of_stage in enumerate(held):
            for node, own in of_stage.items():
                gpus[s, index[node]] = len(own)
        landscape = Landscape.of(model.fabric, nodes)
        largest = gpus.sum(axis=0)
        np.add.at(largest, [index[node] for node, _ in added], 1)
        powers = [2**k for k in range(int(largest.max(initial=0)).bit_length())]
        degrees = sorted({*filter(model.profile.admits_tensor_degree, powers), *(stage.tp for stage in plan.stages)})
        kept = plan.num_micro_batches if options.micro_batches is MicroBatches.KEPT else None
        return cls(
            plan=plan,
            landscape=landscape,
            tables=CostTables.of(model, landscape.kinds, degrees, kept),
            held=held,
            gpus=gpus,
            degree=np.array([degrees.index(stage.tp) for stage in plan.stages]),
        )

    def build(self, best: Balanced, free: Sequence[Gpu]) -> ParallelPlan:
        """The plan on GPUs; it may take `free` ones, in their order."""
        num_micro_batches = int(self.tables.num_micro_batches[best.batch])
        return assemble(self.tables, self.landscape, best.skeleton, best.layers, num_micro_batches, self.held, free)


def _check(model: PerformanceModel, plan: ParallelPlan) -> None:
    profile = model.profile
    if (plan.num_layers, plan.global_batch) != (profile.num_layers, profile.global_batch):
        raise InputError(
            f"the plan has {plan.num_layers} layers and a global batch of {plan.global_batch}; {profile.name!r} has "
            f"{profile.num_layers} and {profile.global_batch}"
        )
