"""`stowplan deploy` and `stowplan redeploy`, on local processes that only pretend to train."""

import errno
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api.cli.exit_codes import ExitCode
from api.cli.main import app
from api.deployments.choice import PlannedJob, choose, deployment_of, given_model
from api.schemas.deployment import DeploymentBody
from executor.deployment import LaunchOptions
from executor.feedback.run import given_cluster
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, Phase
from executor.supervision import Supervisor
from tests.api.deployments import test_native as native
from tests.api.deployments.test_checks import LONG, nodes, on
from tests.api.deployments.test_deployments import body, plan
from tests.executor.pretend_training import HURRY_FILE
from tests.paths import PRETEND_TRAINER, ROOT
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.slow

_LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    # That of most users; commands in several threads of one process cannot each restore what they found.
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(autouse=True)
def _pretending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "api.deployments.choice.LaunchOptions", partial(LaunchOptions, command=(sys.executable, str(PRETEND_TRAINER)))
    )
    # Handlers belong to the main thread; the command runs in another one here.
    monkeypatch.setattr("api.cli.deploy.signal.signal", lambda *_: None)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def written(folder: Path, document: dict[str, Any], name: str = "request.json") -> str:
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output + (result.stderr if result.stderr not in result.output else "")


def test_a_dry_run_writes_and_starts_nothing(tmp_path: Path) -> None:
    code, said = run("deploy", written(tmp_path, body()), "--dry-run", "-o", str(tmp_path / "out"))
    assert code == ExitCode.PLANNED, said
    assert "SYNTHETIC DATA" in said
    assert "SYNTHETIC DATA" in (tmp_path / "out" / "README.txt").read_text()
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"hostfile", "ds_config.json", "ranks.csv", "launch-ssh.sh", "job.sbatch", "jobset.yaml"} <= names
    assert not (tmp_path / "out" / "logs").exists()


def test_the_command_line_takes_secrets_from_a_folder_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "API_KEY").write_text("hush")
    request, launch = written(tmp_path, body(launch={"secrets": ["API_KEY"]})), tmp_path / "out" / "launch.json"
    code, said = run("deploy", request, "--dry-run", "-o", str(tmp_path / "out"))
    assert (code, "--secrets" in said) == (ExitCode.BAD_INPUT, True)
    code, said = run(
        "deploy", request, "--dry-run", "-o", str(tmp_path / "out"), "--secrets", str(tmp_path / "secrets")
    )
    assert code == ExitCode.PLANNED, said
    assert json.loads(launch.read_text())["secrets"] == {"API_KEY": str(tmp_path / "secrets" / "API_KEY")}


def test_the_engine_of_the_command_line_takes_the_place_of_that_of_the_file(tmp_path: Path) -> None:
    request, out = written(tmp_path, body(plan=plan([(2, 1), (2, 2)]))), tmp_path / "out"
    code, said = run("deploy", request, "--dry-run", "-o", str(out))
    assert (code, "--engine native" in said) == (ExitCode.BAD_INPUT, True)
    code, said = run("deploy", request, "--dry-run", "-o", str(out), "--engine", "native")
    assert code == ExitCode.PLANNED, said
    assert "2L 1x1 | 2L 2x1" in said
    assert json.loads((out / "job.json").read_text())["engine"] == "native"
    assert not (out / "ds_config.json").exists()


@pytest.mark.parametrize("options", [("--dry-run",), ()])
def test_only_its_user_reads_a_deployment(tmp_path: Path, options: tuple[str, ...]) -> None:
    request = written(tmp_path, body(launch={"environment": {"WANDB_API_KEY": "hush", "NCCL_DEBUG": "INFO"}}))
    code, said = run("deploy", request, *options, "-o", str(tmp_path / "job"))
    assert code == ExitCode.PLANNED, said
    assert "warning: /launch/environment/WANDB_API_KEY: is kept with the deployment; name it in launch.secrets" in said
    assert "--secrets" in said
    assert "NCCL_DEBUG" not in said
    made = [tmp_path / "job", *(tmp_path / "job").rglob("*")]
    assert any("hush" in path.read_text() for path in made if path.name == "launch.json")
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in made if path.is_file()} == {0o600}


