"""Two racks of two nodes, jobs in front of them, and plans of these."""

from collections.abc import Mapping

from models.allocation.gang.parameters import GangMethod, GangParameters
from models.plan import PlanRequest
from models.planning import plan
from models.what_if.difference import Planned
from models.workload import Job, NodeGpus, Snapshot
from tests.models.placement.scenes import gpu_type, node
from topology.cluster import Cluster, Node, Tier

#   rack r1: n1 n2     rack r2: n3 n4     4 GPUs each
NODES = tuple(node(f"n{k}", 4, path=("r1" if k < 3 else "r2",)) for k in range(1, 5))


def on(**gpus: tuple[int, ...]) -> tuple[NodeGpus, ...]:
    return tuple(NodeGpus(node=name, gpus=indices) for name, indices in gpus.items())


def snapshot(*jobs: Job, nodes: tuple[Node, ...] = NODES) -> Snapshot:
    cluster = Cluster(gpu_types=(gpu_type("a"),), nodes=nodes, tiers=(Tier(name="rack"),), minipod_tier="rack")
    return Snapshot(cluster=cluster, jobs=jobs)


def gang_request(*jobs: Job, nodes: tuple[Node, ...] = NODES, **parameters: object) -> PlanRequest:
    settings: Mapping[str, object] = {"method": GangMethod.ILP, **parameters}
    return PlanRequest(snapshot=snapshot(*jobs, nodes=nodes), parameters=GangParameters(**settings))  # type: ignore[arg-type]


def planned(request: PlanRequest) -> Planned:
    return Planned(request=request, outcome=plan(request))
