"""`stowplan export`: plans of every policy, answers of `stowplan parallel` with hosts, and what is no plan."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import local_worker as local
from api.cli.exit_codes import ExitCode
from api.cli.main import app
from api.common.examples import examples
from models.policies import POLICIES
from solver.pool import WorkerPool
from tests.api.requests import Json
from tests.api.warm import WarmPool

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _warm(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "WorkerPool", lambda **_: WarmPool(pool))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def planned(example: str, folder: Path) -> tuple[Path, Path]:
    """Files of a packaged request and of its plan."""
    request, plan = folder / "request.json", folder / "plan.json"
    request.write_text(run("examples", example).stdout)
    assert run("plan", request, "-o", plan).exit_code == ExitCode.PLANNED
    return request, plan


def parallel(folder: Path, *options: str) -> Path:
    answer = folder / "parallel.json"
    sizes = ("--model", "llama3.1-8b", "--gpu-type", "h100", "--global-batch", "64")
    result = run("parallel", *sizes, *(options or ("--gpus", "16")), "-o", answer)
    assert result.exit_code == ExitCode.PLANNED, result.output
    return answer


def hosts(folder: Path, text: str) -> Path:
    file = folder / "hosts"
    file.write_text(text)
    return file


def test_a_placement_by_arnold(tmp_path: Path) -> None:
    request, plan = planned("arnold-fig12", tmp_path)
    result = run("export", plan, "--request", request, "--to", "megatron", "--to", "slurm", "-o", tmp_path / "out")
    assert result.exit_code == ExitCode.PLANNED, result.output
    document = json.loads(plan.read_text())
    placed = document["communication"]["hosts"]
    assert (tmp_path / "out" / "slurm_hosts").read_text().split() == [host for host in placed for _ in range(8)]
    arguments = (tmp_path / "out" / "megatron.sh").read_text()
    for line in ("--tensor-model-parallel-size 8", "--pipeline-model-parallel-size 2", "--hidden-size"):
        assert line in arguments


@pytest.mark.parametrize(
    ("example", "job"),
    [("sia-paper-table1", "J1"), ("gang-queue", "finetune"), ("ahead-two-weeks", "pretrain-175b")],
)
def test_jobs_of_other_policies(example: str, job: str, tmp_path: Path) -> None:
    request, plan = planned(example, tmp_path)
    several = run("export", plan, "--to", "slurm")
    assert (several.exit_code, "name one with --job" in several.stderr) == (ExitCode.BAD_INPUT, True)
    result = run("export", plan, "--job", job, "--request", request, "--to", "slurm")
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert "==> slurm_hosts <==" in result.stdout


def test_a_parallel_answer_on_hosts(tmp_path: Path) -> None:
    answer = parallel(tmp_path, "--software", "torch", "--degrees", "pp2,dp4,tp2,mb16")
    result = run("export", answer, "--hosts", hosts(tmp_path, "gpu-b\ngpu-a slots=8\n"), "--to", "torchtitan")
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert 'flavor = "8B"' in result.stdout
    assert "pipeline_parallel_degree = 2" in result.stdout
    # The best plan alone, whoever copied it, says nothing of the model.
    bare = tmp_path / "bare.json"
    bare.write_text(json.dumps(json.loads(answer.read_text())["best"]["plan"]))
    result = run("export", bare, "--hosts", tmp_path / "hosts", "--to", "slurm", "-o", tmp_path / "out")
    assert (tmp_path / "out" / "slurm_hosts").read_text().split() == ["gpu-b"] * 8 + ["gpu-a"] * 8


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    answer, other = parallel(tmp_path), tmp_path / "other.json"
    other.write_text('{"jobs": []}')
    for arguments, message in [
        ((answer, "--to", "slurm"), "nodes 0, 1, which are no hosts; name yours with --hosts FILE"),
        ((answer, "--to", "slurm", "--hosts", hosts(tmp_path, "a")), "16 ranks on 2 nodes; the file names 1 host"),
        ((answer, "--to", "jax"), "no export to 'jax'; known: megatron"),
        ((other, "--to", "slurm"), "is no plan; give what `stowplan plan -o`"),
        ((tmp_path / "none", "--to", "slurm"), "cannot be read"),
    ]:
        result = run("export", *arguments)
        assert (result.exit_code, message in result.stderr) == (ExitCode.BAD_INPUT, True), result.stderr
    result = run("export", answer, "--to", "slurm", "--hosts", hosts(tmp_path, "a\na\n"))
    assert "/2: a is named again" in result.stderr


def numbered(request: Json) -> Json:
    """The request with ids of jobs as Slurm has them, and a user."""
    ids = {job["id"]: str(100 + k) for k, job in enumerate(request["snapshot"]["jobs"])}
    jobs = [{**job, "id": ids[job["id"]], "user": "ada"} for job in request["snapshot"]["jobs"]]
    parameters = {
        name: ids.get(value, value) if isinstance(value, str) else value
        for name, value in request.get("parameters", {}).items()
    }
    return {**request, "snapshot": {**request["snapshot"], "jobs": jobs}, "parameters": parameters}


@pytest.mark.parametrize("example", [known.id for known in examples() if known.id != "infeasible-reservations"])
def test_plans_of_every_policy_are_handed_over_to_slurm(example: str, tmp_path: Path) -> None:
    request, plan = tmp_path / "request.json", tmp_path / "plan.json"
    document = numbered(json.loads(run("examples", example).stdout))
    request.write_text(json.dumps(document))
    assert run("plan", request, "-o", plan).exit_code == ExitCode.PLANNED
    found = json.loads(plan.read_text())
    stopped = {job["job_id"] for job in found["unplaced"] if job["preempted"]}
    stopped |= {job["job_id"] for job in found["allocations"] if job["change"] not in ("started", "kept")}
    to = ("export", plan, "--request", request, "--to", "scontrol")
    result = run(*to, "-o", tmp_path / "out")
    if stopped:
        assert (result.exit_code, "runs, and the plan" in result.stderr) == (ExitCode.BAD_INPUT, True)
        result = run(*to, "--option", "running=requeue", "-o", tmp_path / "out")
    assert result.exit_code == ExitCode.PLANNED, result.output
    actions = json.loads((tmp_path / "out" / "actions.json").read_text())["actions"]
    told = {item["job_id"]: set(item["nodes"]) for item in actions if item["action"] == "steer"}
    places = {job["job_id"]: set(job["gpus"]) for job in found["allocations"] if job["change"] != "kept"}
    places |= {job["placement"]["job_id"]: set(job["placement"]["hosts"]) for job in found["ahead"]}
    assert told == places
    assert {item["job_id"] for item in actions if item["action"] == "stop"} == stopped
    script = (tmp_path / "out" / "apply.sh").read_text()
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_every_policy_has_an_example_that_is_handed_over() -> None:
    asked = {known.request["policy"] for known in examples()}
    assert {name.partition("-")[0] for name in POLICIES} == {name.partition("-")[0] for name in asked}


def test_what_cannot_be_handed_over(tmp_path: Path) -> None:
    request, plan = planned("gang-queue", tmp_path)
    result = run("export", plan, "--to", "scontrol")
    assert (result.exit_code, "--request FILE" in result.stderr) == (ExitCode.BAD_INPUT, True)
    to = ("export", plan, "--request", request, "--to", "scontrol")
    for more, said in (
        ((), "is no job that scontrol takes"),
        (("--job", "finetune"), "takes over a whole plan: give it alone"),
        (("--to", "slurm"), "takes over a whole plan: give it alone"),
        (("--option", "nodes=2"), "there is no such option of scontrol"),
        (("--option", "nodes"), "is no NAME=VALUE"),
    ):
        result = run(*to, *more)
        assert (result.exit_code, said in result.stderr) == (ExitCode.BAD_INPUT, True), result.output
    (tmp_path / "other.json").write_text(run("examples", "sia-paper-table1").stdout)
    result = run("export", plan, "--request", tmp_path / "other.json", "--to", "scontrol")
    assert (result.exit_code, "is none of this snapshot" in result.stderr) == (ExitCode.BAD_INPUT, True)
    (tmp_path / "none.json").write_text(json.dumps(json.loads(plan.read_text()) | {"verified": False}))
    result = run("export", tmp_path / "none.json", "--request", request, "--to", "scontrol")
    assert (result.exit_code, "ended without a plan" in result.stderr) == (ExitCode.BAD_INPUT, True)


def test_a_job_with_options_for_its_batch_script(tmp_path: Path) -> None:
    _, plan = planned("gang-queue", tmp_path)
    to = ("export", plan, "--job", "finetune", "--to", "slurm", "--option", "partition=gpu")
    assert "#SBATCH --partition=gpu" in run(*to).stdout