def test_a_dry_run_says_that_numbers_of_nodes_are_no_hosts(tmp_path: Path) -> None:
    named, numbered = body(), body()
    for stage in numbered["plan"]["stages"]:
        for replica in stage["replicas"]:
            replica["node"] = "0"
    for k, (request, warned) in enumerate(((named, False), (numbered, True))):
        code, said = run("deploy", written(tmp_path, request), "--dry-run", "-o", str(tmp_path / f"out{k}"))
        assert code == ExitCode.PLANNED, said
        assert ("0 are numbers of nodes, not hosts" in said) == warned


def test_deploy_follows_the_training_to_its_end(tmp_path: Path) -> None:
    code, said = run("deploy", written(tmp_path, body()), "-o", str(tmp_path / "job"))
    assert code == ExitCode.PLANNED, said
    assert "finished: step 12" in said


def parallel_answer(folder: Path) -> str:
    """Two stages of gpt2-350m, a GPU a node."""
    path = str(folder / "parallel.json")
    sizes = ("--model", "gpt2-350m", "--gpu-type", "h100", "--gpus-per-node", "1", "--global-batch", "4")
    code, said = run("parallel", *sizes, "--degrees", "pp2,dp1,tp1,mb2", "-o", path)
    assert code == ExitCode.PLANNED, said
    return path


def test_a_parallel_answer_and_hosts_are_a_deployment(tmp_path: Path) -> None:
    answer, hosts, rest = parallel_answer(tmp_path), tmp_path / "hosts", tmp_path / "rest.json"
    hosts.write_text("gpu-b\ngpu-a\n")
    rest.write_text(json.dumps({"launch": {"master_port": free_port()}, "training": {"checkpoint_interval": 5}}))
    arguments = ("--from", answer, "--hosts", str(hosts), "--device", "cpu", "--steps", "7", str(rest))
    code, said = run("deploy", *arguments, "-o", str(tmp_path / "job"))
    assert code == ExitCode.PLANNED, said
    assert "finished: step 7" in said
    deployed = Supervisor(tmp_path / "job", LocalBackend()).deployment()
    assert (deployed.name, deployed.plan.gpus) == ("parallel", (("gpu-b", 0), ("gpu-a", 0)))
    assert (deployed.model.hidden_size, deployed.training.checkpoint_interval) == (1024, 5)


def test_everything_of_a_deployment_can_be_said_without_json(tmp_path: Path) -> None:
    answer, hosts, out = parallel_answer(tmp_path), tmp_path / "hosts", tmp_path / "out"
    hosts.write_text("gpu-[1-2]\n")
    sizes = ("--from", answer, "--hosts", str(hosts), "--dry-run", "-o", str(out))
    schedule = ("--learning-rate", "1e-4", "--decay", "linear", "--warmup-steps", "2")
    data = ("--data", "3:/data/web", "--data", "/data/code", "--validation-share", "0.1", "--evaluate-every", "5")
    documents = ("--document-mask", "--eod-token", "2", "--eod-mask-loss")
    more = ("--final-weights", "--image", "registry/ours:1", "--device", "cpu")
    code, said = run("deploy", *sizes, *schedule, *data, *documents, *more)
    assert code == ExitCode.PLANNED, said
    job = json.loads((out / "job.json").read_text())
    assert [(one["path"], one["weight"]) for one in job["data"]["sources"]] == [("/data/web", 3.0), ("/data/code", 1.0)]
    assert (job["data"]["validation_share"], job["data"]["evaluation_interval"]) == (0.1, 5)
    assert [job["data"][name] for name in ("document_mask", "eod_token", "eod_mask_loss")] == [True, 2, True]
    assert (job["schedule"]["learning_rate"], job["schedule"]["decay"], job["schedule"]["warmup_steps"]) == (
        1e-4,
        "linear",
        2,
    )
    assert job["final_weights"] == str(out / "weights")
    assert "image: registry/ours:1" in (out / "jobset.yaml").read_text()
    code, said = run("deploy", *sizes[:-1], str(tmp_path / "hooked"), "--layers-hook", "ours:layers")
    assert code == ExitCode.PLANNED, said
    assert json.loads((tmp_path / "hooked" / "job.json").read_text())["layers_hook"] == "ours:layers"


