"""`stowplan parallel`: tables, JSON, pictures, and messages that say what is wrong."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import local_worker as local
from api.cli.exit_codes import ExitCode
from api.cli.main import app
from api.cli.parallel_console import tuner_words
from api.schemas.parallel_answer import ParallelPlanAnswer, TunerDoc
from solver.pool import WorkerPool
from tests.api.warm import WarmPool
from tests.own_catalogue import CATALOGUE

pytestmark = pytest.mark.slow
SMALL = ("--model", "gpt2-350m", "--global-batch", "64")
AUTO = ("--checkpointing", "auto", "--zero-stage", "auto")


@pytest.fixture
def warm(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line plans with a worker that is there."""
    monkeypatch.setattr(local, "WorkerPool", lambda **_: WarmPool(pool))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["parallel", *(str(argument) for argument in arguments)])


def test_tables_json_and_picture(tmp_path: Path) -> None:
    figure, output = tmp_path / "plan.svg", tmp_path / "plan.json"
    result = run(*SMALL, "--gpus", "4-8", "--gpu-type", "h100", "--figure", figure, "--output", output)
    assert result.exit_code == ExitCode.PLANNED, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["type", "GPUs", "samples/s", "iteration", "per", "GPU", "plan"] in lines
    assert [line[1] for line in lines if line[:1] == ["h100"]] == ["4", "8"]
    assert any(line[:1] == ["compute"] and line[-1] == "%" for line in lines)
    # What is marked, and of how many plans it is the best.
    assert [line[1] for line in lines if line[-1:] == ["*"]] == ["8"]
    assert "* the best of these: most samples per second" in result.stdout
    assert re.search(r"to be sure by measuring: \d+ plans? of the [\d,]+ that differ", result.stdout)
    assert figure.read_text().startswith("<?xml")
    assert ParallelPlanAnswer.model_validate_json(output.read_text()).best.num_gpus == 8


@pytest.mark.parametrize(("before", "words"), [(1234.0, "of the 1,234 that"), (5.03e90, "of the about 10^91 that")])
def test_numbers_of_plans_can_be_read(before: float, words: str) -> None:
    tuner = TunerDoc(gpu_type="h100", num_gpus=8, pp=2, max_bias=0.1, num_before=before, num_after=7)
    assert words in tuner_words(tuner)


@pytest.mark.usefixtures("warm")
def test_several_types_and_what_does_not_fit() -> None:
    result = run("--model", "llama2-13b", "--gpus", "4,16", "--gpu-type", "h100,a10", "--json")
    assert result.exit_code == ExitCode.PLANNED, result.output
    answer = ParallelPlanAnswer.model_validate_json(result.stdout)
    assert [(point.gpu_type, point.num_gpus) for point in answer.points] == [("h100", 16)]
    assert {(missing.gpu_type, missing.num_gpus) for missing in answer.missing} == {
        ("h100", 4),
        ("a10", 4),
        ("a10", 16),
    }


@pytest.mark.usefixtures("warm")
def test_given_degrees_and_a_request_in_a_file(tmp_path: Path) -> None:
    request = {"job": {"model": "gpt2-350m", "global_batch": 8}, "gpus": [{"gpu_type": "h100"}]}
    degrees = {"pp": 2, "dp": 1, "tp": 2, "num_micro_batches": 4}
    file = tmp_path / "request.json"
    file.write_text(json.dumps({**request, "degrees": degrees}))
    result = run(file, "--json")
    assert result.exit_code == ExitCode.PLANNED, result.output
    whole = ParallelPlanAnswer.model_validate_json(result.stdout)
    result = run(
        *("--model", "gpt2-350m", "--global-batch", "8", "--gpu-type", "h100", "--degrees", "pp2,dp1,tp2,mb4", "--json")
    )
    assert ParallelPlanAnswer.model_validate_json(result.stdout).best == whole.best
    assert run(*SMALL, "--gpu-type", "h100", "--degrees", "pp2x3,dp1,tp2,mb4").exit_code == ExitCode.BAD_INPUT
    result = run(
        *SMALL, "--gpu-type", "h100", "--software", "torch", "--degrees", "pp2x3,dp1,tp2,mb4", "--tokens", "1e9"
    )
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert "PP2x3 DP1 TP2 (12+12 layers" in result.stdout
    result = run(*SMALL, "--gpu-type", "h100", "--software", "torch", "--degrees", "pp1,dp2,tp1,cp2,mb4", "--json")
    assert ParallelPlanAnswer.model_validate_json(result.stdout).best.notation.startswith("PP1 DP2 TP1 CP2 (24 layers")
    result = run(
        *SMALL, "--gpu-type", "h100", "--software", "torch", "--gpus", "4", "--context-parallel", "2", "--json"
    )
    assert ParallelPlanAnswer.model_validate_json(result.stdout).best.plan.context_parallel == 2


