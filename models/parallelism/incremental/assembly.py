"""From what stages hold per node to a plan on GPUs: a stage keeps the GPUs that it has, in their order."""

from collections.abc import Iterable, Mapping, Sequence

from models.parallel_plan import Gpu, ParallelPlan, Replica, Stage
from models.parallelism.incremental.candidates import Skeleton
from models.parallelism.incremental.landscape import Kind, Landscape
from models.parallelism.incremental.tables import CostTables

Held = Sequence[Mapping[str, Sequence[int]]]


def held_by(plan: ParallelPlan, lost: frozenset[Gpu] = frozenset()) -> Held:
    """Node -> GPUs in rank order of every stage, but those that are lost."""
    held: list[dict[str, list[int]]] = []
    for stage in plan.stages:
        of_stage: dict[str, list[int]] = {}
        for replica in stage.replicas:
            left = [gpu for gpu in replica.gpus if (replica.node, gpu) not in lost]
            of_stage.setdefault(replica.node, []).extend(left)
        held.append({node: gpus for node, gpus in of_stage.items() if gpus})
    return held


def assemble(
    tables: CostTables,
    landscape: Landscape,
    skeleton: Skeleton,
    layers: Sequence[int],
    num_micro_batches: int,
    held: Held,
    free: Iterable[Gpu],
) -> ParallelPlan:
    """Build the plan. A stage keeps what its origin holds; what it gets beyond that are, in this order, GPUs that other
    stages no longer hold, and `free` ones."""
    micro_batch = tables.model.profile.global_batch // num_micro_batches
    stages = []
    for s, gpus in enumerate(_gpus_of_stages(landscape, skeleton, held, free)):
        tp = int(tables.degrees[skeleton.degree[s]])
        groups = [(node, tuple(of_node[k : k + tp])) for node, of_node in gpus for k in range(0, len(of_node), tp)]
        kinds = [landscape.kind(node) for node, _ in groups]
        batches = _local_batches(tables, kinds, int(skeleton.degree[s]), micro_batch)
        replicas = tuple(
            Replica(node=node, gpu_type=kind.gpu_type, gpus=group, local_batch=batch)
            for (node, group), kind, batch in zip(groups, kinds, batches, strict=True)
        )
        stages.append(Stage(num_layers=layers[s], replicas=replicas))
    return ParallelPlan(stages=tuple(stages), num_micro_batches=num_micro_batches)


def _gpus_of_stages(
    landscape: Landscape, skeleton: Skeleton, held: Held, free: Iterable[Gpu]
) -> list[list[tuple[str, list[int]]]]:
    """(node, GPUs) of every stage."""
    wanted = [[(landscape.nodes[v], int(row[v])) for v in row.nonzero()[0].tolist()] for row in skeleton.gpus]
    kept: list[list[list[int]]] = []
    pool: dict[str, list[int]] = {}
    given_up = {(k, node): list(gpus) for k, of_stage in enumerate(held) for node, gpus in of_stage.items()}
    for origin, of_stage in zip(skeleton.origin, wanted, strict=True):
        kept.append([])
        for node, count in of_stage:
            own = given_up.get((origin, node), []) if origin is not None else []
            kept[-1].append(own[:count])
            if origin is not None:
                given_up[origin, node] = own[count:]
    for (_, node), gpus in given_up.items():
        pool.setdefault(node, []).extend(gpus)
    for node, gpu in free:
        pool.setdefault(node, []).append(gpu)
    taken = {node: iter(gpus) for node, gpus in pool.items()}
    return [
        [
            (node, own + [next(taken[node]) for _ in range(count - len(own))])
            for (node, count), own in zip(of_stage, of_kept, strict=True)
        ]
        for of_stage, of_kept in zip(wanted, kept, strict=True)
    ]


def _local_batches(tables: CostTables, kinds: Sequence[Kind], degree: int, micro_batch: int) -> list[int]:
    """Samples of every replica: as `StageConfigs` has it, the first ones of a kind get more."""
    count = [kinds.count(kind) for kind in tables.kinds]
    if len(tables.kinds) == 1:
        largest = [-(-micro_batch // count[0])]
        filled_last = 0
    else:
        _, reached = tables.fill_order
        level = int((reached[degree] @ count >= micro_batch).argmax())
        largest = reached[degree, level].tolist()
        filled_last = int((reached[degree, level] - reached[degree, level - 1]).argmax()) if level else 0
    surplus = sum(n * b for n, b in zip(count, largest, strict=True)) - micro_batch
    batches = [largest[tables.kinds.index(kind)] for kind in kinds]
    of_last = [j for j, kind in enumerate(kinds) if kind == tables.kinds[filled_last]]
    for j in of_last[len(of_last) - surplus :]:
        batches[j] -= 1
    return batches
