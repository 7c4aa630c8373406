"""Plans said to Kueue and to pods behind our gate: patches carried out, against what Kueue's definitions allow."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from executor.kubernetes.answers import AnswerOptions
from executor.kubernetes.handover import Handover, HandoverOptions, Hopeless, hand_over, read_objects
from executor.kubernetes.patches import Patch
from models.cluster_state.base import SourceDocument
from models.plan import AheadPlacement, Change, JobAllocation, Plan, UnplacedJob
from models.workload import NodeGpus
from stowplan.errors import FileFormatError
from tests.executor.export.test_planned import DEGREES, PLACEMENT
from tests.executor.kubernetes.patching import OtherValueError, patched
from tests.executor.kubernetes.published import TOPOLOGIES, CheckState
from tests.growth import work
from tests.models.cluster_state.kubernetes_documents import listed, pod, workload
from topology.cluster import Cluster, GpuType, Node

HOST = "kubernetes.io/hostname"
OPTIONS = HandoverOptions(answers=AnswerOptions(check="stowplan", node_key=HOST, at_s=0.0, retry_s=60))
ALL = tuple(range(8))


def cluster(names: Sequence[str] = ("n0", "n1", "n2")) -> Cluster:
    kind = GpuType(
        name="h100",
        memory_bytes=80 * 10**9,
        peak_flops_per_s=1e15,
        intra_node_bandwidth_bytes_per_s=4e11,
        inter_node_bandwidth_bytes_per_s=5e10,
    )
    nodes = tuple(Node(id=name, gpu_type="h100", num_gpus=8) for name in names)
    return Cluster(gpu_types=(kind,), nodes=nodes)


def queued(
    owner: str,
    *,
    pods: int = 1,
    state: str = "Pending",
    version: str = "v1beta2",
    levels: Sequence[str] = (),
    **spec: Any,
) -> dict[str, Any]:
    """A workload that has quota, and our check behind another one."""
    made = workload(owner, pods=pods, conditions=["QuotaReserved"], **spec)
    made["apiVersion"] = f"kueue.x-k8s.io/{version}"
    made["metadata"]["uid"] = f"uid-of-{owner}"
    common = {"message": "", "lastTransitionTime": "2026-11-20T11:30:00Z"}
    made["status"]["admissionChecks"] = [
        {"name": "other", "state": "Ready", **common},
        {"name": "stowplan", "state": state, **common},
    ]
    assignments: list[dict[str, Any]] = [{"name": one["name"]} for one in made["spec"]["podSets"]]
    for one in assignments if levels else ():
        one["topologyAssignment"] = {"levels": list(levels), "domains": []}
    made["status"]["admission"] = {"clusterQueue": "q", "podSetAssignments": assignments}
    return made


def allocation(job: str, *parts: tuple[str, Sequence[int]], change: Change = Change.STARTED) -> JobAllocation:
    gpus = tuple(NodeGpus(node=node, gpus=tuple(indices)) for node, indices in parts)
    count = sum(len(part.gpus) for part in gpus)
    return JobAllocation(job_id=f"team/{job}", gpu_type="h100", num_gpus=count, gpus=gpus, change=change)


def waiting(job: str, reason: str = "capacity", *, preempted: bool = False) -> UnplacedJob:
    return UnplacedJob(
        job_id=f"team/{job}", reason=reason, detail="no 16 GPUs", counts={}, remedy="more", preempted=preempted
    )


def said(
    plan: Plan,
    workloads: Sequence[dict[str, Any]] = (),
    pods: Sequence[dict[str, Any]] = (),
    options: HandoverOptions = OPTIONS,
) -> Handover:
    documents = [
        [SourceDocument(name=f"{name}.json", text=listed(*items))] if items else []
        for name, items in (("workloads", workloads), ("pods", pods))
    ]
    objects = read_objects(documents[0], documents[1], options.answers.check)
    return hand_over(plan, cluster(), objects, options)


def plan(*allocations: JobAllocation, unplaced: Sequence[UnplacedJob] = (), **more: Any) -> Plan:
    return Plan(allocations=allocations, unplaced=tuple(unplaced), score=(), **more)


def answered(before: dict[str, Any], patch: Patch) -> tuple[CheckState, dict[str, Any]]:
    """The check and the workload afterwards; nothing but the status has changed, and no other check."""
    assert (patch.subresource, patch.namespace, patch.name) == ("status", "team", before["metadata"]["name"])
    version = before["apiVersion"].rpartition("/")[2]
    assert patch.resource == f"workloads.{version}.kueue.x-k8s.io"
    after = patched(before, patch.operations)
    assert {**after, "status": None} == {**before, "status": None}
    other, ours = after["status"]["admissionChecks"]
    assert other == before["status"]["admissionChecks"][0]
    return CheckState.model_validate(ours), after


def codes(found: Handover) -> list[str]:
    return [note.code for note in found.notes]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_pod_set_on_one_host_is_told_by_its_selector(version: str) -> None:
    before = queued("one", version=version)
    found = said(plan(allocation("one", ("n2", ALL))), [before])
    (patch,) = found.patches
    check, after = answered(before, patch)
    assert (check.state, check.message) == ("Ready", "stowplan: 8 x h100 on n2")
    assert [(one.name, one.node_selector) for one in check.pod_set_updates] == [("workers", {HOST: "n2"})]
    assert after["status"]["admission"] == before["status"]["admission"]
    assert not found.notes


def test_pods_smaller_than_nodes_share_one() -> None:
    before = queued("two", pods=2, podSets=[_pod_set("workers", 2, 4)])
    (patch,) = said(plan(allocation("two", ("n1", ALL))), [before]).patches
    assert answered(before, patch)[0].pod_set_updates[0].node_selector == {HOST: "n1"}


def test_every_pod_set_has_its_host_and_launchers_without_gpus_have_none() -> None:
    sets = [_pod_set("launcher", 1, 0), _pod_set("first", 1, 8), _pod_set("second", 1, 4)]
    before = queued("sets", podSets=sets)
    (patch,) = said(plan(allocation("sets", ("n1", ALL), ("n0", (4, 5, 6, 7)))), [before]).patches
    updates = answered(before, patch)[0].pod_set_updates
    assert [(one.name, one.node_selector[HOST]) for one in updates] == [("first", "n1"), ("second", "n0")]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_topology_puts_pods_in_rank_order(version: str) -> None:
    before = queued("large", pods=5, version=version, levels=[HOST], podSets=[_pod_set("workers", 5, 4)])
    placed = allocation("large", ("n2", ALL), ("n0", ALL), ("n1", (0, 1, 2, 3)))
    (patch,) = said(plan(placed), [before]).patches
    check, after = answered(before, patch)
    assert (check.state, check.pod_set_updates) == ("Ready", [])
    (assignment,) = after["status"]["admission"]["podSetAssignments"]
    topology = TOPOLOGIES[version].model_validate(assignment["topologyAssignment"])
    assert topology.levels == [HOST]
    assert topology.expanded() == ["n2", "n2", "n0", "n0", "n1"]


def test_what_kueue_cannot_be_told_is_noted_and_the_rest_is_said() -> None:
    both = allocation("x", ("n0", ALL), ("n1", ALL))
    one = allocation("x", ("n0", ALL))
    pieces = allocation("x", ("n0", (0, 1)), ("n1", (0, 1)), ("n0", (2, 3)))
    elsewhere = {"nodeSelector": {HOST: "n2"}}
    for before, placed, code in [
        (queued("x", pods=2), both, "several_hosts"),
        (queued("x", pods=2, levels=["block", "rack"]), both, "topology_without_hosts"),
        (queued("x", podSets=[_pod_set("w", 3, 2)], levels=[HOST]), pieces, "hosts_in_pieces"),
        (queued("x", podSets=[_pod_set("w", 1, 8, **elsewhere)]), one, "selects_another_host"),
        (queued("x", pods=2), one, "other_size"),
        (queued("x", podSets=[_pod_set("w", 1, 16)]), both, "pod_on_several_hosts"),
        (queued("x", state="Retry"), one, "check_not_open"),
        (_without_check(queued("x")), one, "no_admission_check"),
        (workload("y", pods=1), one, "not_in_documents"),
        (_without_quota(queued("x")), one, "no_quota"),
        (queued("x"), allocation("x", ("Bad_Node", ALL)), "bad_node_name"),
        (queued("x"), allocation("x", ("n0", range(16))), "too_many_gpus"),
        (queued("x"), allocation("x", ("n9", ALL)), "too_many_gpus"),
    ]:
        other = queued("other")
        found = said(plan(placed, allocation("other", ("n2", ALL))), [before, other])
        assert codes(found) == [code]
        assert found.notes[0].pointer == "/allocations/0"
        assert found.notes[0].detail.startswith("job 'team/x' ")
        assert [patch.job_id for patch in found.patches] == ["team/other"]


def test_what_was_answered_or_stays_is_left_alone() -> None:
    found = said(
        plan(allocation("in", ("n0", ALL)), allocation("runs", ("n1", ALL), change=Change.KEPT)),
        [queued("in", state="Ready"), queued("runs", state="Ready")],
    )
    assert found == Handover(patches=(), notes=())


def test_what_ends_comes_first_and_what_waits_last() -> None:
    workloads = [queued(name, state="Ready") for name in ("evicted", "moved")]
    workloads += [queued("waits"), queued("starts"), queued("later"), _without_quota(queued("queued"))]
    ahead = AheadPlacement(
        placement=replace(PLACEMENT, job_id="team/later"),
        parallelism=DEGREES,
        gpu_type="h100",
        start_s=7200.4,
        end_s=None,
        nodes=(),
        expected_evictions=0.0,
        idle_s=0.0,
        other_starts=(),
    )
    found = said(
        plan(
            allocation("starts", ("n0", ALL)),
            allocation("moved", ("n1", ALL), change=Change.MOVED),
            unplaced=(
                waiting("waits"),
                waiting("later", "planned_ahead"),
                waiting("queued"),
                waiting("evicted", preempted=True),
            ),
            ahead=(ahead,),
        ),
        workloads,
    )
    by_name = {f"team/{one['metadata']['ownerReferences'][0]['name']}": one for one in workloads}
    checks = [answered(by_name[patch.job_id], patch)[0] for patch in found.patches]
    assert [
        (patch.job_id, check.state, check.requeue_after_seconds)
        for patch, check in zip(found.patches, checks, strict=True)
    ] == [
        ("team/moved", "Retry", 0),
        ("team/evicted", "Retry", 60),
        ("team/starts", "Ready", None),
        ("team/waits", "Retry", 60),
        ("team/later", "Retry", 7200),
    ]
    assert checks[3].message == "stowplan: capacity: no 16 GPUs; more"
    assert not found.notes


def test_the_size_of_what_runs_cannot_be_changed() -> None:
    runs = queued("x", pods=2, state="Ready")
    for change, parts in ((Change.RESCALED, (("n0", ALL), ("n1", ALL))), (Change.MOVED, (("n0", ALL),))):
        found = said(plan(allocation("x", *parts, change=change)), [runs])
        assert (found.patches, codes(found)) == ((), ["other_size"])


def test_what_never_fits_is_rejected_where_that_is_asked_for() -> None:
    before = queued("x")
    for hopeless, reason, state in [
        (Hopeless.RETRY, "out_of_memory", "Retry"),
        (Hopeless.REJECT, "out_of_memory", "Rejected"),
        (Hopeless.REJECT, "capacity", "Retry"),
    ]:
        options = HandoverOptions(answers=OPTIONS.answers, hopeless=hopeless)
        (patch,) = said(plan(unplaced=[waiting("x", reason)]), [before], options=options).patches
        assert answered(before, patch)[0].state == state


def test_an_answer_is_for_the_workload_that_was_read() -> None:
    before = queued("x")
    (patch,) = said(plan(allocation("x", ("n0", ALL))), [before]).patches
    anew = {**before, "metadata": {**before["metadata"], "uid": "another"}}
    said_since = patched(before, [{"op": "add", "path": "/status/admissionChecks/1/state", "value": "Retry"}])
    reordered = patched(
        before,
        [
            {"op": "remove", "path": "/status/admissionChecks/0"},
            {"op": "add", "path": "/status/admissionChecks/1", "value": {"name": "new", "state": "Pending"}},
        ],
    )
    for changed in (anew, said_since, reordered):
        with pytest.raises(OtherValueError):
            patched(changed, patch.operations)


@pytest.mark.parametrize("selector", [{}, {"pool": "gpu"}])
def test_gated_pods_go_to_their_hosts_in_rank_order(selector: Mapping[str, str]) -> None:
    gates = [{"name": "kueue.x-k8s.io/admission"}, {"name": "stowplan/placement"}]
    pods = [_gated(f"x-{k}", k, gates, **({"nodeSelector": selector} if selector else {})) for k in (10, 2)]
    found = said(plan(allocation("x", ("n1", ALL), ("n0", ALL))), pods=pods)
    after = {patch.name: patched(_named(pods, patch.name), patch.operations)["spec"] for patch in found.patches}
    assert {name: spec["nodeSelector"] for name, spec in after.items()} == {
        "x-2": {HOST: "n1", **selector},
        "x-10": {HOST: "n0", **selector},
    }
    assert all(spec["schedulingGates"] == gates[:1] for spec in after.values())
    assert {patch.subresource for patch in found.patches} == {None}


def test_pods_that_have_gone_keep_their_ranks() -> None:
    gone = _gated("x-0", 0, [], nodeSelector={HOST: "n1"})
    left = _gated("x-1", 1, [{"name": "stowplan/placement"}])
    (patch,) = said(plan(allocation("x", ("n1", ALL), ("n0", ALL))), pods=[left, gone]).patches
    assert (patch.name, patch.meaning) == ("x-1", "goes to n0")


def test_a_gated_pod_that_selects_another_host_is_noted() -> None:
    found = said(
        plan(allocation("x", ("n1", ALL))),
        pods=[_gated("x-0", 0, [{"name": "stowplan/placement"}], nodeSelector={HOST: "n2"})],
    )
    assert (found.patches, codes(found)) == ((), ["selects_another_host"])


def test_workloads_of_gated_pods_are_let_in_without_a_host() -> None:
    gated = {"schedulingGates": [{"name": "stowplan/placement"}]}
    before = queued("x", podSets=[_pod_set("workers", 2, 8, **gated)])
    (patch,) = said(plan(allocation("x", ("n1", ALL), ("n0", ALL))), [before]).patches
    check, _ = answered(before, patch)
    assert (check.state, check.pod_set_updates) == ("Ready", [])


def test_names_that_kubernetes_would_not_have_given_are_refused() -> None:
    before = queued("x")
    for key, value in (("name", "--all"), ("name", "x;rm"), ("namespace", "-n")):
        odd = {**before, "metadata": {**before["metadata"], key: value}}
        with pytest.raises(FileFormatError, match=rf"/items/0/metadata/{key}: is '{value}'; must be of letters"):
            said(plan(), [odd])


def test_work_grows_with_the_plan_alone() -> None:
    def of(num_jobs: int) -> int:
        names = [f"n{k}" for k in range(5 * num_jobs)]
        hosts = [[(name, ALL) for name in names[5 * k : 5 * k + 5]] for k in range(num_jobs)]
        made = plan(*(allocation(f"x{k}", *of) for k, of in enumerate(hosts)))
        workloads = [queued(f"x{k}", pods=5, levels=[HOST]) for k in range(num_jobs)]
        documents = [SourceDocument(name="w", text=listed(*workloads))]
        whole = cluster(names)

        def say() -> None:
            found = hand_over(made, whole, read_objects(documents, (), "stowplan"), OPTIONS)
            assert len(found.patches) == num_jobs

        return work(say)

    assert of(80) < 2.2 * of(40)


def _pod_set(name: str, count: int, gpus: int, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}
    return {"name": name, "count": count, "template": {"spec": {"containers": [container], **spec}}}


def _gated(name: str, index: int, gates: Sequence[dict[str, str]], **spec: Any) -> dict[str, Any]:
    made = pod(name, "x", schedulingGates=list(gates), **spec)
    made["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] = str(index)
    return made


def _named(pods: Sequence[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(one for one in pods if one["metadata"]["name"] == name)


def _without_check(made: dict[str, Any]) -> dict[str, Any]:
    made["status"]["admissionChecks"] = []
    return made


def _without_quota(made: dict[str, Any]) -> dict[str, Any]:
    made["status"]["conditions"] = []
    return made
