"""`stowplan calibrate`: a calibration that `stowplan parallel` takes, and messages that say what is wrong."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import api
from api.cli.exit_codes import ExitCode
from api.cli.main import app
from api.schemas.model import CalibrationDoc
from tests.models.measured.samples import IB, NCCL, megatron, torchtitan

MODEL = ("--gpu-type", "h100", "--model", "llama2-7b", "--global-batch", "64")
PLAN = "pp1,dp8,tp1,mb8"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["calibrate", *(str(argument) for argument in arguments)])


def calibration(*arguments: object) -> CalibrationDoc:
    result = run(*arguments)
    assert result.exit_code == ExitCode.PLANNED, result.output
    return CalibrationDoc.model_validate_json(result.stdout)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "train.log"
    file.write_text(megatron([9000.0, *[4000.0] * 9]), encoding="utf-8")
    return file


def test_logs_times_and_bandwidths(log: Path, tmp_path: Path) -> None:
    links, network = tmp_path / "links.txt", tmp_path / "network.txt"
    links.write_text(NCCL, encoding="utf-8")
    network.write_text(IB, encoding="utf-8")
    other = "pp2,dp4,tp1,mb16=4.4"
    found = calibration(log, links, network, *MODEL, "--degrees", PLAN, "--iteration-time", other).adjustment
    assert found is not None
    assert found.num_points == 2
    assert found.link != 1.0
    assert found.covariance is not None
    by_log = calibration(log, *MODEL, "--degrees", PLAN).adjustment
    assert by_log is not None
    by_time = calibration("--iteration-time", f"{PLAN}=4.0", *MODEL).adjustment
    assert by_time is not None
    assert by_log.computation == pytest.approx(by_time.computation)


def test_tokens_per_second_are_times(tmp_path: Path) -> None:
    file = tmp_path / "titan.log"
    # 64 sequences of 4096 tokens on 8 GPUs in 4 s.
    file.write_text(torchtitan([8192] * 9), encoding="utf-8")
    found = calibration(file, *MODEL, "--degrees", PLAN)
    assert found.source is not None
    assert "4 s an iteration of PP1 DP8 TP1" in found.source


def test_it_goes_on_from_a_calibration(log: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.json"
    assert run(log, *MODEL, "--degrees", PLAN, "-o", first).exit_code == ExitCode.PLANNED
    assert json.loads(first.read_text())["gpus"] == {}
    found = calibration("--iteration-time", "pp2,dp4,tp1,mb16=4.4", *MODEL, "--calibration", first).adjustment
    assert found is not None
    assert found.num_points == 2


def test_systems_that_come_along() -> None:
    files = sorted((Path(api.__file__).parent / "calibrations").glob("*.json"))
    assert "dgx-a100-80gb-megatron-lm" in [file.stem for file in files]
    for file in files:
        found = CalibrationDoc.model_validate_json(file.read_text(encoding="utf-8"))
        assert found.adjustment is not None
        assert found.source is not None
        # Of H200s one row was published, and equal plans of several versions are one point.
        assert found.adjustment.num_points >= (1 if file.stem == "hgx-h200-torchtitan-fp8" else 4)
        assert ("left out" in found.source) is (found.adjustment.num_points > 1)
    started = calibration("--iteration-time", f"{PLAN}=4", *MODEL, "--calibration", "hgx-h100-nemo-fp8").adjustment
    assert started is not None
    assert started.num_points > 5


def test_messages(log: Path, tmp_path: Path) -> None:
    broken, short = tmp_path / "broken.json", tmp_path / "short.log"
    broken.write_text('{"adjustment": {"covariance": [[1.0]]}}', encoding="utf-8")
    short.write_text(megatron([4000.0] * 4), encoding="utf-8")
    for arguments, message in [
        ((), "--gpu-type is missing"),
        (MODEL, "nothing was measured"),
        ((tmp_path / "no.log", *MODEL), "cannot be read"),
        ((short, *MODEL, "--degrees", PLAN), "has 1 settled iterations"),
        ((log, *MODEL), "say which in --degrees"),
        (
            (log, *MODEL[:4], "--global-batch", "128", "--degrees", PLAN),
            "has a global batch of 64, where the job has 128",
        ),
        ((log, *MODEL[:2], "--degrees", PLAN), "--model is missing"),
        ((log, *MODEL[:2], "--model", "gpt2-350m", "--global-batch", "64", "--degrees", PLAN), "too far for a calib"),
        (("--iteration-time", f"{PLAN}=fast", *MODEL), "(seconds)"),
        (("--iteration-time", f"{PLAN}=-3", *MODEL), "above 0"),
        (("--iteration-time", f"{PLAN}=4", *MODEL, "--calibration", broken), "positive definite"),
        (("--iteration-time", f"{PLAN}=4", *MODEL, "--calibration", "dgx-x"), "dgx-a100-80gb-megatron-lm"),
    ]:
        refused = run(*arguments)
        assert refused.exit_code == ExitCode.BAD_INPUT, (arguments, refused.output)
        assert message in " ".join(refused.stderr.split()), (arguments, refused.stderr)
