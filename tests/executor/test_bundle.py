import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from executor.bundle import launch_document, write_bundle
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.kubernetes import stage_groups
from executor.launch.slurm_options import GpuRequest, SlurmOptions
from executor.rank_table import AsymmetricPlanError
from executor.training_job import LAST, read_training_job
from executor.training_layout import StageLayout
from executor.training_options import Device, EngineName
from models.parallel_plan import symmetric_plan
from models.transformer import Transformer
from stowplan.errors import InputError
from tests.executor.test_rank_table import FIG_3
from tests.ports import free_port

MODEL = Transformer(num_layers=5, hidden_size=64, vocabulary_size=100, sequence_length=32, global_batch=8)
# Stages 0 and 1 on host b, 2 and 3 on host a: PP4 DP2 TP1 with an uneven partition.
PLAN = symmetric_plan(
    num_layers=(2, 1, 1, 1),
    pp=4,
    dp=2,
    tp=1,
    global_batch=8,
    num_micro_batches=2,
    gpu_type="h100",
    gpus=tuple((node, gpu) for node in ("b", "a") for gpu in range(4)),
)
DEPLOYMENT = Deployment(
    name="gpt-1",
    model=MODEL,
    plan=PLAN,
    launch=LaunchOptions(backend="ssh", addresses={"b": "trainer@10.0.0.2"}, python=sys.executable),
)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    write_bundle(DEPLOYMENT, tmp_path / "run", tmp_path / "checkpoints")
    return tmp_path / "run"


def test_ranks_hosts_and_configuration_agree(bundle: Path, tmp_path: Path) -> None:
    table = list(csv.DictReader((bundle / "ranks.csv").read_text().splitlines()))
    assert [(row["host"], row["gpu"], row["pipe"], row["data"]) for row in table[2:6]] == [
        ("b", "2", "1", "0"),
        ("b", "3", "1", "1"),
        ("a", "0", "2", "0"),
        ("a", "1", "2", "1"),
    ]
    assert (bundle / "hostfile").read_text() == "b slots=4\na slots=4\n"
    assert (bundle / "slurm_hosts").read_text() == "b\na\n"
    job = read_training_job(bundle / "job.json")
    layouts = tuple(StageLayout(num_layers=count, tp=1, batches=(2, 2)) for count in (2, 1, 1, 1))
    assert (job.stages, job.num_micro_batches) == (layouts, 2)
    assert job.checkpoint_folder == str(tmp_path / "checkpoints")
    # Started again by hand, too, a run goes on.
    assert job.resume == LAST
    config = json.loads((bundle / "ds_config.json").read_text())
    assert (config["train_batch_size"], config["gradient_accumulation_steps"]) == (8, 2)
    assert config["zero_optimization"] == {"stage": 1}


def test_the_native_engine_takes_a_plan_whose_stages_differ(tmp_path: Path) -> None:
    model = replace(MODEL, num_layers=6, global_batch=12, num_heads=2)
    training = TrainingOptions(engine=EngineName.NATIVE)
    write_bundle(
        Deployment(name="x", model=model, plan=FIG_3, training=training), tmp_path / "run", tmp_path / "checkpoints"
    )
    job = read_training_job(tmp_path / "run" / "job.json")
    assert job.engine is EngineName.NATIVE
    assert job.stages == (
        StageLayout(num_layers=2, tp=2, batches=(6, 6)),
        StageLayout(num_layers=4, tp=2, batches=(4, 4, 4)),
    )
    table = list(csv.DictReader((tmp_path / "run" / "ranks.csv").read_text().splitlines()))
    assert [job.coordinates(int(row["rank"])) for row in table] == [
        (int(row["pipe"]), int(row["data"]), int(row["tensor"])) for row in table
    ]
    assert not (tmp_path / "run" / "ds_config.json").exists()


def test_rank_0_is_met_on_its_host(bundle: Path) -> None:
    launch = json.loads((bundle / "launch.json").read_text())
    assert (launch["master_addr"], launch["master_port"]) == ("10.0.0.2", 29500)
    assert launch["command"][-1] == str(bundle / "job.json")
    local = replace(DEPLOYMENT, launch=replace(DEPLOYMENT.launch, backend="local"))
    assert launch_document(local, bundle)["master_addr"] == "127.0.0.1"


