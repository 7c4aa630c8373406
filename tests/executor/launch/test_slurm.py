"""The Slurm backend with a real Slurm: shell commands in place of the trainer, and the trainer where there is one."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.placement.namespaces import leaf_spine, obstacle
from benchmarks.placement.placement_choices import adversarial, arnold
from benchmarks.placement.placement_runs import loss_difference, measured
from benchmarks.placement.placement_visible import LOSS_TOLERANCE
from benchmarks.placement.slurm_cluster import NODES, missing, slurm_cluster
from executor import supervision
from executor.bundle import write_bundle
from executor.checkpoints import last_good
from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.extra import missing_extra
from executor.launch.agent import log_file
from executor.launch.base import LaunchError, RunState, RunStatus
from executor.launch.slurm import SlurmBackend
from executor.launch.slurm_options import SlurmOptions
from executor.lifecycle import Phase
from executor.metrics import metrics_path, read_metrics
from executor.training_options import Device
from models.parallel_plan import symmetric_plan
from tests.executor.jobs import GPT
from tests.executor.launch.test_local import over
from tests.executor.test_placement_visible import NARROW, PP2_DP2
from tests.executor.test_supervision import drive
from tests.paths import PRETEND_TRAINER, ROOT
from tests.ports import free_port
from tests.waiting import eventually

# Neither the order of the names nor that of the leaves.
ORDER = ("n3", "n2", "n4", "n1")
_LIMIT_S = 300.0
# The worst placement sends so many times as much over the spine, at least. How much longer its steps take for it is
# measured by `python -m benchmarks placement-visible`: other work on the machine would hide it here.
LEAST_RATIO = 5

pytestmark = [
    pytest.mark.slow,
    pytest.mark.training,
    pytest.mark.skipif(missing() is not None, reason=f"needs Slurm: {missing()}"),
]
needs_trainer = pytest.mark.skipif(missing_extra() is not None, reason=str(missing_extra()))


def deployment(script: str | None = None, *, hosts: tuple[str, ...] = ORDER, device: Device = Device.CPU) -> Deployment:
    """PP2 DP2 with one rank a host; `script` stands for the trainer."""
    return Deployment(
        name="job",
        model=GPT,
        plan=symmetric_plan(
            num_layers=GPT.num_layers,
            pp=2,
            dp=len(hosts) // 2,
            tp=1,
            global_batch=GPT.global_batch,
            num_micro_batches=2,
            gpu_type="core",
            gpus=tuple((host, 0) for host in hosts),
        ),
        training=TrainingOptions(num_steps=5, device=device),
        launch=LaunchOptions(
            backend="slurm",
            addresses=dict.fromkeys(NODES, "127.0.0.1"),
            master_port=free_port(),
            python=sys.executable,
            command=None if script is None else ("/bin/sh", "-c", script),
            environment={"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
            grace_s=1.0,
        ),
    )


def pretending() -> Deployment:
    """The same with steps and checkpoints, but no training; for ever."""
    what = deployment()
    command, environment = (sys.executable, str(PRETEND_TRAINER)), {"PYTHONPATH": str(ROOT)}
    training = TrainingOptions(num_steps=10_000, device=Device.CPU, checkpoint_interval=5)
    return replace(what, launch=replace(what.launch, command=command, environment=environment), training=training)


def submitted(what: Deployment, folder: Path) -> SlurmBackend:
    write_bundle(what, folder, folder / "checkpoints")
    backend = SlurmBackend()
    backend.start(folder)
    return backend


def wait(backend: SlurmBackend, folder: Path, until: Callable[[RunStatus], bool]) -> RunStatus:
    return eventually(lambda: backend.status(folder), until, limit_s=_LIMIT_S, poll_s=0.1)


@pytest.mark.usefixtures("cluster")
def test_ranks_run_on_the_hosts_of_the_plan_in_its_order(tmp_path: Path) -> None:
    # A folder that a shell would take for two words.
    folder = tmp_path / "a run"
    backend = submitted(deployment("echo $RANK $SLURMD_NODENAME $SLURM_PROCID $WORLD_SIZE $MASTER_ADDR"), folder)
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.SUCCEEDED
    lines = [log_file(folder, rank).read_text().split() for rank in range(4)]
    # The second number is Slurm's own: its order is that of the plan, too.
    assert lines == [[str(k), ORDER[k], str(k), "4", "127.0.0.1"] for k in range(4)]
    reports = {path.stem: json.loads(path.read_text()) for path in (folder / "status").glob("*.json")}
    assert {host: list(report["ranks"]) for host, report in reports.items()} == {
        h: [str(k)] for k, h in enumerate(ORDER)
    }


@pytest.mark.usefixtures("cluster")
def test_the_script_works_without_us(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_bundle(deployment("echo $RANK"), folder, folder / "checkpoints")
    assert os.system(f"sbatch --wait --quiet {folder / 'job.sbatch'}") == 0  # noqa: S605
    assert [log_file(folder, k).read_text() for k in range(4)] == [f"{k}\n" for k in range(4)]


@pytest.mark.usefixtures("cluster")
def test_what_is_canceled_or_killed_and_submitted_again_goes_on_from_its_checkpoints(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def three_checkpoints_behind(step: int) -> int:
        found = eventually(
            lambda: last_good(folder / "checkpoints"), lambda good: good and good.step >= step + 15, limit_s=_LIMIT_S
        )
        assert found is not None
        return found.step

    backend = submitted(pretending(), folder)
    canceled = three_checkpoints_behind(0)
    backend.stop(folder)
    backend.start(folder)
    killed = three_checkpoints_behind(canceled)
    os.kill(backend.status(folder).pids[0], signal.SIGKILL)
    wait(backend, folder, lambda status: status.state.final)
    backend.stop(folder)
    backend.start(folder)
    three_checkpoints_behind(killed)
    backend.stop(folder)
    begins = {step.launch: step.step for step in reversed(list(read_metrics(metrics_path(folder / "metrics", 0))))}
    third, second, first = begins.values()
    assert first == 1
    assert second in (canceled + 1, canceled + 6)
    assert third in (killed + 1, killed + 6)


@pytest.mark.usefixtures("cluster")
def test_a_host_may_use_all_its_cpus(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    backend = submitted(deployment("echo $SLURM_CPUS_ON_NODE; grep Cpus_allowed_list /proc/self/status"), folder)
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.SUCCEEDED
    (mine,) = (line for line in Path("/proc/self/status").read_text().splitlines() if "Cpus_allowed_list" in line)
    assert {log_file(folder, rank).read_text() for rank in range(4)} == {f"2\n{mine}\n"}


@pytest.mark.usefixtures("cluster")
def test_before_the_time_limit_ranks_are_asked_to_stop(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    plain = deployment("while [ ! -f stop ]; do sleep 0.1; done")
    options = SlurmOptions(
        account="team#1", exclusive=False, cpus_per_node=1, memory_bytes=1, extra_lines=("#SBATCH --comment=a|b",)
    )
    backend = submitted(replace(plain, launch=replace(plain.launch, slurm=options)), folder)
    wait(backend, folder, lambda status: status.num_running == 4)
    job_id = json.loads((folder / "slurm.json").read_text())["job_id"]
    job = subprocess.run(["scontrol", "--oneliner", "show", "job", job_id], capture_output=True, text=True, check=True)
    asked = ("Account=team#1", "OverSubscribe=OK", "NumCPUs=4", "MinMemoryNode=1M", "Comment=a|b", "Requeue=0")
    assert [word for word in asked if word not in job.stdout.split()] == [], job.stdout
    # As Slurm does with --signal=B:USR1@600.
    subprocess.run(["scancel", "--batch", "--signal=USR1", job_id], check=True)
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.SUCCEEDED
    # The next job of the folder is not asked.
    backend.start(folder)
    wait(backend, folder, lambda status: status.num_running == 4)
    assert not (folder / "stop").exists()
    backend.stop(folder)


@pytest.mark.usefixtures("cluster")
def test_gpus_are_those_that_slurm_gives(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    backend = submitted(deployment("echo $CUDA_VISIBLE_DEVICES $LOCAL_RANK", device=Device.CUDA), folder)
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.SUCCEEDED
    assert {log_file(folder, rank).read_text() for rank in range(4)} == {"0 0\n"}


@pytest.mark.usefixtures("cluster")
def test_a_rank_that_fails_is_named_and_the_job_ends(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    backend = submitted(deployment("if [ $RANK = 2 ]; then sleep 1; echo no luck; exit 7; else sleep 600; fi"), folder)
    pids = wait(backend, folder, lambda status: status.num_running == 4).pids
    status = wait(backend, folder, lambda status: status.state.final)
    assert status.state is RunState.FAILED
    assert [(dead.rank, dead.host, dead.exit_code, dead.last_lines) for dead in status.dead] == [
        (2, "n4", 7, ("no luck",))
    ]
    backend.stop(folder)
    assert all(over(pid) for pid in pids.values())


@pytest.mark.usefixtures("cluster")
def test_an_agent_that_is_killed_is_no_success(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    backend = submitted(deployment("sleep 600"), folder)
    pids = wait(backend, folder, lambda status: status.num_running == 4).pids
    agent = json.loads((folder / "status" / "n2.json").read_text())["agent_pid"]
    os.kill(agent, 9)
    status = wait(backend, folder, lambda status: status.state.final)
    assert status.state is RunState.FAILED
    backend.stop(folder)
    assert all(over(pid) for pid in pids.values())


@pytest.mark.usefixtures("cluster")
def test_stop_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    # Ranks that are told to end and do not: they are killed after the grace.
    backend = submitted(deployment("trap '' TERM; while true; do sleep 1; done"), folder)
    pids = wait(backend, folder, lambda status: status.num_running == 4).pids
    backend.stop(folder)
    assert backend.status(folder).state is RunState.STOPPED
    assert len(pids) == 4
    assert all(over(pid) for pid in pids.values())
    backend.stop(folder)


@pytest.mark.usefixtures("cluster")
def test_a_node_that_goes_down_is_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    backend = submitted(deployment("sleep 600"), folder)
    pids = wait(backend, folder, lambda status: status.num_running == 4).pids
    subprocess.run(["scontrol", "update", "nodename=n2", "state=down", "reason=test"], check=True)
    try:
        status = wait(backend, folder, lambda status: status.state.final)
        assert status.state is RunState.FAILED
        assert "NODE_FAIL" in status.detail
    finally:
        # It may have come back by itself.
        subprocess.run(["scontrol", "update", "nodename=n2", "state=resume"], check=False, capture_output=True)
    backend.stop(folder)
    assert all(over(pid) for pid in pids.values())


@pytest.mark.usefixtures("cluster")
def test_a_spare_takes_the_place_of_a_drained_node(tmp_path: Path) -> None:
    plain = deployment("sleep 600", hosts=("n2", "n1"))
    supervisor = supervision.Supervisor(tmp_path / "job", SlurmBackend())
    subprocess.run(["scontrol", "update", "nodename=n2", "state=drain", "reason=bad fan"], check=True)
    try:
        supervisor.deploy(replace(plain, launch=replace(plain.launch, spares=("n4",))))
        state = drive(supervisor, lambda state: state.current.number == 2)
        assert state.detail.startswith(
            "n4 takes the place of n2: waits in Slurm's queue for hosts that take no job: n2 is drained (bad fan); "
        )
        eventually(supervisor.status, lambda status: status.run.num_running == 2, limit_s=_LIMIT_S)
        assert [rank.node for rank in supervisor.deployment().ranks()] == ["n4", "n1"]
    finally:
        SlurmBackend().stop(supervisor.folder(supervisor.state().current.number))
        subprocess.run(["scontrol", "update", "nodename=n2", "state=resume"], check=True)
    assert SlurmBackend().status(supervisor.folder(1)).state is RunState.STOPPED


@pytest.mark.usefixtures("cluster")
def test_a_job_that_waits_says_so_and_can_be_stopped(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    backend = submitted(deployment("sleep 600"), first)
    wait(backend, first, lambda status: status.num_running == 4)
    submitted(deployment("true", hosts=("n2", "n1")), second)
    waiting = wait(backend, second, lambda status: "Resources" in status.detail or "Priority" in status.detail)
    assert waiting.state is RunState.STARTING
    assert waiting.detail.startswith("waits in Slurm's queue: ")
    backend.stop(second)
    assert backend.status(second).state is RunState.STOPPED
    backend.stop(first)
    assert not (second / "logs").exists()


@pytest.mark.usefixtures("cluster")
def test_a_change_on_the_same_hosts_takes_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm gives hosts to one job at a time: the next run waits in the queue until the old one has made way."""
    monkeypatch.setattr(supervision, "QUEUE_LIMIT_S", 1.0)
    before = pretending()
    four_replicas = symmetric_plan(
        num_layers=GPT.num_layers,
        pp=1,
        dp=4,
        tp=1,
        global_batch=GPT.global_batch,
        num_micro_batches=1,
        gpu_type="core",
        gpus=before.plan.gpus,
    )
    after = replace(before, plan=four_replicas)
    supervisor = supervision.Supervisor(tmp_path / "job", SlurmBackend())
    supervisor.deploy(before)
    drive(supervisor, lambda state: state.phase is Phase.RUNNING)
    supervisor.reconfigure(after)
    state = drive(supervisor, lambda state: state.current.cost_s is not None)
    assert (state.phase, state.current.number, state.current.plan) == (Phase.RUNNING, 2, after.plan.notation())
    assert state.current.from_step > 0
    supervisor.stop()
    drive(supervisor, lambda state: state.phase is Phase.STOPPED)