def test_a_program_of_ones_own_is_a_line(tmp_path: Path) -> None:
    answer, hosts, out = parallel_answer(tmp_path), tmp_path / "hosts", tmp_path / "out"
    hosts.write_text("gpu-[1-2]\n")
    options = ("--from", answer, "--hosts", str(hosts), "--command", "python train.py --name 'a b'", "--dry-run")
    code, said = run("deploy", *options, "-o", str(out))
    assert code == ExitCode.PLANNED, said
    assert json.loads((out / "launch.json").read_text())["command"] == ["python", "train.py", "--name", "a b"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--data", "-1:/data/web"), "weight above 0, such as 3:/data/web"),
        (("--data", "nan:/data/web"), "weight above 0"),
        (("--data", "3:"), "weight above 0"),
        (("--command", "python 'train"), "No closing quotation"),
        (("--command", " "), "--command is empty"),
        (("--learning-rate", "-1"), "/training/schedule/learning_rate"),
        (("--validation-share", "1"), "/training/data/validation_share"),
        (("--data", "/data/web", "--eod-token", "2"), "/training/data/eod_token"),
        (("--data", "/data/web", "--document-mask", "--eod-token", "99999999"), "/training/data/eod_token"),
        (("--token-file", "/data/web.bin", "--document-mask"), "/training/data/eod_token"),
        (("--document-mask",), "/training/data/document_mask"),
        (("--layers-hook", "layers"), "/training/layers_hook"),
        (("--initial-weights", "/no/such/folder"), "/no/such/folder"),
    ],
)
def test_options_that_are_wrong_are_said(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    answer, hosts = parallel_answer(tmp_path), tmp_path / "hosts"
    hosts.write_text("gpu-[1-2]\n")
    sizes = ("--from", answer, "--hosts", str(hosts), "--dry-run", "-o", str(tmp_path / "out"))
    code, said = run("deploy", *sizes, *options)
    assert (code, message in " ".join(said.split())) == (ExitCode.BAD_INPUT, True), said
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_deployed_from_a_plan_is_said(tmp_path: Path) -> None:
    answer, hosts = parallel_answer(tmp_path), tmp_path / "hosts"
    hosts.write_text("gpu-a\n")
    bare = written(tmp_path, json.loads(Path(answer).read_text())["best"]["plan"], "bare.json")
    out = ("--dry-run", "-o", str(tmp_path / "out"))
    for arguments, message in [
        ((), "give FILE, or --from PLAN"),
        (("--from", answer), "no hosts; name yours with --hosts FILE"),
        (("--from", answer, "--hosts", str(hosts)), "2 ranks on 2 nodes; the file names 1 host"),
        ((written(tmp_path, body()), "--steps", "3"), "--steps without --from"),
        (("--from", answer, written(tmp_path, body())), "beside --from: an object without job, plan"),
        (("--from", written(tmp_path, {"jobs": []}, "none.json")), "is no plan"),
    ]:
        hosts.write_text("gpu-a\ngpu-b\n" if "an object" in message else "gpu-a\n")
        more = ("--hosts", str(hosts)) if "an object" in message else ()
        code, said = run("deploy", *arguments, *more, *out)
        assert (code, message in " ".join(said.split())) == (ExitCode.BAD_INPUT, True), said
    hosts.write_text("gpu-a\ngpu-b\n")
    code, said = run("deploy", "--from", bare, "--hosts", str(hosts), *out)
    assert (code, "does not say what job 'bare' trains" in said) == (ExitCode.BAD_INPUT, True)


def test_redeploy_changes_a_deployment_that_another_process_looks_after(tmp_path: Path) -> None:
    training = {"device": "cpu", "num_steps": 80, "checkpoint_interval": 5}
    ended: list[tuple[int, str]] = []
    request = written(tmp_path, body(training=training))
    first = threading.Thread(target=lambda: ended.append(run("deploy", request, "-o", str(tmp_path / "job"))))
    first.start()
    supervisor = Supervisor(tmp_path / "job", LocalBackend())
    eventually((tmp_path / "job" / "state.json").exists)
    eventually(lambda: supervisor.state().phase, lambda phase: phase is Phase.RUNNING)
    change = written(tmp_path, {"plan": plan([(4, 2)], local=2)}, "change.json")
    code, said = run("redeploy", str(tmp_path / "job"), change)
    assert code == ExitCode.PLANNED, said
    assert "PP2 DP1 TP1 (2+2 layers, 2 x 4) -> PP1 DP2 TP1" in said
    first.join(_LIMIT_S)
    assert [code for code, _ in ended] == [ExitCode.PLANNED]
    assert "degrees: trained again after" in ended[0][1]
    assert [run.plan[:7] for run in supervisor.state().runs] == ["PP2 DP1", "PP1 DP2"]


def suika(folder: Path, name: str, *jobs: dict[str, Any], like: str = "") -> tuple[str, str]:
    """A plan of these jobs, and what was planned; `like`: another plan, on which the job of that id runs."""
    if like:
        (given,) = (one for one in json.loads(Path(like).read_text())["allocations"] if one["job_id"] == jobs[0]["id"])
        jobs = ({**jobs[0], "current": given["gpus"], "parallel_plan": given["parallel_plan"]}, *jobs[1:])
    request = {"policy": "suika", "snapshot": {"cluster": native.CLUSTER, "jobs": jobs}}
    asked, answer = written(folder, request, f"{name}-request.json"), str(folder / f"{name}.json")
    code, said = run("plan", asked, "-o", answer)
    assert code == ExitCode.PLANNED, said
    return answer, asked


def test_a_running_job_is_moved_to_what_a_planner_has_written(tmp_path: Path) -> None:
    """Suika's plan, first beside another job, then on the GPUs that it has released."""
    first, asked = suika(tmp_path, "first", native.LONG, native.SHORT)
    second, _ = suika(tmp_path, "second", native.LONG, like=first)
    rest = written(tmp_path, {"launch": {"master_port": free_port()}, "training": {"checkpoint_interval": 5}}, "rest")
    options = ("--request", asked, "--job", "long", "--engine", "native", "--device", "cpu", "--steps", "2000")
    root, ended = str(tmp_path / "job"), list[tuple[int, str]]()
    deploys = threading.Thread(target=lambda: ended.append(run("deploy", rest, "--from", first, *options, "-o", root)))
    deploys.start()
    supervisor = Supervisor(tmp_path / "job", LocalBackend())
    eventually((tmp_path / "job" / "state.json").exists)
    eventually(lambda: supervisor.state().phase, lambda phase: phase is Phase.RUNNING)
    wider = Path(asked).read_text().replace('"hidden_size": 64', '"hidden_size": 128')
    theirs = written(tmp_path, json.loads(wider), "theirs.json")
    for arguments, message in [
        ((second, "--from", second), "FILE beside --from"),
        (("--job", "long"), "--job without --from"),
        (("--from", second, "--request", theirs), "with another model than the deployment trains"),
        (("--from", first, "--job", "nobody"), "nobody"),
    ]:
        code, said = run("redeploy", root, *arguments)
        assert (code, message in " ".join(said.split())) == (ExitCode.BAD_INPUT, True), said
    code, said = run("redeploy", root, "--from", second)
    assert code == ExitCode.PLANNED, said
    assert "PP2 DP2 TP1 (2+2 layers, 2 x 4) -> 1L 2x1 | 3L 4x1 (1 x 8)" in said
    eventually(lambda: supervisor.state().phase, lambda phase: phase is Phase.RUNNING)
    (tmp_path / "job" / HURRY_FILE).touch()
    deploys.join(_LIMIT_S)
    assert [code for code, _ in ended] == [ExitCode.PLANNED], ended
    assert [run.cause for run in supervisor.state().runs] == [Cause.DEPLOYED, Cause.RECONFIGURED]


def orphan(folder: Path, num_steps: int = 40) -> Supervisor:
    """A deployment that runs and that nobody looks after, as when a terminal has been closed."""
    training = {"device": "cpu", "num_steps": num_steps, "checkpoint_interval": 5}
    request = DeploymentBody.model_validate_json(json.dumps(body(training=training)))
    supervisor = Supervisor(folder, LocalBackend())
    engine = request.training.engine
    choice = choose(request, "tiny", given_model(request), _nothing_planned, engine=engine)
    supervisor.deploy(deployment_of(request, choice))
    eventually(lambda: supervisor.status().step, lambda step: step >= 2)
    return supervisor


def _nothing_planned(plan_id: str, job_id: str) -> PlannedJob:
    raise AssertionError(f"{plan_id} is asked for {job_id}")


def test_redeploy_takes_over_what_nobody_looks_after(tmp_path: Path) -> None:
    supervisor = orphan(tmp_path / "job")
    code, said = run("deploy", written(tmp_path, body()), "-o", str(tmp_path / "job"))
    assert code == ExitCode.BAD_INPUT
    assert f"`stowplan redeploy {tmp_path / 'job'}` goes on with it" in said.replace("\n", " ")
    lease = supervisor.lease()
    assert lease is not None
    with lease:
        code, said = run("redeploy", str(tmp_path / "job"))
        assert (code, said) == (ExitCode.PLANNED, "another process looks after the deployment\n")
    code, said = run("redeploy", str(tmp_path / "job"))
    assert code == ExitCode.PLANNED, said
    assert "finished: step 40" in said
    assert len(supervisor.state().runs) == 1
    code, said = run("redeploy", str(tmp_path / "job"))
    assert (code, "is finished" in said) == (ExitCode.BAD_INPUT, True)


def test_only_its_user_reads_what_redeploy_makes(tmp_path: Path) -> None:
    supervisor = orphan(tmp_path / "job")
    supervisor.stop()
    eventually(supervisor.advance, lambda state: state.phase is Phase.STOPPED)
    code, said = run("redeploy", str(tmp_path / "job"))
    assert code == ExitCode.PLANNED, said
    folder = supervisor.folder(2)
    assert {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))} == {0}


