"""Steps of whole models on one GPU: what was measured is predicted as well as is said."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.paths import RESULTS, ROOT
from benchmarks.performance import gpu_steps
from benchmarks.performance.gpu_steps import Measured, predicted, summary
from benchmarks.rows import Row
from executor.training_options import EngineName
from stowplan.records import from_document

_RESULT = json.loads((RESULTS / "gpu_steps.json").read_text(encoding="utf-8"))
_MEASURED = [from_document(Measured, row, "measured") for row in _RESULT["measured"]]


def test_predictions_are_those_of_the_result() -> None:
    rows = predicted(_MEASURED, _RESULT["gpu_type"])
    assert len(rows) == len(_RESULT["rows"])
    for found, written in zip(rows, _RESULT["rows"], strict=True):
        assert found == pytest.approx(written)
    for errors, written in zip(summary(rows), _RESULT["summary"], strict=True):
        assert errors == pytest.approx(written)


@pytest.mark.parametrize("errors", _RESULT["summary"], ids=lambda errors: errors["engine"])
def test_figures_of_the_readme_are_those_of_the_result(errors: Row) -> None:
    def off(name: str) -> str:
        return f"{errors[f'{name} median %']:.1f}, {errors[f'{name} worst %']:+.0f} %"

    name = {"native": "native", "deepspeed": "DeepSpeed"}[str(errors["engine"])]
    memory = "" if errors["memory median %"] is None else off("memory") + " "
    assert (
        f"| {name} | {errors['rows']} | {off('predicted')} | {off('calibrated')} | {errors['within %']:.0f} % | "
        f"{off('inverted')} ({errors['inverted rows']} rows) | {memory}|\n"
    ) in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")


def test_a_result_says_what_it_was_measured_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the executor extra is not installed")
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA H200, 580.159.04, 143771 MiB\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(gpu_steps, "measure", lambda engine: [one for one in _MEASURED if one.case.engine == engine])
    gpu_steps.main("h200", [EngineName.DEEPSPEED], again=False, output=tmp_path / "steps.json")
    document = json.loads((tmp_path / "steps.json").read_text(encoding="utf-8"))
    assert document["gpu"]["driver_version"] == "580.159.04"
    assert document["environment"].keys() >= {"cpu", "commit", "dirty", "versions"}
    assert [row["engine"] for row in document["rows"]] == ["deepspeed"] * 6


def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "gpu-steps", "--output", str(tmp_path / "steps.json")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("skipped: ")
    assert not list(tmp_path.iterdir())