@pytest.mark.usefixtures("cluster")
def test_hosts_that_slurm_does_not_know_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"sbatch: .*[Ii]nvalid node name"):
        submitted(deployment("true", hosts=("n1", "n9")), tmp_path / "run")


@pytest.mark.usefixtures("cluster")
def test_a_controller_that_does_not_answer_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    backend = submitted(deployment("sleep 600"), folder)
    wait(backend, folder, lambda status: status.num_running == 4)
    text = Path(os.environ["SLURM_CONF"]).read_text()
    with monkeypatch.context() as patch:
        nobody = re.sub("SlurmctldPort=.*", f"SlurmctldPort={free_port()}", text)
        # Slurm's commands give up after this long.
        (tmp_path / "slurm.conf").write_text(f"{nobody}MessageTimeout=1\n")
        patch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        status = backend.status(folder)
        assert (status.state, status.num_running) == (RunState.RUNNING, 4)
        assert status.detail.startswith("Slurm does not answer: ")
    backend.stop(folder)
    assert backend.status(folder).state is RunState.STOPPED


@pytest.mark.usefixtures("cluster")
def test_a_run_that_slurm_has_forgotten_is_over(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    write_bundle(deployment("true"), folder, folder / "checkpoints")
    (folder / "slurm.json").write_text(json.dumps({"job_id": "999999"}))
    backend = SlurmBackend()
    backend.stop(folder)
    assert backend.status(folder).state is RunState.FAILED


@needs_trainer
def test_the_trainer_trains_and_placement_is_visible(tmp_path: Path) -> None:
    """Every node is a host of a network with a narrow spine. One rank is started as by users; the others are forked."""
    reason = obstacle()
    if reason is not None:
        pytest.skip(f"needs network namespaces: {reason}")
    # Loads torch and deepspeed, which no other test here needs.
    from tests.executor.trainer.forking import forking

    runs = []
    with (
        leaf_spine(NARROW) as network,
        slurm_cluster(tmp_path / "c", network) as running,
        forking() as command,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in running.environment.items():
            patch.setenv(name, value)
        for name, hosts, own in (("arnold", arnold(PP2_DP2), (0,)), ("adversarial", adversarial(PP2_DP2), ())):
            runs.append(
                measured(
                    network,
                    PP2_DP2.plan(hosts),
                    tmp_path / name,
                    num_steps=6,
                    python=sys.executable,
                    backend=SlurmBackend(),
                    command=command(own),
                )
            )
    best, worst = runs
    assert worst.uplink_bytes_per_step > LEAST_RATIO * best.uplink_bytes_per_step
    assert loss_difference(runs) < LOSS_TOLERANCE
    steps = [list(read_metrics(metrics_path(tmp_path / "arnold" / "metrics", rank))) for rank in range(4)]
    assert [len(own) for own in steps] == [6] * 4
    assert [(own[0].pipe, own[0].data) for own in steps] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert steps[0][-1].loss < steps[0][0].loss
