"""`stowplan export`: plans of every policy, answers of `stowplan parallel` with hosts, and what is no plan."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import local_worker as local
from api.cli.exit_codes import ExitCode
from api.cli.main import app
from solver.pool import WorkerPool
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