def test_redeploy_checks_a_plan_as_the_service_does(tmp_path: Path) -> None:
    root, taken = tmp_path / "job", nodes("a", gpus_in_use=[1])
    request = body(plan=on(("a", 0)), cluster=taken)
    code, said = run("deploy", written(tmp_path, request | {"training": LONG | {"num_steps": 3}}), "-o", str(root))
    assert code == ExitCode.PLANNED, said
    assert given_cluster(root) is not None
    before = {path.name: path.read_text() for path in root.glob("cluster*.json")}
    assert len(before) == 2
    for place in (("a", 1), ("b", 0)):
        code, said = run("redeploy", str(root), written(tmp_path, {"plan": on(place)}, "change.json"))
        assert (code, "give cluster where that has changed" in said.replace("\n", " ")) == (ExitCode.BAD_INPUT, True)
    # Its own GPU is free for it, whatever the cluster says; but what is finished is not changed.
    change = {"plan": on(("a", 0)), "cluster": nodes("a", gpus_in_use=[0])}
    code, said = run("redeploy", str(root), written(tmp_path, change, "change.json"))
    assert (code, "is finished" in said) == (ExitCode.BAD_INPUT, True), said
    assert {path.name: path.read_text() for path in root.glob("cluster*.json")} == before


def test_ctrl_c_is_kept_until_the_stop_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor, stop = orphan(tmp_path / "job"), Supervisor.stop
    asked: list[Supervisor] = []

    def interrupt(number: int, handler: Callable[[int, None], None] | None) -> None:
        if handler is not None:
            handler(number, None)

    def full_once(self: Supervisor) -> None:
        asked.append(self)
        if len(asked) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        stop(self)

    monkeypatch.setattr("api.cli.deploy.signal.signal", interrupt)
    monkeypatch.setattr("api.cli.deploy.Supervisor.stop", full_once)
    code, said = run("redeploy", str(supervisor.root))
    assert (code, len(asked), "cannot be looked after: " in said) == (ExitCode.QUIT, 2, True), said


