"""What the controller of an AdmissionCheck of Kueue would answer for a plan: patches of the status of workloads.

A workload that has quota waits until each of its checks is Ready; Retry takes its quota away for a while (and ends it
where it runs), Rejected deactivates it. Beside Ready an answer may add labels to the node selector of a pod set, which
names one host; where Kueue has assigned a topology down to hosts, its webhook lets the assignment be changed as long as
there is quota (`validateAdmissionUpdate` of `pkg/webhooks/workload_webhook.go` at v0.19.2), and pods are let go to its
domains in the order of their ranks (`pkg/controller/tas/topology_ungater.go`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from executor.kubernetes.patches import Operation, Patch, adding, same_object, testing
from executor.kubernetes.placing import HostPods, UnsayableError, hosts_of_pods, runs_of_hosts
from executor.kubernetes.topology import topology_assignment
from executor.kubernetes.workloads import AnsweredWorkload, Check, PodSet
from models.parallel_plan import Gpu

# An answer that may still be given; Ready is given, after the other two Kueue asks again.
_OPEN = "Pending"
# Longest message of a check.
_MAX_MESSAGE = 32_768


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """`check`: name of the AdmissionCheck. `node_key`: label that names a host. `at_s`: when it is answered, in seconds
    since 1970. `retry_s`: how long a workload waits before it is let in again, where the plan has no time for it."""

    check: str
    node_key: str
    at_s: float
    retry_s: int


def ready(
    workload: AnsweredWorkload, job_id: str, gpus: Sequence[Gpu], message: str, options: AnswerOptions
) -> Patch | None:
    """Let it in, on these hosts; None where that was answered already.

    Raises
    ------
    UnsayableError
        When it has no such check or no quota yet, or its pods cannot be told of the hosts.
    """
    check = _check(workload, options)
    if check.state == "Ready":
        return None
    _refuse_closed(workload, check)
    placed = [one for one in _placed(workload, gpus) if not one[0].has_gate]
    updates, assigned = [], []
    for pod_set, runs in placed:
        if pod_set.levels is not None:
            assigned.append(_assigned(workload, pod_set, runs, options))
        else:
            updates.append({"name": pod_set.name, "nodeSelector": _selector(pod_set, runs, options)})
    answer = {"state": "Ready", "message": message, **({"podSetUpdates": updates} if updates else {})}
    assigning = tuple(operation for operations in assigned for operation in operations)
    return _patch(workload, job_id, check, answer, options, assigning)


def anywhere(workload: AnsweredWorkload, job_id: str, message: str, options: AnswerOptions) -> Patch:
    """Let it in, wherever Kubernetes puts its pods.

    Raises
    ------
    UnsayableError
        When it has no such check, no quota yet, or was answered.
    """
    check = _check(workload, options)
    _refuse_closed(workload, check)
    return _patch(workload, job_id, check, {"state": "Ready", "message": message}, options)


def retry(
    workload: AnsweredWorkload, job_id: str, message: str, options: AnswerOptions, after_s: float | None = None
) -> Patch:
    """Take its quota away, and let it ask again later; where it runs, it is ended.

    Raises
    ------
    UnsayableError
        When it has no such check, or no quota.
    """
    check = _check(workload, options)
    if not workload.has_quota:
        raise UnsayableError("no_quota", "has no quota; it waits as it is")
    after_s = options.retry_s if after_s is None else after_s
    answer = {"state": "Retry", "message": message, "requeueAfterSeconds": max(0, round(after_s))}
    return _patch(workload, job_id, check, answer, options)


def rejected(workload: AnsweredWorkload, job_id: str, message: str, options: AnswerOptions) -> Patch:
    """Deactivate it, for whoever made it to change.

    Raises
    ------
    UnsayableError
        When it has no such check.
    """
    return _patch(workload, job_id, _check(workload, options), {"state": "Rejected", "message": message}, options)


def _check(workload: AnsweredWorkload, options: AnswerOptions) -> Check:
    if workload.check is None:
        raise UnsayableError(
            "no_admission_check",
            f"has no check {options.check!r} in status.admissionChecks; name it in spec.admissionChecks of its "
            "ClusterQueue, or another one with check=NAME",
        )
    return workload.check


def _refuse_closed(workload: AnsweredWorkload, check: Check) -> None:
    if not workload.has_quota:
        raise UnsayableError("no_quota", "has no quota yet; it is answered once its queue has reserved some")
    if check.state != _OPEN:
        raise UnsayableError("check_not_open", f"was answered {check.state}; Kueue sets it to {_OPEN} once it asks")


def _placed(workload: AnsweredWorkload, gpus: Sequence[Gpu]) -> list[tuple[PodSet, tuple[HostPods, ...]]]:
    """Pod sets with GPUs, and where their pods go."""
    sets = [pod_set for pod_set in workload.pod_sets if pod_set.gpus_per_pod and pod_set.num_pods]
    hosts = hosts_of_pods(gpus, [one.gpus_per_pod for one in sets for _ in range(one.num_pods)])
    placed, start = [], 0
    for pod_set in sets:
        placed.append((pod_set, runs_of_hosts(hosts[start : start + pod_set.num_pods])))
        start += pod_set.num_pods
    return placed


def _selector(pod_set: PodSet, runs: Sequence[HostPods], options: AnswerOptions) -> Mapping[str, str]:
    if len(runs) > 1:
        raise UnsayableError(
            "several_hosts",
            f"pod set {pod_set.name!r} goes to {len({run.host for run in runs})} hosts, and podSetUpdates name one; "
            "use a flavor with a topology down to hosts, a pod set for every host, or pods behind our gate",
        )
    (run,) = runs
    own = pod_set.node_selector.get(options.node_key, run.host)
    if own != run.host:
        raise UnsayableError(
            "selects_another_host",
            f"pod set {pod_set.name!r} selects {options.node_key}={own}, which no answer may change; the plan has it "
            f"on {run.host}",
        )
    return {options.node_key: run.host}


def _assigned(
    workload: AnsweredWorkload, pod_set: PodSet, runs: Sequence[HostPods], options: AnswerOptions
) -> tuple[Operation, ...]:
    if pod_set.levels != (options.node_key,):
        raise UnsayableError(
            "topology_without_hosts",
            f"the topology of pod set {pod_set.name!r} ends at {', '.join(pod_set.levels or ())}; hosts can be named "
            f"where its lowest level is {options.node_key}",
        )
    if len({run.host for run in runs}) < len(runs):
        raise UnsayableError(
            "hosts_in_pieces", f"the plan has ranks of a host of pod set {pod_set.name!r} in pieces; domains occur once"
        )
    assert pod_set.assignment is not None  # noqa: S101 - it has levels
    where = ("status", "admission", "podSetAssignments", pod_set.assignment)
    return (
        testing(pod_set.name, *where, "name"),
        adding(topology_assignment(runs, options.node_key, workload.version), *where, "topologyAssignment"),
    )


def _patch(
    workload: AnsweredWorkload,
    job_id: str,
    check: Check,
    answer: Mapping[str, Any],
    options: AnswerOptions,
    before: tuple[Operation, ...] = (),
) -> Patch:
    where = ("status", "admissionChecks", check.index)
    moment = datetime.fromtimestamp(options.at_s, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    said = {**answer, "message": answer["message"][:_MAX_MESSAGE], "lastTransitionTime": moment}
    # By the name of the check alone when somebody reorders them, and not over what somebody has said since.
    guards = (testing(options.check, *where, "name"), testing(check.state, *where, "state"))
    return Patch(
        resource=f"workloads.{workload.version}.kueue.x-k8s.io",
        namespace=workload.object.namespace,
        name=workload.object.name,
        subresource="status",
        operations=(
            *same_object(workload.object),
            *guards,
            *before,
            *(adding(value, *where, name) for name, value in said.items()),
        ),
        job_id=job_id,
        meaning=f"{answer['state']}: {answer['message']}",
    )
