"""From named GPUs to offers: of free nodes, or of virtual ones; every fault at its place."""

from dataclasses import replace

import pytest

from models.parallelism.wanted import NamedTypes, WantedGpus, free_offers, wanted_offers
from models.workload import NodeGpus
from stowplan.errors import Issue
from topology.cluster import Cluster, GpuType, Node, NodeState
from topology.gpu_catalogue import find_product, gpu_type_of

OWN = replace(gpu_type_of(find_product("h100"), "bf16"), name="own")
OTHER = replace(OWN, name="other")
CLUSTER = Cluster(
    gpu_types=(OWN, OTHER),
    nodes=(
        Node(id="a", gpu_type="own", num_gpus=4, gpus_in_use=(0,)),
        Node(id="b", gpu_type="own", num_gpus=4),
        Node(id="c", gpu_type="other", num_gpus=4, state=NodeState.DRAINED),
    ),
)
IN_CLUSTER = NamedTypes(own={kind.name: kind for kind in CLUSTER.gpu_types}, precision="bf16", is_cluster=True)
ANYWHERE = NamedTypes(own={"own": OWN}, precision="bf16", is_cluster=False)


def of_catalogue(name: str) -> GpuType:
    found = ANYWHERE.find(name)
    return found[0]


def asked(
    *wanted: WantedGpus, cluster: Cluster | None = None, num_gpus: int | None = None
) -> tuple[list[tuple[str, int, tuple[int, ...]]], list[Issue]]:
    """Type, node size and counts of the offers, and what is wrong."""
    issues: list[Issue] = []
    offers = wanted_offers(wanted, IN_CLUSTER if cluster else ANYWHERE, cluster, num_gpus, issues)
    return [(offer.gpu_type.name, offer.gpus_per_node, offer.counts) for offer in offers], issues


@pytest.mark.parametrize(
    ("wanted", "counts"),
    [
        (WantedGpus(gpu_type="own", counts=(8, 2)), (2, 8)),
        (WantedGpus(gpu_type="own", min_gpus=3, max_gpus=20), (3, 4, 8, 16, 20)),
        (WantedGpus(gpu_type="own", min_gpus=8, max_gpus=8), (8,)),
    ],
)
def test_counts_are_named_or_powers_of_two_between_bounds(wanted: WantedGpus, counts: tuple[int, ...]) -> None:
    assert asked(wanted) == ([("own", 8, counts)], [])


def test_virtual_nodes_are_as_large_as_usual_or_as_said() -> None:
    product = find_product("a100-80gb")
    assert asked(WantedGpus(gpu_type="a100-80gb", counts=(2,)))[0] == [
        (of_catalogue("a100-80gb").name, product.gpus_per_node, (2,))
    ]
    assert asked(WantedGpus(gpu_type="own", counts=(2,), gpus_per_node=2))[0] == [("own", 2, (2,))]


def test_of_a_cluster_free_gpus_are_offered() -> None:
    issues: list[Issue] = []
    (offer,) = wanted_offers([WantedGpus(gpu_type="own", counts=(4,))], IN_CLUSTER, CLUSTER, None, issues)
    assert not issues
    assert offer.nodes == (NodeGpus(node="a", gpus=(1, 2, 3)), NodeGpus(node="b", gpus=(0, 1, 2, 3)))
    assert [(one.gpu_type.name, one.counts) for one in free_offers(CLUSTER, 4, issues)] == [("own", (4,))]
    assert not issues


def test_degrees_say_how_many_gpus_they_need() -> None:
    assert asked(WantedGpus(gpu_type="own"), num_gpus=6) == ([("own", 8, (6,))], [])
    (issue,) = asked(WantedGpus(gpu_type="own", counts=(4, 8)), num_gpus=6)[1]
    assert (issue.code, issue.pointer, issue.detail) == (
        "wrong_count",
        "/0/counts",
        "the degrees need 6 GPUs, not [4, 8]",
    )


def test_all_faults_are_found_at_once() -> None:
    offers, issues = asked(
        WantedGpus(gpu_type="owm", counts=(1,)),
        WantedGpus(gpu_type="own"),
        WantedGpus(gpu_type="own", counts=(1,)),
        WantedGpus(gpu_type="other", counts=(1,)),
        cluster=CLUSTER,
    )
    assert [(issue.code, issue.pointer) for issue in issues] == [
        ("unknown_gpu_type", "/0/gpu_type"),
        ("missing_field", "/1/counts"),
        ("listed_twice", "/2/gpu_type"),
        ("no_free_gpus", "/3"),
    ]
    assert "did you mean 'own'? known: other, own" in issues[0].detail
    assert offers == [("own", 4, (1,))]


def test_a_cluster_without_a_free_gpu_offers_nothing() -> None:
    issues: list[Issue] = []
    nobody = replace(CLUSTER, nodes=CLUSTER.nodes[2:])
    assert free_offers(nobody, None, issues) == ()
    assert [(issue.code, issue.pointer) for issue in issues] == [("no_free_gpus", "/nodes")]