def test_redeploy_carries_a_change_out_where_nobody_else_does(tmp_path: Path) -> None:
    supervisor = orphan(tmp_path / "job", 80)
    change = written(tmp_path, {"plan": plan([(4, 2)], local=2)}, "change.json")
    code, said = run("redeploy", str(tmp_path / "job"), change)
    assert code == ExitCode.PLANNED, said
    assert said.splitlines()[-1].startswith("finished: step 80, loss 0.0125, PP1 DP2 TP1")
    assert [run.cause for run in supervisor.state().runs] == [Cause.DEPLOYED, Cause.RECONFIGURED]


def test_redeploy_goes_on_with_what_was_stopped(tmp_path: Path) -> None:
    supervisor = orphan(tmp_path / "job")
    supervisor.stop()
    eventually(supervisor.advance, lambda state: state.phase.final)
    code, said = run("redeploy", str(tmp_path / "job"))
    assert code == ExitCode.PLANNED, said
    assert "goes on from the last good checkpoint" in said
    assert "finished: step 40" in said


def test_the_last_lines_of_a_rank_that_breaks_are_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("/bin/sh", "-c", "[ $RANK = 0 ] && exec sleep 60; echo 'the device [cpu:1] is gone'; exit 4")
    monkeypatch.setattr("api.deployments.choice.LaunchOptions", partial(LaunchOptions, command=command))
    code, said = run("deploy", written(tmp_path, body()), "-o", str(tmp_path / "job"))
    assert code == ExitCode.NO_SOLUTION, said
    assert "rank 1 on host a ended with exit code 4, in run 1:\n    the device [cpu:1] is gone\n" in said
    assert said.count("is gone") == 4