def test_slurm_keeps_the_order_of_the_hosts(bundle: Path) -> None:
    script = (bundle / "job.sbatch").read_text()
    assert "#SBATCH --nodelist=b,a\n" in script
    assert f"export SLURM_HOSTFILE={bundle}/slurm_hosts" in script
    assert "--distribution=arbitrary --ntasks=2" in script


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["--exclusive", "--gres=gpu:4", "--mem=0", "--signal=B:USR1@600"]),
        ({"gpu_request": GpuRequest.NONE, "checkpoint_s": 9.0}, ["--exclusive", "--mem=0", "--signal=B:USR1@9"]),
        (
            {"exclusive": False, "cpus_per_node": 8, "memory_bytes": 2**30 + 1, "gpu_type": "h100"},
            ["--gres=gpu:h100:4", "--cpus-per-task=8", "--mem=1025M", "--signal=B:USR1@600"],
        ),
        (
            {"gpu_request": GpuRequest.GPUS_PER_NODE, "gpu_type": "h100", "partition": "a", "constraint": "ib&x"},
            ["--exclusive", "--partition=a", "--constraint='ib&x'", "--gpus-per-node=h100:4", "--mem=0"],
        ),
        (
            {
                "account": "a",
                "qos": "q",
                "reservation": "r",
                "extra_lines": ("#SBATCH --nice", "#SBATCH --comment=a|b"),
            },
            ["--nice", "--comment=a|b", "--account=a", "--qos=q", "--reservation=r"],
        ),
    ],
)
def test_slurm_is_told_what_the_cluster_wants(tmp_path: Path, options: dict[str, Any], expected: list[str]) -> None:
    launch = replace(DEPLOYMENT.launch, slurm=SlurmOptions(**options))
    write_bundle(replace(DEPLOYMENT, launch=launch), tmp_path / "run", tmp_path / "checkpoints")
    lines = (tmp_path / "run" / "job.sbatch").read_text().splitlines()
    asked = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert [option for option in asked if option in expected] == expected
    assert ("export STOWPLAN_GPUS_GIVEN=1" in lines) == (launch.slurm.gpu_request is not GpuRequest.NONE)


def test_a_checkpoint_takes_at_most_half_of_the_time() -> None:
    assert dict(SlurmOptions().arguments(0, 300.0))["signal"] == "B:USR1@150"


@pytest.mark.parametrize(
    ("options", "pointer"),
    [
        ({"partition": "a\nid"}, "/partition"),
        ({"gpu_type": ""}, "/gpu_type"),
        ({"extra_lines": ("#SBATCH --nice", "rm -r /")}, "/extra_lines/1"),
        ({"extra_lines": ("#SBATCH --nice\nid",)}, "/extra_lines/0"),
        ({"extra_lines": ("#SBATCH --comment=a --error=/etc/passwd",)}, "/extra_lines/0"),
        ({"extra_lines": ("#SBATCH --error=/etc/passwd",)}, "/extra_lines/0"),
        ({"extra_lines": ("#SBATCH --err=/etc/passwd",)}, "/extra_lines/0"),
        ({"extra_lines": ("#SBATCH --array=1-9",)}, "/extra_lines/0"),
        ({"extra_lines": ("#SBATCH --comment=a#b",)}, "/extra_lines/0"),
    ],
)
def test_lines_for_slurm_are_one_harmless_option_each(options: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InputError) as caught:
        SlurmOptions(**options)
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [("bad_slurm_option", pointer)]


