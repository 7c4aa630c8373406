"""The script that hands a plan over, run with a kubectl that keeps objects and patches them as an API server does."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from executor.export import FORMATS, ExportedJob, ExportedPlan, PlanFiles, export, export_plan
from executor.export.job import job_of
from models.plan import Plan
from models.planning import plan as planned
from models.policies import POLICIES
from models.workload import Job, Snapshot
from stowplan.errors import InputError
from tests.executor.export.kubernetes.controllers import GIVEN
from tests.executor.kubernetes.test_handover import ALL, HOST, allocation, cluster, plan, queued, waiting
from tests.growth import work
from tests.models.cluster_state.kubernetes_documents import listed, pod
from tests.models.test_around_calendar import example
from tests.paths import ROOT

PODS = [pod(f"gated-{k}", "gated", schedulingGates=[{"name": "stowplan/placement"}]) for k in range(2)]
WORKLOADS = [queued("starts"), queued("waits")]
PLAN = plan(
    allocation("starts", ("n1", ALL)),
    allocation("gated", ("n2", ALL), ("n0", ALL)),
    unplaced=(waiting("waits"),),
)
# An API server in the place of kubectl: objects in a file, patches carried out by what tests carry them out with.
_KUBECTL = f"""\
#!{sys.executable}
import json, pathlib, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.executor.kubernetes.patching import patched
verb, resource, name, *options = sys.argv[1:]
given = dict(zip(options, options[1:], strict=False))
assert verb == "patch" and "--type=json" in options and given["--patch-file"] == "/dev/stdin"
operations = json.load(open(given["--patch-file"]))
assert "--subresource=status" in options or resource == "pods"
store = pathlib.Path(__file__).with_name("objects.json")
objects = json.loads(store.read_text())
key = f"{{resource.split('.')[0]}} {{given['--namespace']}} {{name}}"
objects[key] = patched(objects[key], operations)
store.write_text(json.dumps(objects))
"""


def exported(found: Plan = PLAN, **options: str) -> PlanFiles:
    ids = [item.job_id for item in found.allocations] + [item.job_id for item in found.unplaced]
    jobs = tuple(Job(id=job_id) for job_id in ids)
    whole = ExportedPlan(plan=found, snapshot=Snapshot(cluster=cluster(), jobs=jobs), taken_at_s=0.0)
    documents = {"workloads": listed(*WORKLOADS), "pods": listed(*PODS)}
    return export_plan(whole, "kubernetes", {**documents, **{k.replace("_", "-"): v for k, v in options.items()}})


def applied(
    files: Mapping[str, str], folder: Path, objects: Sequence[dict[str, Any]]
) -> tuple[subprocess.CompletedProcess[str], dict[str, dict[str, Any]]]:
    """Run the script: what came of it, and objects by name."""
    (folder / "kubectl").write_text(_KUBECTL)
    (folder / "kubectl").chmod(0o755)
    (folder / "apply.sh").write_text(files["apply.sh"])
    store = folder / "objects.json"
    stored = {
        f"{one['kind'].lower()}s {one['metadata']['namespace']} {one['metadata']['name']}": one for one in objects
    }
    store.write_text(json.dumps(stored))
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", folder / "apply.sh"], env=path, capture_output=True, text=True, timeout=120, check=False
    )
    after = json.loads(store.read_text())
    return done, {key.rpartition(" ")[2]: one for key, one in after.items()}


def test_the_script_says_the_plan(tmp_path: Path) -> None:
    done, after = applied(exported().files, tmp_path, [*WORKLOADS, *PODS])
    assert done.returncode == 0, done.stderr
    starts, waits = after["jobset-starts-1a2b3"], after["jobset-waits-1a2b3"]
    assert starts["status"]["admissionChecks"][1] == {
        "name": "stowplan",
        "state": "Ready",
        "message": "stowplan: 8 x h100 on n1",
        "lastTransitionTime": "1970-01-01T00:00:00Z",
        "podSetUpdates": [{"name": "workers", "nodeSelector": {HOST: "n1"}}],
    }
    assert waits["status"]["admissionChecks"][1]["state"] == "Retry"
    assert waits["status"]["admissionChecks"][1]["requeueAfterSeconds"] == 300
    assert [after[f"gated-{k}"]["spec"]["nodeSelector"] for k in range(2)] == [{HOST: "n2"}, {HOST: "n0"}]
    assert [after[f"gated-{k}"]["spec"]["schedulingGates"] for k in range(2)] == [[], []]


def test_what_has_changed_is_left_and_counted(tmp_path: Path) -> None:
    anew = {**WORKLOADS[0], "metadata": {**WORKLOADS[0]["metadata"], "uid": "another"}}
    done, after = applied(exported().files, tmp_path, [anew, WORKLOADS[1], *PODS])
    assert (done.returncode, after["jobset-starts-1a2b3"]) == (1, anew)
    assert "1 patches failed; read the state again, and plan" in done.stderr
    assert after["gated-1"]["spec"]["schedulingGates"] == []


def test_programs_read_the_same() -> None:
    files = exported().files
    items = json.loads(files["patches.json"])
    assert [(item["job_id"], item["name"], item["subresource"]) for item in items] == [
        ("team/starts", "jobset-starts-1a2b3", "status"),
        ("team/gated", "gated-0", None),
        ("team/gated", "gated-1", None),
        ("team/waits", "jobset-waits-1a2b3", "status"),
    ]
    said = re.findall(r"<<'PATCH'\n(.*)\nPATCH\n", files["apply.sh"])
    assert [json.loads(text) for text in said] == [item["patch"] for item in items]


def test_nothing_in_names_is_run(tmp_path: Path) -> None:
    name = "x\nPATCH\ntouch ran; $(touch ran) `touch ran` 'touch ran'"
    before = queued("odd")
    before["metadata"]["ownerReferences"][0]["name"] = name
    found = plan(replace(allocation("odd", ("n1", ALL)), job_id=f"team/{name}"))
    files = exported(found, workloads=listed(before)).files
    done, after = applied(files, tmp_path, [before])
    assert done.returncode == 0, done.stderr
    assert after["jobset-odd-1a2b3"]["status"]["admissionChecks"][1]["state"] == "Ready"
    assert not list(tmp_path.glob("**/ran"))
    assert not Path("ran").exists()


def test_options_are_read() -> None:
    files = exported(plan(unplaced=[waiting("waits", "out_of_memory")]), retry="0").files
    assert '"path": "/status/admissionChecks/1/requeueAfterSeconds", "value": 0' in files["apply.sh"]
    assert (
        "Rejected" in exported(plan(unplaced=[waiting("waits", "out_of_memory")]), hopeless="reject").files["apply.sh"]
    )
    assert '"example.com/host": "n1"' in exported(node_key="example.com/host").files["apply.sh"]
    assert [note.code for note in exported(check="other-check").notes] == ["no_admission_check"] * 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workloads": "", "pods": ""}, "give workloads=, pods= or both"),
        ({"check": "Not A Name"}, "/check: is 'Not A Name'; must be of letters"),
        ({"retry": "-1"}, "/retry: is '-1'; must be whole seconds"),
        ({"node_key": "a b"}, "/node-key: is 'a b'; must be a name"),
        ({"hopeless": "delete"}, "/hopeless: is 'delete'; must be one of retry, reject"),
        ({"queue": "x"}, "workloads, pods, check, retry"),
        ({"workloads": "x"}, "workloads"),
        ({"workloads": listed(pod("x", "x"))}, "workloads: /items/0/kind: is of kind 'Pod'; must be Workload"),
    ],
)
def test_what_is_wrong_is_said(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        exported(PLAN, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize("policy", POLICIES)
def test_plans_of_every_policy_go_out(policy: str) -> None:
    request = example(policy)
    found = planned(request).plan
    assert found is not None
    jobs = [item.job_id for item in found.allocations] + [item.placement.job_id for item in found.ahead]
    assert jobs
    formats = [name for name in FORMATS if name in ("jobset", "job", "leaderworkerset", "trainjob")]
    for job_id in jobs:
        job = job_of(found, job_id)
        for name in formats:
            files, refusal = _exported(job, name)
            known = "numbers the ranks of a host|is no name of a node of Kubernetes"
            known += "" if name == "jobset" else "|one template for all of its pods"
            assert re.search(known, refusal) if refusal else all(host in "".join(files.values()) for host in job.hosts)
    found = _in_team(found)
    workloads = [_workload_of(item.job_id, item.num_gpus) for item in found.allocations]
    workloads += [_workload_of(item.job_id, 8) for item in found.unplaced]
    ours = tuple(replace(job, id=f"team/{job.id}") for job in request.snapshot.jobs)
    whole = ExportedPlan(plan=found, snapshot=replace(request.snapshot, jobs=ours), taken_at_s=0.0)
    made = export_plan(whole, "kubernetes", {"workloads": listed(*workloads)})
    said = {item["job_id"]: item["meaning"].partition(":")[0] for item in json.loads(made.files["patches.json"])}
    noted = {re.findall("^job '(.*?)' ", note.detail)[0]: note.code for note in made.notes}
    for item in found.allocations:
        if item.change.value == "started":
            assert said.get(item.job_id) == "Ready" or noted[item.job_id] in ("hosts_in_pieces", "bad_node_name")
        else:
            assert said.get(item.job_id, "Retry") == "Retry"
    assert {item.job_id for item in found.unplaced if said.get(item.job_id) != "Retry"} == set()


def test_work_grows_with_the_plan() -> None:
    def of(num_jobs: int) -> int:
        names = [f"n{k}" for k in range(5 * num_jobs)]
        parts = [[(name, ALL) for name in names[5 * k : 5 * k + 5]] for k in range(num_jobs)]
        found = plan(*(allocation(f"x{k}", *five) for k, five in enumerate(parts)))
        snapshot = Snapshot(cluster=cluster(names), jobs=tuple(Job(id=item.job_id) for item in found.allocations))
        whole = ExportedPlan(plan=found, snapshot=snapshot, taken_at_s=0.0)
        text = listed(*(queued(f"x{k}", pods=5, levels=[HOST]) for k in range(num_jobs)))
        return work(lambda: export_plan(whole, "kubernetes", {"workloads": text}))

    assert of(60) < 2.2 * of(30)


def _exported(job: ExportedJob, name: str) -> tuple[Mapping[str, str], str]:
    """Files, or why there are none."""
    try:
        return export(job, [name], GIVEN), ""
    except InputError as error:
        return {}, str(error)


def _in_team(found: Plan) -> Plan:
    """The plan with ids of jobs as those of a cluster are: behind a namespace."""
    return replace(
        found,
        allocations=tuple(replace(item, job_id=f"team/{item.job_id}") for item in found.allocations),
        unplaced=tuple(replace(item, job_id=f"team/{item.job_id}") for item in found.unplaced),
        ahead=tuple(
            replace(item, placement=replace(item.placement, job_id=f"team/{item.placement.job_id}"))
            for item in found.ahead
        ),
    )


def _workload_of(job_id: str, num_gpus: int) -> dict[str, Any]:
    """A workload with a pod for each GPU, whose topology goes down to hosts."""
    owner = job_id.removeprefix("team/")
    made = queued(owner, levels=[HOST], podSets=[_pod_set(num_gpus)])
    made["metadata"]["ownerReferences"][0]["name"] = owner
    made["metadata"]["name"] = re.sub("[^a-z0-9]", "-", owner.lower())
    return made


def _pod_set(count: int) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    return {"name": "workers", "count": count, "template": {"spec": {"containers": [container]}}}