def test_what_cannot_train_is_said_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'training needs torch and deepspeed; install the extra'\n")
    python.chmod(0o755)
    monkeypatch.setattr("api.deployments.choice.LaunchOptions", LaunchOptions)
    request = body(launch={"python": str(python)})
    code, said = run("deploy", written(tmp_path, request), "-o", str(tmp_path / "job"))
    assert code != ExitCode.PLANNED
    assert "python: training needs torch and deepspeed; install the extra" in said.replace("\n", " ")
    assert not list((tmp_path / "job" / "runs").iterdir())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"plan": plan([(2, 1), (2, 2)])}, "with --project, or project in the request, the best symmetric plan"),
        ({"plan": plan([(2, 1), (2, 2)]), "project": True}, "needs to know the GPUs"),
        ({"plan": None, "plan_id": "plan-7"}, "needs a service"),
        ({"training": {"device": "cpu", "num_steps": 0}}, "/training/num_steps"),
    ],
)
def test_what_cannot_be_deployed(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    request = {key: value for key, value in body(**changes).items() if value is not None}
    code, said = run("deploy", written(tmp_path, request), "-o", str(tmp_path / "job"))
    assert (code, says in " ".join(said.split())) == (ExitCode.BAD_INPUT, True), said
    assert not (tmp_path / "job" / "state.json").exists()


def test_redeploying_what_is_not_there(tmp_path: Path) -> None:
    code, said = run("redeploy", str(tmp_path / "none"), written(tmp_path, {"plan": plan([(4, 1)], local=8)}))
    assert code == ExitCode.BAD_INPUT
    assert "cannot be read as a deployment" in said
