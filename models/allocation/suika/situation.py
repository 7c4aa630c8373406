"""What the performance model sees of a job and released GPUs, whatever they are called."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from models.allocation.suika.placing import renamed
from models.parallel_plan import Gpu, ParallelPlan
from models.performance.iteration.fabric import Fabric, Host


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Situation:
    """A plan and released GPUs, in the order in which the job takes them, under neutral names.

    Nodes are called `0000`, `0001`, ... in the order of their first GPU, those of the plan before the others, and units
    of the topology likewise; GPUs of a node are counted in the same order. neutral: real -> neutral GPU. Situations of
    equal `key` are the same under neutral names.
    """

    plan: ParallelPlan
    released: Sequence[Gpu]
    fabric: Fabric
    neutral: Mapping[Gpu, Gpu]
    key: Hashable

    @property
    def real(self) -> dict[Gpu, Gpu]:
        """Neutral -> real GPU."""
        return {name: place for place, name in self.neutral.items()}

    def neutral_plan(self) -> ParallelPlan:
        """The plan under neutral names."""
        return renamed(self.plan, self.neutral)

    def neutral_released(self) -> tuple[Gpu, ...]:
        """The released GPUs under neutral names."""
        return tuple(self.neutral[place] for place in self.released)

    def neutral_fabric(self) -> Fabric:
        """The nodes concerned under neutral names."""
        names = {node: name for (node, _), (name, _) in self.neutral.items()}
        units = _Units(self.fabric)
        hosts = {name: _renamed(self.fabric.host(node), units.neutral(node)) for node, name in names.items()}
        return replace(self.fabric, hosts=hosts)


class _Units:
    """Neutral names of units, in the order in which nodes are asked for."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._known: list[dict[tuple[str, ...], int]] = [{} for _ in fabric.fractions]

    def neutral(self, node: str) -> tuple[int, ...]:
        path = self._fabric.host(node).path
        return tuple(
            self._known[depth].setdefault(path[: depth + 1], len(self._known[depth])) for depth in range(len(path))
        )


def _renamed(host: Host, path: tuple[int, ...]) -> Host:
    return replace(host, path=tuple(f"{unit:04}" for unit in path))


def situation_of(fabric: Fabric, plan: ParallelPlan, released: Sequence[Gpu]) -> Situation:
    """Describe a plan and the released GPUs in the order in which the job takes them."""
    neutral: dict[Gpu, Gpu] = {}
    position: dict[str, int] = {}
    counts: list[int] = []
    for node, gpu in (*plan.gpus, *released):
        k = position.setdefault(node, len(position))
        if k == len(counts):
            counts.append(0)
        neutral[node, gpu] = f"{k:04}", counts[k]
        counts[k] += 1
    units = _Units(fabric)
    facts = []
    for node, k in position.items():
        host = fabric.host(node)
        bandwidths = host.intra_bytes_per_s, host.inter_bytes_per_s
        facts.append((counts[k], host.gpu_type, *bandwidths, host.num_gpus, units.neutral(node)))
    # The GPUs of the plan are counted in rank order, so that nodes and sizes of the groups say it all.
    stages = tuple(
        (
            stage.num_layers,
            tuple((position[r.node], len(r.gpus), r.local_batch) for r in stage.replicas),
        )
        for stage in plan.stages
    )
    return Situation(
        plan=plan,
        released=released,
        fabric=fabric,
        neutral=neutral,
        key=(tuple(facts), stages, plan.num_micro_batches, tuple(position[node] for node, _ in released)),
    )
