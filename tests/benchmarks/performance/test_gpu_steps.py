"""Steps of whole models on one GPU: what was measured is predicted as well as is said."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest

from benchmarks.paths import RESULTS, ROOT
from benchmarks.performance import gpu_steps
from benchmarks.performance.gpu_steps import Measured, predicted, summary
from benchmarks.rows import Row
from executor.training_options import EngineName
from stowplan.records import from_document

_RESULTS = {
    str(document["gpu_type"]): document
    for file in sorted(RESULTS.glob("gpu_steps*.json"))
    for document in [json.loads(file.read_text(encoding="utf-8"))]
}
_RESULT = _RESULTS["h200"]
_MEASURED = [from_document(Measured, row, "measured") for row in _RESULT["measured"]]


@pytest.mark.parametrize("gpu_type", ["h200", "h100"])
def test_predictions_are_those_of_the_result(gpu_type: str) -> None:
    result = _RESULTS[gpu_type]
    rows = predicted([from_document(Measured, row, "measured") for row in result["measured"]], gpu_type)
    assert len(rows) == len(result["rows"])
    for found, written in zip(rows, result["rows"], strict=True):
        assert found == pytest.approx(written)
    for errors, written in zip(summary(rows), result["summary"], strict=True):
        assert errors == pytest.approx(written)


@pytest.mark.parametrize(
    ("gpu_type", "errors"),
    [
        pytest.param(gpu_type, errors, id=f"{gpu_type}-{errors['engine']}")
        for gpu_type, result in _RESULTS.items()
        for errors in result["summary"]
    ],
)
def test_figures_of_the_readme_are_those_of_the_result(gpu_type: str, errors: Row) -> None:
    def off(name: str) -> str:
        return f"{errors[f'{name} median %']:.1f}, {errors[f'{name} worst %']:+.0f} %"

    name = {"native": "native", "deepspeed": "DeepSpeed"}[str(errors["engine"])]
    assert (
        f"| {gpu_type.upper()}, {name} | {errors['rows']} | {off('predicted')} | {off('calibrated')} | "
        f"{errors['within %']:.0f} % | {off('inverted')} ({errors['inverted rows']} rows) | {off('memory')} |\n"
    ) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


@pytest.fixture(name="gpu")
def _gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that says it has an H200, whose steps are those of the result."""
    pytest.importorskip("torch", reason="the executor extra is not installed")
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho NVIDIA H200, 580.159.04, 143771 MiB\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def measure(engine: EngineName, only: Sequence[str]) -> list[Measured]:
        return [
            one
            for one in _MEASURED
            if one.case.engine == engine and any(fnmatch(one.case.name, pattern) for pattern in only)
        ]

    monkeypatch.setattr(gpu_steps, "measure", measure)
    return tool


@pytest.mark.usefixtures("gpu")
def test_a_result_says_what_it_was_measured_on(tmp_path: Path) -> None:
    gpu_steps.main("h200", [EngineName.DEEPSPEED], ["*"], again=False, output=tmp_path / "steps.json")
    document = json.loads((tmp_path / "steps.json").read_text(encoding="utf-8"))
    assert document["gpu"]["driver_version"] == "580.159.04"
    assert document["environment"].keys() >= {"cpu", "commit", "dirty", "versions"}
    names = [one.case.name for one in _MEASURED if one.case.engine is EngineName.DEEPSPEED]
    assert [row["engine"] for row in document["rows"]] == ["deepspeed"] * len(names) != []
    assert "before" not in document


def test_cases_that_are_measured_anew_take_the_place_of_what_they_were(gpu: Path, tmp_path: Path) -> None:
    file, engines = tmp_path / "steps.json", [EngineName.DEEPSPEED]
    gpu_steps.main("h200", engines, ["*"], again=False, output=file)
    whole = json.loads(file.read_text(encoding="utf-8"))
    other = {**whole["measured"][-1], "step_s": 7.0}
    file.write_text(json.dumps({**whole, "command": "earlier", "measured": [*whole["measured"][:-1], other]}))
    gpu_steps.main("h200", engines, ["llama2-70b/*"], again=False, output=file)
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found["measured"] == whole["measured"]
    assert found["rows"] == whole["rows"]
    assert [each["command"] for each in found["before"]] == ["earlier"]
    gpu.write_text("#!/bin/sh\necho NVIDIA H100, 580.159.04, 81559 MiB\n")
    with pytest.raises(SystemExit, match="give another --output"):
        gpu_steps.main("h100", engines, ["llama2-70b/*"], again=False, output=file)


def test_some_cases_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is trained here: what would be is said not to have been reached."""
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: started.append(command))
    patterns = ["*/selective", "gpt2-1.3b/24/1024x4/none"]
    found = list(gpu_steps.measure(EngineName.NATIVE, patterns))
    assert {one.fault for one in found} == {"not reached"}
    assert sorted(one.case.name for one in found) == [
        "gpt2-1.3b/24/1024x4/none",
        "gpt2-1.3b/24/1024x4/selective",
        "llama3.1-8b/4/8192x1/selective",
        "llama3.2-1b/16/2048x4/selective",
        "llama3.2-1b/16/8192x1/selective",
    ]
    assert not list(gpu_steps.measure(EngineName.DEEPSPEED, ["*/selective"]))
    assert len(started) == 1


def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "gpu-steps", "--output", str(tmp_path / "steps.json")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("skipped: ")
    assert not list(tmp_path.iterdir())
