"""Cost of validation grows with what is sent, not with its square."""

import pytest

from models.allocation.arena.parameters import ArenaParameters
from models.allocation.gang.parameters import GangParameters
from models.allocation.sia.parameters import SiaParameters
from models.allocation.suika.parameters import SuikaParameters
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.policy import Parameters
from models.transformer import Transformer
from models.validation import request_issues
from models.workload import Job, NodeGpus, Snapshot
from tests.growth import work
from topology.cluster import Cluster, GpuType, Node

_TYPE = GpuType(
    name="a100",
    memory_bytes=80 * 2**30,
    peak_flops_per_s=312e12,
    intra_node_bandwidth_bytes_per_s=300e9,
    inter_node_bandwidth_bytes_per_s=25e9,
)
_MODEL = Transformer(num_layers=4, hidden_size=256, vocabulary_size=1000, sequence_length=128, global_batch=8)


def _snapshot(num_jobs: int, *, with_model: bool) -> Snapshot:
    """Half of the jobs run on a node each, the other nodes are free."""
    nodes = tuple(Node(id=f"n{k}", gpu_type="a100", num_gpus=8) for k in range(num_jobs))
    table = ThroughputTable(
        entries=tuple(TableEntry(gpu_type="a100", num_gpus=1 << e, value=1.0 * (1 << e)) for e in range(4))
    )
    jobs = tuple(
        Job(
            id=f"j{k}",
            performance=None if with_model else table,
            transformer=_MODEL if with_model else None,
            current=(NodeGpus(node=f"n{k}", gpus=(0, 1)),) if k % 2 else None,
        )
        for k in range(num_jobs)
    )
    return Snapshot(cluster=Cluster(gpu_types=(_TYPE,), nodes=nodes), jobs=jobs)


@pytest.mark.parametrize(
    ("parameters", "with_model"),
    [(SiaParameters(), False), (ArenaParameters(), False), (SuikaParameters(), True), (GangParameters(), False)],
    ids=["sia", "arena", "suika", "gang"],
)
def test_validation_grows_with_the_size(parameters: Parameters, with_model: bool) -> None:
    def cost(num_jobs: int) -> int:
        snapshot = _snapshot(num_jobs, with_model=with_model)
        return work(lambda: request_issues(snapshot, parameters))

    # Once before: what is loaded for it counts, too.
    cost(1)
    assert cost(200) <= 2.3 * cost(100)
