"""Kubernetes' nodes, pods, workloads and topologies become a cluster and jobs."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from models.allocation.gang.parameters import GangParameters
from models.cluster_state.base import ClusterState
from models.cluster_state.kubernetes.nodes import product_of
from models.plan import PlanRequest
from models.planning import plan
from models.workload import NodeGpus
from stowplan.errors import InputError
from tests.growth import work
from tests.models.cluster_state.kubernetes_documents import AT, listed, node, pod, read, workload
from topology.cluster import NodeState

# Labels of nodes as their clouds write them, one of each: GKE's A3 Mega ("Schedule with topology-aware scheduling"),
# EKS's p5 (AWS NFD), OKE's BM.GPU ("RDMA locality labels"), CoreWeave's CKS, Topograph 0.3 and from 1.0 on.
CLOUDS: Mapping[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "gke": (
        {
            "cloud.google.com/gce-topology-block": "a1b2",
            "cloud.google.com/gce-topology-subblock": "c3d4",
            "cloud.google.com/gce-topology-host": "e5f6",
        },
        ("gce-topology-block", "gce-topology-subblock"),
    ),
    "eks": (
        {
            "topology.k8s.aws/network-node-layer-1": "nn-c79422f4e61deb9ca",
            "topology.k8s.aws/network-node-layer-2": "nn-6ff5053c3a4d86db7",
            "topology.k8s.aws/network-node-layer-3": "nn-dcbcca51aebf4c95b",
        },
        ("network-node-layer-1", "network-node-layer-2", "network-node-layer-3"),
    ),
    "oci": (
        {
            "oci.oraclecloud.com/rdma.hpc_island_id": "2zpeqzr6loa",
            "oci.oraclecloud.com/rdma.network_block_id": "6vhvbgkmhza",
            "oci.oraclecloud.com/rdma.local_block_id": "5tjxbt5s6ua",
        },
        ("rdma.hpc_island_id", "rdma.network_block_id", "rdma.local_block_id"),
    ),
    "coreweave": (
        {
            "backend.coreweave.cloud/flavor": "infiniband",
            "backend.coreweave.cloud/fabric": "fabric-1",
            "backend.coreweave.cloud/superpod": "3",
            "backend.coreweave.cloud/leafgroup": "17",
        },
        ("fabric", "superpod", "leafgroup"),
    ),
    "topograph": (
        {
            "network.topology.nvidia.com/datacenter": "s3",
            "network.topology.nvidia.com/spine": "s2",
            "network.topology.nvidia.com/block": "s1",
            "network.topology.nvidia.com/accelerator": "nvl1",
        },
        ("datacenter", "spine", "block", "accelerator"),
    ),
    "topograph-tiers": (
        {
            "network.topology.nvidia.com/tier-0": "leaf-a",
            "network.topology.nvidia.com/tier-1": "spine-a",
            "network.topology.nvidia.com/accelerator": "nvl-1",
        },
        ("tier-1", "tier-0", "accelerator"),
    ),
}
LEAF = "backend.coreweave.cloud/leafgroup"


def of(state: ClusterState, job: str) -> tuple[NodeGpus, ...] | None:
    return next(item.job.current for item in state.jobs if item.job.id == job)


@pytest.mark.parametrize("cloud", CLOUDS)
def test_labels_of_clouds_are_found(cloud: str) -> None:
    labels, tiers = CLOUDS[cloud]
    state = read(nodes=listed(node("a", labels), node("b", labels)))
    assert tuple(tier.name for tier in state.cluster.tiers) == tiers
    assert len(state.cluster.nodes[0].path) == len(tiers)
    assert read({"topology-labels": "none"}, nodes=listed(node("a", labels))).cluster.tiers == ()
    if cloud in ("gke", "eks", "oci", "coreweave", "topograph"):
        assert read({"topology-labels": cloud}, nodes=listed(node("a", labels))).cluster.tiers == state.cluster.tiers


def test_nodes_say_what_they_are() -> None:
    unready = [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped"}]
    state = read(
        nodes=listed(
            node("up", {}),
            node("cordoned", {}, spec={"unschedulable": True}),
            node("tainted", {}, spec={"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}),
            node("gone", {}, conditions=unready),
            node("sick", {}, gpus=7, capacity=8),
            node("cpu", {}, gpus=0),
            node("sliced", {}, gpus=0, allocatable={"nvidia.com/mig-1g.10gb": "56"}),
            node("shared", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-SHARED"}),
        )
    )
    found = {one.id: (one.state, one.state_reason, one.num_gpus, one.gpu_type) for one in state.cluster.nodes}
    assert found == {
        "up": (NodeState.UP, None, 8, "h100"),
        "cordoned": (NodeState.DRAINED, "cordoned", 8, "h100"),
        "tainted": (NodeState.DRAINED, "taint team=a:NoSchedule", 8, "h100"),
        "gone": (NodeState.DOWN, "not ready: NodeStatusUnknown: Kubelet stopped", 8, "h100"),
        "sick": (NodeState.UP, None, 7, "h100"),
    }
    assert {note.code for note in state.notes} == {"gpus_not_allocatable", "no_gpus", "gpu_slices", "shared_gpus"}
    tolerant = read(
        {"tolerated": "team"}, nodes=listed(node("n", {}, spec={"taints": [{"key": "team", "effect": "NoExecute"}]}))
    )
    assert tolerant.cluster.nodes[0].state is NodeState.UP


@pytest.mark.parametrize(
    ("label", "memory", "product"),
    [
        ("NVIDIA-H100-80GB-HBM3", "81559", "h100"),
        ("NVIDIA-A100-SXM4-80GB", "81920", "a100-80gb"),
        ("NVIDIA-A100-SXM4-40GB", "40960", "a100-40gb"),
        ("NVIDIA-H200", "143771", "h200"),
        ("NVIDIA-GB200", "189471", "gb200"),
        ("Tesla-V100-SXM2-32GB", "32768", "v100"),
        # Neither a card for PCIe is the module, nor is another product guessed.
        ("NVIDIA-H100-PCIe", "81559", "NVIDIA-H100-PCIe"),
        ("NVIDIA-A100-80GB-PCIe", "81920", "NVIDIA-A100-80GB-PCIe"),
    ],
)
def test_products_of_gpu_feature_discovery(label: str, memory: str, product: str) -> None:
    assert product_of({"nvidia.com/gpu.product": label, "nvidia.com/gpu.memory": memory}) == product


def test_pods_become_jobs() -> None:
    state = read(
        nodes=listed(node("n1", {}), node("n2", {})),
        pods=listed(
            pod("big-0", "big", node="n1", activeDeadlineSeconds=7200),
            pod("big-1", "big", node="n2", gpus=4, activeDeadlineSeconds=7200),
            pod("small-0", "small", node="n2", gpus=2),
            pod("next-0", "next", priority=900),
            pod("next-1", "next", priority=900),
            pod("gated-0", "gated", schedulingGates=[{"name": "example.com/hold"}]),
            pod("ours-0", "ours", schedulingGates=[{"name": "stowplan/placement"}]),
            pod("web-0", "web", gpus=0),
        ),
    )
    assert of(state, "team/big") == (NodeGpus(node="n1", gpus=tuple(range(8))), NodeGpus(node="n2", gpus=(0, 1, 2, 3)))
    assert of(state, "team/small") == (NodeGpus(node="n2", gpus=(4, 5)),)
    jobs = {item.job.id: item for item in state.jobs}
    assert (jobs["team/big"].job.running_s, jobs["team/big"].job.remaining_s) == (3600, 3600)
    assert (jobs["team/next"].job.min_gpus, jobs["team/next"].gpus_per_node) == (16, 8)
    assert (jobs["team/next"].job.priority, jobs["team/big"].job.priority) == (1, 2)
    assert jobs["team/next"].job.age_s == 5400
    assert jobs["team/gated"].held == "scheduling gate example.com/hold"
    assert {job.id for job in state.snapshot().jobs} == {"team/big", "team/small", "team/next", "team/ours"}


def test_workloads_of_kueue_wait_for_their_queue() -> None:
    gated = [{"name": "kueue.x-k8s.io/admission"}]
    state = read(
        nodes=listed(node("n1", {}), node("n2", {})),
        pods=listed(pod("in-0", "in", node="n1"), pod("grouped-0", "grouped", schedulingGates=gated)),
        workloads=listed(
            workload("in", pods=1, conditions=("QuotaReserved", "Admitted")),
            workload("waits", pods=2, maximumExecutionTimeSeconds=3600),
            workload("grouped", pods=1),
            workload("off", pods=1, active=False),
            workload("done", pods=1, conditions=("Admitted", "Finished")),
        ),
    )
    jobs = {item.job.id: item for item in state.jobs}
    assert set(jobs) == {"team/in", "team/waits", "team/grouped", "team/off"}
    waits = jobs["team/waits"].job
    assert (waits.min_gpus, waits.queue, waits.remaining_s, waits.priority) == (16, "team-queue", 3600, 1)
    assert jobs["team/off"].held == "deactivated (spec.active)"
    assert of(state, "team/in") is not None


def test_topologies_of_kueue_and_kai() -> None:
    levels = [{"nodeLabel": "cloud.google.com/gce-topology-block"}, {"nodeLabel": "kubernetes.io/hostname"}]
    for version in ("kueue.x-k8s.io/v1beta1", "kai.scheduler/v1alpha1"):
        topology = {"apiVersion": version, "kind": "Topology", "metadata": {"name": "t"}, "spec": {"levels": levels}}
        state = read(nodes=listed(node("a", CLOUDS["gke"][0])), topology=json.dumps(topology))
        assert [tier.name for tier in state.cluster.tiers] == ["gce-topology-block"]


def test_hypernodes_of_volcano() -> None:
    def hyper(name: str, tier: int, kind: str, selector: dict[str, object]) -> dict[str, object]:
        members = [{"type": kind, "selector": selector}]
        meta, spec = {"name": name}, {"tier": tier, "members": members}
        return {"apiVersion": "topology.volcano.sh/v1alpha1", "kind": "HyperNode", "metadata": meta, "spec": spec}

    state = read(
        nodes=listed(node("a-0", {}), node("a-1", {}), node("b-0", {"rack": "b"})),
        topology=listed(
            hyper("s0", 1, "Node", {"regexMatch": {"pattern": "a-[0-9]"}}),
            hyper("s1", 1, "Node", {"labelMatch": {"matchLabels": {"rack": "b"}}}),
            hyper("top", 2, "HyperNode", {"regexMatch": {"pattern": "s[01]"}}),
        ),
    )
    assert [one.path for one in state.cluster.nodes] == [("top", "s0"), ("top", "s0"), ("top", "s1")]
    assert state.cluster.minipod_tier == "tier-1"


def test_a_plan_is_made_of_it() -> None:
    nodes = listed(*(node(f"n{k}", {LEAF: str(k // 2)}) for k in range(4)))
    state = read(nodes=nodes, pods=listed(pod("r-0", "r", node="n0"), *(pod(f"w-{k}", "w") for k in range(2))))
    assert datetime.fromtimestamp(state.taken_at_s, UTC) == datetime.fromisoformat(AT)
    outcome = plan(PlanRequest(snapshot=state.snapshot(), parameters=GangParameters()))
    assert outcome.plan is not None
    waiting = next(one for one in outcome.plan.allocations if one.job_id == "team/w")
    assert {part.node for part in waiting.gpus} == {"n2", "n3"}


def test_reading_grows_with_the_cluster() -> None:
    def documents(size: int) -> dict[str, str]:
        names = [f"n{k}" for k in range(size)]
        return {
            "nodes": listed(*(node(name, {LEAF: str(k // 16)}) for k, name in enumerate(names))),
            "pods": listed(*(pod(f"p-{k}", f"job-{k // 4}", node=name) for k, name in enumerate(names[: size // 2]))),
            "workloads": listed(*(workload(f"w-{k}", pods=2) for k in range(size))),
        }

    small, large = documents(100), documents(200)
    assert work(lambda: read(None, **large)) < 2.3 * work(lambda: read(None, **small))


NODE, BOTH = node("a", {LEAF: "1"}), listed(node("a", {}), node("b", {}))
TOPOLOGY = {"kind": "Topology", "apiVersion": "kueue.x-k8s.io/v1beta1", "metadata": {"name": "t"}, "spec": {}}


@pytest.mark.parametrize(
    ("documents", "settings", "message"),
    [
        ({"nodes": "{"}, {}, "nodes.json:1: no JSON"),
        ({"nodes": "[]"}, {}, "nodes.json: /: must be an object"),
        ({"nodes": listed(pod("p", "j"))}, {}, "/items/0/kind: is of kind 'Pod'; must be Node: give what `kubectl get"),
        ({"nodes": listed(NODE | {"apiVersion": "v2"})}, {}, "/items/0/apiVersion: is 'v2'; of Node are read v1"),
        ({"nodes": listed(NODE, NODE)}, {}, "/items/1/metadata/name: node 'a' stands there twice"),
        ({"nodes": listed(node("a", {}, gpus=0))}, {}, "none of the 1 nodes has GPUs that can be planned"),
        ({"nodes": listed(NODE, node("b", {}))}, {}, "1 of 2 nodes with GPUs have no label '" + LEAF),
        (
            {"nodes": listed(node("a", {"nvidia.com/gpu.product": "NVIDIA-X1"}))},
            {},
            "/items/0/metadata/labels: names the GPU 'NVIDIA-X1', which the catalogue does not know",
        ),
        (
            {"nodes": listed(NODE)},
            {"topology-labels": "gke"},
            "no node has a label of it: cloud.google.com/gce-topology-",
        ),
        ({"nodes": listed(NODE)}, {"topology-labels": "rack"}, "topology is 'rack'; must be labels with commas"),
        (
            {"nodes": BOTH, "pods": listed(pod("p", "j", node="c"))},
            {},
            "/items/0/spec/nodeName: runs on node 'c', which",
        ),
        (
            {"nodes": BOTH, "pods": listed(*(pod(f"p{k}", "j", node="a") for k in range(2)))},
            {},
            "/items/1/spec/nodeName: has 8 GPUs of node 'a', where 0 of 8 are left",
        ),
        ({"nodes": BOTH, "pods": listed(pod("p", "j"), pod("p", "j"))}, {}, "pod team/p stands there twice"),
        (
            {"nodes": BOTH, "pods": listed(pod("p", "j", gpus=-1))},
            {},
            "/items/0/spec/containers/0/resources/limits/nvidia.com~1gpu: is '-1'; must be a whole number",
        ),
        ({"nodes": BOTH, "workloads": listed(workload("w", pods=-2))}, {}, "/spec/podSets/0/count: is -2.0; must be"),
        (
            {"nodes": BOTH, "topology": json.dumps(TOPOLOGY)},
            {},
            "/spec/levels: must be a list of levels with a nodeLabel",
        ),
        (
            {"nodes": BOTH, "topology": json.dumps(TOPOLOGY)},
            {"topology-labels": "u"},
            "must name one of the topologies: t",
        ),
    ],
)
def test_what_is_wrong_is_named(documents: dict[str, str], settings: dict[str, str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(settings, **documents)
    assert message in str(caught.value)