def test_kubernetes_ties_each_stage_group_to_its_nodes(bundle: Path) -> None:
    manifest: dict[str, Any] = yaml.safe_load((bundle / "jobset.yaml").read_text())
    jobs = manifest["spec"]["replicatedJobs"]
    assert [job["name"] for job in jobs] == ["stages-0-1", "stages-2-3"]
    assert stage_groups(DEPLOYMENT.ranks()) == {(0, 1): ["b"], (2, 3): ["a"]}
    pod = jobs[0]["template"]["spec"]["template"]["spec"]
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}]
    assert pod["containers"][0]["command"][-2:] == [str(bundle), "$(NODE_NAME)"]
    assert pod["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 4}}


@pytest.mark.parametrize(("code", "status"), [(0, 0), (3, 1)])
def test_the_local_script_runs_without_us(tmp_path: Path, code: int, status: int) -> None:
    launch = replace(DEPLOYMENT.launch, backend="local", master_port=free_port(), grace_s=0.2)
    training = TrainingOptions(device=Device.CPU)
    write_bundle(replace(DEPLOYMENT, launch=launch, training=training), tmp_path / "run", tmp_path / "checkpoints")
    # What each rank would run is replaced: no trainer is needed to see the script work.
    path = tmp_path / "run" / "launch.json"
    document = json.loads(path.read_text()) | {"command": ["/bin/sh", "-c", f"echo $RANK; exit {code}"]}
    path.write_text(json.dumps(document))
    done = subprocess.run(["/bin/sh", str(tmp_path / "run" / "launch-local.sh")], check=False, timeout=60)
    assert done.returncode == status
    assert (tmp_path / "run" / "logs" / "rank-5.log").read_text() == "5\n"


def test_scripts_are_shell(bundle: Path) -> None:
    for name in ("launch-local.sh", "launch-ssh.sh", "job.sbatch"):
        subprocess.run(["/bin/bash", "-n", str(bundle / name)], check=True)
    assert "ssh -o BatchMode=yes -- trainer@10.0.0.2 " in (bundle / "launch-ssh.sh").read_text()


@pytest.mark.parametrize("node", ["$(id)", "a b", "--x", "a,b[1-100]", "n1/..", ".", "x" * 254])
def test_nodes_are_host_names(node: str) -> None:
    stages = tuple(
        replace(stage, replicas=tuple(replace(replica, node=node) for replica in stage.replicas))
        for stage in PLAN.stages[:1]
    )
    with pytest.raises(InputError) as caught:
        replace(DEPLOYMENT, plan=replace(PLAN, stages=(*stages, *PLAN.stages[1:])))
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [
        ("bad_node_name", f"/plan/stages/0/replicas/{k}/node") for k in range(2)
    ]


@pytest.mark.parametrize("address", ["-oProxyCommand=id", "-l@b", "a b", "x@$(id)", "a;b", ""])
def test_addresses_are_hosts_with_or_without_a_user(address: str) -> None:
    with pytest.raises(InputError) as caught:
        replace(DEPLOYMENT, launch=replace(DEPLOYMENT.launch, addresses={"a/b": address}))
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [("bad_address", "/launch/addresses/a~1b")]
    for good in ("10.0.0.2", "fe80::1%eth0", "trainer@node_1.example.com"):
        replace(DEPLOYMENT, launch=replace(DEPLOYMENT.launch, addresses={"a": good}))


def test_a_folder_is_written_once(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds a run already"):
        write_bundle(DEPLOYMENT, bundle, tmp_path / "checkpoints")


def test_what_cannot_be_deployed() -> None:
    with pytest.raises(AsymmetricPlanError):
        Deployment(name="x", model=replace(MODEL, num_layers=6, global_batch=12), plan=FIG_3)
    with pytest.raises(InputError) as caught:
        Deployment(name="a/b", model=replace(MODEL, num_layers=4, global_batch=16), plan=PLAN)
    assert [issue.code for issue in caught.value.issues] == ["bad_name", "global_batch", "stage_layers"]
    with pytest.raises(InputError, match="must be one of local, ssh, slurm, kubernetes"):
        LaunchOptions(backend="pdsh")
    for name in ("A=B", ""):
        with pytest.raises(InputError, match="environment names"):
            LaunchOptions(environment={name: "x"})
    with pytest.raises(InputError, match="from 1 to 65526"):
        LaunchOptions(master_port=70_000)
