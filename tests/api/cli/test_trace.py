"""`stowplan trace`: figures, JSON, choice of jobs, and the table that it writes."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import paths
from api.cli.exit_codes import ExitCode
from api.cli.main import app
from tests.workloads.readers.slurm_samples import STEPS
from tests.workloads.readers.test_layouts import HELIOS, OPENB
from workloads.readers import read_trace


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["trace", *(str(argument) for argument in arguments)])


@pytest.fixture
def helios(tmp_path: Path) -> Path:
    path = tmp_path / "venus.csv"
    path.write_text(HELIOS)
    return path


def test_figures_are_printed(helios: Path) -> None:
    result = run(helios, "--gpus", 16)
    assert result.exit_code == ExitCode.PLANNED, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["venus"] in lines
    assert ["jobs", "3,", "3", "with", "GPUs,", "of", "3", "users"] in lines
    assert ["submitted", "2020-06-09", "18:41", "to", "2020-06-09", "18:41", "UTC"] in lines
    # 36848 + 4 x 249 + 675233 GPU seconds, over 27 s.
    assert ["GPU", "hours", "198.1"] in lines
    assert any(line[:3] == ["load", "26,410.3", "GPUs"] and "165064.1" in line for line in lines)
    assert ["1", "2", "66.7", "%", "197.8"] in lines
    assert "states: completed 1, failed 1, canceled 1" in result.stdout
    assert "missing: of all jobs with GPUs gpu_type, application" in result.stdout


def test_what_was_left_out_and_what_is_shared_is_told(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(STEPS)
    (tmp_path / "pods.csv").write_text(OPENB)
    slurm, pods = run(tmp_path / "sacct.txt").stdout, run(tmp_path / "pods.csv").stdout
    assert "left out: steps of jobs 2, array tasks that have not begun 1" in slurm
    assert "of some" in slurm
    assert "1 job asked for parts of GPUs" in pods
    assert "1 job ran when last seen" in pods


def test_json_has_every_figure(helios: Path) -> None:
    result = run(helios, "--json")
    document = json.loads(result.stdout)
    assert (document["name"], document["num_jobs"], document["span_s"]) == ("venus", 3, 27.0)
    assert document["sizes"][1] == {"num_gpus": 4, "num_jobs": 1, "gpu_hours": pytest.approx(0.2767, abs=1e-4)}
    assert document["missing"]["deadline_s"] == 3


def test_jobs_are_chosen_and_written(helios: Path, tmp_path: Path) -> None:
    output = tmp_path / "some.csv"
    result = run(helios, "--queue", "vcJkd", "--queue", "vchbv", "--gpu-only", "--window", "0,0.0075", "-o", output)
    assert result.exit_code == ExitCode.PLANNED, result.output
    written = read_trace(output)
    assert [job.id for job in written.jobs] == ["1425511", "1425512"]
    assert written.origin_s == read_trace(helios).origin_s


def test_columns_may_be_named_and_standard_input_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.csv"
    path.write_text("t,n\n5,2\n")
    result = run(path, "--columns", "submit=t,gpus=n")
    assert (result.exit_code, result.stdout.splitlines()[0]) == (ExitCode.PLANNED, "own")
    monkeypatch.setattr(paths, "_STDIN", path)
    assert run("-", "--columns", "submit=t,gpus=n").stdout.splitlines()[0] == "stdin"


@pytest.mark.parametrize(
    ("arguments", "detail"),
    [
        (("--format", "sia"), "there is no column 'name'"),
        (("--format", "excel"), "there is no format 'excel' of traces"),
        (("--queue", "none"), "has no queue 'none'; it has ['vcJkd', 'vchbv', 'vcpDC']"),
        (("--window", "5"), "--window is '5'; must be two hours such as 24,48"),
        (("--window", "5,4"), "the window from 18000.0 to 14400.0 s is none"),
        (("--columns", "gpus=n"), "there is no column 'n' for gpus"),
        (("-o", "/proc/nowhere/t.csv"), "/proc/nowhere/t.csv: cannot be written"),
    ],
)
def test_what_is_wrong_is_told(helios: Path, arguments: tuple[str, ...], detail: str) -> None:
    result = run(helios, *arguments)
    assert result.exit_code == ExitCode.BAD_INPUT
    assert detail in result.stderr