@pytest.mark.usefixtures("warm")
def test_schedules() -> None:
    eager = (*SMALL, "--gpu-type", "h100", "--software", "torch-eager")
    for degrees, notation in (("pp2x3zb,dp1,tp2,mb4", "PP2x3ZB DP1 TP2"), ("pp2zbv,dp1,tp2,mb4", "PP2ZBV DP1 TP2")):
        result = run(*eager, "--degrees", degrees, "--json")
        assert ParallelPlanAnswer.model_validate_json(result.stdout).best.notation.startswith(notation)
    result = run(*eager, "--gpus", "2", "--schedules", "zbv", "--json")
    assert ParallelPlanAnswer.model_validate_json(result.stdout).best.plan.schedule == "zbv"


@pytest.mark.usefixtures("warm")
def test_days_for_tokens() -> None:
    result = run(
        *SMALL, "--gpu-type", "h100", "--software", "torch", "--degrees", "pp2x3,dp1,tp2,mb4", "--tokens", "1e9"
    )
    assert re.search(r"MFU [0-9.]+ %, [0-9.e+]+ tokens/s per GPU, [0-9.]+ days", result.stdout)


@pytest.mark.usefixtures("warm")
def test_what_of_the_training_is_left_to_the_search() -> None:
    result = run(*SMALL, "--gpus", "2", "--gpu-type", "h100", *AUTO, "--json")
    assert result.exit_code == ExitCode.PLANNED, result.output
    found = ParallelPlanAnswer.model_validate_json(result.stdout)
    assert len(found.alternatives) == 12
    assert found.alternatives[0].training == found.best.training
    assert found.alternatives[0].notation == found.best.notation
    wrong = run(*SMALL, "--gpus", "2", "--gpu-type", "h100", "--zero-stage", "4")
    assert wrong.exit_code == ExitCode.BAD_INPUT
    result = run(*SMALL, "--gpu-type", "h100", "--degrees", "pp1,dp1,tp1,mb4", *AUTO)
    assert result.exit_code == ExitCode.PLANNED, result.output


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpus", "8", "--gpu-type", "h100"), "--model is missing"),
        ((*SMALL, "--gpus", "8"), "--gpu-type is missing"),
        ((*SMALL, "--gpus", "many", "--gpu-type", "h100"), "give whole numbers"),
        ((*SMALL, "--gpus", "0", "--gpu-type", "h100"), "must be at least 1"),
        ((*SMALL, "--gpus", "8", "--gpu-type", "h10"), "did you mean 'h100'"),
        ((*SMALL, "--gpus", "8", "--gpu-type", "h100", "--degrees", "2x2"), "write pp2,dp2,tp4,mb32"),
        (
            (*SMALL, "--gpus", "8", "--gpu-type", "h100", "--expert-parallel", "0"),
            "--expert-parallel is '0'; give degrees",
        ),
        (
            (*SMALL, "--gpus", "8", "--gpu-type", "h100", "--context-parallel", "2"),
            "no symmetric plan with CP [2] fits",
        ),
        ((*SMALL, "--gpus", "8", "--gpu-type", "h100", "--schedules", "zbv"), "with schedules ['zbv'] fits"),
        ((*SMALL, "--gpus", "8", "--gpu-type", "h100", "--schedules", "zb"), "'1f1b', 'zero-bubble' or 'zbv'"),
        (
            (*SMALL, "--gpu-type", "h100", "--degrees", "pp2zbv,dp1,tp2,mb4"),
            "deepspeed runs no zero-bubble schedule",
        ),
        ((*SMALL, "--gpus", "8", "--gpu-type", "h100", "--planner", "best"), "must be 'grid'"),
        ((*SMALL, "--gpus", "8", "--gpu-type", "h100", "--figure", "plan.gif"), "must end in .svg or .png"),
        (("request.json", *SMALL), "beside FILE"),
        (("--model", "gpt2-175b", "--gpus", "1", "--gpu-type", "a10"), "fits nowhere"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert words in result.stderr.replace("\n", "")


def test_a_model_and_a_gpu_that_only_the_users_catalogue_has(tmp_path: Path) -> None:
    """Both have the figures of shipped ones, so the worker plans the same: it reads the file, too."""
    own = tmp_path / "own.toml"
    own.write_text(CATALOGUE)
    arguments = ("--global-batch", "64", "--gpus", "4", "--json")
    result = run("--model", "own-0.4b", "--gpu-type", "Example Corp X1 80GB", "--catalogue", own, *arguments)
    assert result.exit_code == ExitCode.PLANNED, result.output
    best = ParallelPlanAnswer.model_validate_json(result.stdout).best
    result = run("--model", "gpt2-350m", "--gpu-type", "h100", "--gpus-per-node", "4", *arguments)
    shipped = ParallelPlanAnswer.model_validate_json(result.stdout).best
    assert (best.gpu_type, best.iteration_s) == ("x1", shipped.iteration_s)
    result = run("--model", "own-0.4b", "--gpu-type", "h100", *arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "no model 'own-0.4b' in the catalogue" in result.stderr


def test_the_users_catalogue_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.toml").write_text("[gpu.x1]\nmemory_bytes = -1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STOWPLAN_CATALOGUE", "own.toml")
    result = run(*SMALL, "--gpus", "4", "--gpu-type", "h100")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert "own.toml: the catalogue has 8 faults" in result.stderr
    assert "/gpu/x1/memory_bytes: is -1; must be a whole number from 1 to" in result.stderr


def test_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_PARALLEL_TASK", "tests.api.tasks:deaf_task")
    result = run(*SMALL, "--gpus", "8", "--gpu-type", "h100", "--time-limit", "0.1")
    assert result.exit_code == ExitCode.NO_SOLUTION
    assert "not done within 0.1 s" in result.stderr


_CONFIG = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "max_position_embeddings": 131072,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "vocab_size": 32000,
}
_ARGUMENTS = """--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --vocab-size 50257
--micro-batch-size 2 --global-batch-size 64 --bf16 --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2"""


@pytest.mark.usefixtures("warm")
def test_a_model_in_a_file(tmp_path: Path) -> None:
    """What is not given is that of the file; what the file leaves open is told, unless it is given."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(_CONFIG), encoding="utf-8")
    result = run("--model", file, "--gpus", "4", "--gpu-type", "h100", "--json")
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert "note: sequences of 8,192 tokens are assumed" in result.stderr
    assert ParallelPlanAnswer.model_validate_json(result.stdout).best.num_gpus == 4
    shorter = run("--model", file, "--gpus", "4", "--gpu-type", "h100", "--sequence-length", "1024", "--json")
    assert "note" not in shorter.stderr
    assert shorter.stdout != result.stdout


@pytest.mark.usefixtures("warm")
def test_the_plan_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(_ARGUMENTS, encoding="utf-8")
    base = ("--model", file, "--gpu-type", "h100")
    result = run(*base, "--gpus", "8", "--degrees", "file", "--json")
    assert result.exit_code == ExitCode.PLANNED, result.output
    plan = ParallelPlanAnswer.model_validate_json(result.stdout).best
    assert (plan.num_gpus, plan.notation[:11]) == (8, "PP2 DP2 TP2")
    file.write_text(f"{_ARGUMENTS} --recompute-granularity full --recompute-method block", encoding="utf-8")
    some = run(*base, "--gpus", "8", "--degrees", "file", "--json")
    assert "recomputing 2 full 1" in ParallelPlanAnswer.model_validate_json(some.stdout).best.notation
    assert "full 1" in run(*base, "--gpus", "8", "--degrees", "file").stdout
    assert "--degrees file evaluates that" in run(*base, "--gpus", "4").stderr
    longer = tmp_path / "long.sh"
    longer.write_text(_ARGUMENTS.rstrip() + " --context-parallel-size 2\n", encoding="utf-8")
    result = run("--model", longer, *base[2:], "--gpus", "8", "--degrees", "file", "--json")
    assert ParallelPlanAnswer.model_validate_json(result.stdout).best.notation[:15] == "PP2 DP1 TP2 CP2"
    for arguments, message in [
        ((*base, "--degrees", "file"), "does not say on how many GPUs it runs; give --gpus"),
        ((*base, "--degrees", "file", "--gpus", "4,8"), "give --gpus one number"),
        ((*base, "--degrees", "file", "--gpus", "6"), "6 GPUs do not divide into replicas of pp 2 x tp 2"),
        ((*base, "--degrees", "file", "--gpus", "8", "--global-batch", "6"), "does not divide into micro-batches of 2"),
        (("--model", "gpt2-350m", "--gpu-type", "h100", "--degrees", "file"), "is no file that says how it runs"),
    ]:
        refused = run(*arguments)
        assert refused.exit_code == ExitCode.BAD_INPUT, refused.output
        assert message in refused.stderr


def test_a_file_that_describes_no_model(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(_CONFIG | {"hidden_size": None}), encoding="utf-8")
    result = run("--model", file, "--gpus", "4", "--gpu-type", "h100")
    assert result.exit_code == ExitCode.BAD_INPUT
    assert f"{file}: the description of the model has 1 fault" in result.stderr
    assert "/hidden_size: is missing" in result.stderr
