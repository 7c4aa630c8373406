"""Manifests against the published models, and the pods that controllers make of them against the plan."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from kubeflow_trainer_api.models.io_k8s_api_batch_v1_job import IoK8sApiBatchV1Job
from kubeflow_trainer_api.models.io_k8s_api_core_v1_service import IoK8sApiCoreV1Service
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet
from kubeflow_trainer_api.models.trainer_v1alpha1_train_job import TrainerV1alpha1TrainJob
from pydantic import ValidationError

from executor.export import ExportedJob
from stowplan.errors import InputError
from tests.executor.export.jobs import job, plan_of
from tests.executor.export.kubernetes.controllers import (
    GIVEN,
    WRITERS,
    hosts_by_rank,
    objects,
    placed_by_script,
    pods_of,
)
from tests.executor.kubernetes.published import LeaderWorkerSetSpec, known
from tests.growth import work

every_writer = pytest.mark.parametrize("writer", WRITERS)
EVERYTHING = {
    "namespace": "llm",
    "gpu-resource": "amd.com/gpu",
    "resources": "rdma/hca_shared_devices_a=1,cpu=96,memory=1.5Ti",
    "tolerations": "amd.com/gpu:NoSchedule,team=llm,spot",
    "node-key": "example.com/host",
    "volumes": "pvc:data:/data:ro,hostpath:/mnt/scratch:/scratch,emptydir:10Gi:/work,emptydir::/cache",
    "shm": "64Gi",
    "host-network": "yes",
    "service-account": "trainer",
    "priority-class": "high",
    "queue": "team-queue",
    "labels": "team=llm,example.com/stage=1",
    "annotations": "note=a b: c",
    "ttl": "3600",
}
# What the API of a TrainJob has no place for.
NOT_OF_TRAINJOB = ("host-network", "priority-class", "ttl")


def written(writer: str, exported: ExportedJob, **options: str) -> Mapping[str, str]:
    write, own = WRITERS[writer]
    return write(exported, {**GIVEN, **own, **{name.replace("_", "-"): text for name, text in options.items()}})


def is_published(files: Mapping[str, str]) -> bool:
    """Whether the models know every field, and find nothing missing."""
    models = {
        "JobSet": JobsetV1alpha2JobSet,
        "Job": IoK8sApiBatchV1Job,
        "Service": IoK8sApiCoreV1Service,
        "TrainJob": TrainerV1alpha1TrainJob,
    }
    for kind, document in objects(files).items():
        if kind == "LeaderWorkerSet":
            assert set(document) == {"apiVersion", "kind", "metadata", "spec"}
            assert document["apiVersion"] == "leaderworkerset.x-k8s.io/v1"
            LeaderWorkerSetSpec.model_validate(document["spec"])
        elif not known(models[kind], document):
            return False
    return True


@every_writer
@pytest.mark.parametrize("options", [{}, EVERYTHING], ids=["least", "everything"])
def test_every_field_is_published(writer: str, options: Mapping[str, str]) -> None:
    given = {name: text for name, text in options.items() if writer != "trainjob" or name not in NOT_OF_TRAINJOB}
    assert is_published(written(writer, job(), **given))


@pytest.mark.parametrize(
    ("writer", "text", "wrong"),
    [
        ("leaderworkerset", "replicas: 1", "replica: 1"),
        ("leaderworkerset", "subdomainPolicy: Shared", "subdomainPolicy: shared"),
        ("leaderworkerset", "schedulingGates:", "schedulinggates:"),
        ("jobset", "backoffLimit:", "backofLimit:"),
        ("trainjob", "numNodes:", "numNode:"),
        ("job", "mountPath:", "mountpath:"),
    ],
)
def test_a_field_that_is_not_published_is_seen(writer: str, text: str, wrong: str) -> None:
    files = written(writer, job())
    (name,) = (name for name in files if name.endswith(".yaml"))
    changed = files[name].replace(text, wrong)
    assert changed != files[name]
    try:
        seen = not is_published({name: changed})
    except ValidationError:
        seen = True
    assert seen


@every_writer
def test_ranks_are_on_the_hosts_of_the_plan(writer: str, tmp_path: Path) -> None:
    plan = plan_of(pp=4, dp=2, tp=2, gpus_per_node=4, layers=(2, 2, 2, 2))
    moved = {"a0": "z-9", "a1": "a", "a2": "m.example.com", "a3": "b"}
    exported = ExportedJob(name="7B run!", gpus=tuple((moved[host], gpu) for host, gpu in plan.gpus))
    files = written(writer, exported)
    assert hosts_by_rank(files, tmp_path) == ["z-9", "a", "m.example.com", "b"]
    pods = pods_of(files)
    addresses = {pod.address for pod in pods if pod.variables["PET_NODE_RANK"] == "0"}
    for pod in pods:
        assert pod.container["resources"] == {"limits": {"nvidia.com/gpu": "4"}}
        assert {pod.variables["PET_MASTER_ADDR"]} == addresses
        assert (pod.variables["PET_NNODES"], pod.variables["PET_NPROC_PER_NODE"]) == ("4", "4")
        assert (pod.container["command"], pod.container["args"]) == (["torchrun"], ["train.py", "--lr", "1e-4"])


@every_writer
def test_torchrun_reads_the_variables(writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = pytest.importorskip("torch.distributed.run", reason="needs torch")
    for pod in pods_of(written(writer, job())):
        for name, value in pod.variables.items():
            monkeypatch.setenv(name, value)
        config, _, arguments = run.config_from_args(run.get_args_parser().parse_args(pod.container["args"]))
        assert (config.min_nodes, config.max_nodes, config.nproc_per_node) == (2, 2, 4)
        assert config.rdzv_backend == "static"
        assert config.rdzv_configs["rank"] == int(pod.variables["PET_NODE_RANK"])
        assert config.rdzv_endpoint == f"{pod.variables['PET_MASTER_ADDR']}:{pod.variables['PET_MASTER_PORT']}"
        assert arguments[-2:] == ["--lr", "1e-4"]


@every_writer
def test_one_host_needs_no_gate(writer: str, tmp_path: Path) -> None:
    files = written(writer, job(plan_of(pp=1, gpus_per_node=8, layers=(8,))))
    assert "place.sh" not in files
    assert hosts_by_rank(files, tmp_path) == ["a0"]


def test_hosts_with_other_numbers_of_gpus(tmp_path: Path) -> None:
    exported = ExportedJob(name="x", gpus=(*(("a", gpu) for gpu in range(8)), ("b", 3)))
    files = written("jobset", exported)
    assert hosts_by_rank(files, tmp_path) == ["a", "b"]
    limits = [pod.container["resources"]["limits"]["nvidia.com/gpu"] for pod in pods_of(files)]
    assert limits == ["8", "1"]
    for writer in WRITERS.keys() - {"jobset"}:
        with pytest.raises(
            InputError, match="one template for all of its pods, and the plan has 8 GPUs on a and 1 GPU"
        ):
            written(writer, exported)


@every_writer
def test_what_the_plan_has_and_kubernetes_cannot_is_refused(writer: str) -> None:
    for gpus, message in [
        ((("a", 0), ("b", 0), ("a", 1), ("b", 1)), "host a has ranks 0 and 2"),
        ((("node_1", 0),), "'node_1' is no name of a node"),
        ((("Node", 0),), "'Node' is no name of a node"),
        ((("n" * 64, 0),), "is no name of a node"),
    ]:
        with pytest.raises(InputError) as caught:
            written(writer, ExportedJob(name="x", gpus=gpus))
        assert message in str(caught.value)


@every_writer
@pytest.mark.parametrize("name", ["x", "-", "7B", "Job with $(reboot); `x`", "x" * 200, "team/large"])
def test_names_are_labels_however_jobs_are_called(writer: str, name: str) -> None:
    files = written(writer, ExportedJob(name=name, gpus=tuple((f"a{k}", 0) for k in range(101))))
    assert len(pods_of(files)) == 101
    assert "reboot" not in "".join(files.values()).replace("job-with-reboot", "")


def test_what_options_say_is_in_the_pods() -> None:
    for writer in WRITERS:
        given = {name: text for name, text in EVERYTHING.items() if writer != "trainjob" or name not in NOT_OF_TRAINJOB}
        files = written(writer, ExportedJob(name="x", gpus=tuple(("a0", gpu) for gpu in range(8))), **given)
        document = next(document for kind, document in objects(files).items() if kind != "Service")
        (pod,) = pods_of(files)
        labels = {"team": "llm", "example.com/stage": "1", "app.kubernetes.io/managed-by": "stowplan"}
        assert labels.items() <= pod.labels.items()
        assert document["metadata"]["labels"] == {**labels, "kueue.x-k8s.io/queue-name": "team-queue"}
        assert (document["metadata"]["namespace"], document["metadata"]["annotations"]) == ("llm", {"note": "a b: c"})
        assert pod.spec["nodeSelector"] == {"example.com/host": "a0"}
        assert pod.spec["serviceAccountName"] == "trainer"
        assert pod.spec["tolerations"] == [
            {"key": "amd.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
            {"key": "team", "operator": "Equal", "value": "llm"},
            {"key": "spot", "operator": "Exists"},
        ]
        sources = {one["name"]: {key: one[key] for key in one if key != "name"} for one in pod.spec["volumes"]}
        mounted = {
            mount["mountPath"]: (sources[mount["name"]], mount.get("readOnly"))
            for mount in pod.container["volumeMounts"]
        }
        assert mounted.pop("/dev" + "/shm") == ({"emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}, None)
        assert mounted == {
            "/data": ({"persistentVolumeClaim": {"claimName": "data"}}, True),
            "/scratch": ({"hostPath": {"path": "/mnt/scratch", "type": "Directory"}}, None),
            "/work": ({"emptyDir": {"sizeLimit": "10Gi"}}, None),
            "/cache": ({"emptyDir": {}}, None),
        }
        limits = {"amd.com/gpu": "8", "rdma/hca_shared_devices_a": "1", "cpu": "96", "memory": "1.5Ti"}
        assert pod.container["resources"]["limits"] == limits
        if writer != "trainjob":
            assert pod.spec["priorityClassName"] == "high"
            assert (pod.spec["hostNetwork"], pod.spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        if writer in ("jobset", "job"):
            assert document["spec"]["ttlSecondsAfterFinished"] == 3600


def test_words_of_the_command_stay_what_they_are() -> None:
    for writer in WRITERS:
        (pod, *_) = pods_of(written(writer, job(), command="train.py '$(HOME)' \"a 'b'\" $$x"))
        # Kubernetes makes one dollar of two, and replaces nothing behind them.
        assert pod.container["args"] == ["train.py", "$$(HOME)", "a 'b'", "$$$$x"]


def test_kueue_takes_ten_pod_sets() -> None:
    def of(num_hosts: int) -> ExportedJob:
        return ExportedJob(name="x", gpus=tuple((f"a{k}", 0) for k in range(num_hosts)))

    assert len(pods_of(written("jobset", of(10), queue="q"))) == 10
    with pytest.raises(InputError, match="11 hosts, and Kueue takes 10 replicated jobs of a JobSet: give pin=gate"):
        written("jobset", of(11), queue="q")
    assert len(pods_of(written("jobset, gated", of(11), queue="q"))) == 11


def test_objects_that_are_too_large_are_refused() -> None:
    large = ExportedJob(name="x", gpus=tuple((f"a{k}", 0) for k in range(2500)))
    with pytest.raises(InputError, match=r"the JobSet has \d+ bytes, and Kubernetes stores 1500000 of an object"):
        written("jobset", large)
    assert len(pods_of(written("jobset, gated", large))) == 2500


def test_pods_that_have_gone_are_left_alone(tmp_path: Path) -> None:
    files = written("job", job())
    assert placed_by_script(files, pods_of(files), tmp_path, gates="") == {}
    assert placed_by_script(files, pods_of(files), tmp_path, gates="example.com/hold") == {}
    both = placed_by_script(files, pods_of(files), tmp_path, gates="example.com/hold stowplan/placement")
    assert len(both) == 2


@every_writer
def test_work_grows_with_the_hosts(writer: str) -> None:
    def of(num_hosts: int) -> int:
        exported = ExportedJob(name="x", gpus=tuple((f"a{k}", g) for k in range(num_hosts) for g in range(8)))
        return work(lambda: written(writer, exported))

    assert of(60) < 2.2 * of(30)
