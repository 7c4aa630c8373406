"""Steps of whole models on one GPU: what was measured is predicted as well as is said."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.paths import RESULTS
from benchmarks.performance.gpu_steps import Measured, predicted, summary
from executor.training_options import EngineName
from stowplan.records import from_document
from tests.paths import ROOT


def test_measured_steps_are_predicted_as_is_said() -> None:
    document = json.loads((RESULTS / "gpu_steps.json").read_text(encoding="utf-8"))
    measured = [from_document(Measured, row, "measured") for row in document["measured"]]
    native = [one for one in measured if one.case.engine is EngineName.NATIVE]
    rows = predicted(native, document["gpu_type"])
    (errors,) = summary(rows)
    assert errors["rows"] == 22
    assert errors["calibrated median %"] < 10  # type: ignore[operator]
    assert errors["within %"] > 80  # type: ignore[operator]
    # What selective checkpointing keeps here is not known.
    for row in rows:
        error = 0.13 if row["checkpointing"] == "selective" else 0.04
        assert row["predicted_bytes"] == pytest.approx(row["measured_bytes"], rel=error)


def test_without_a_gpu_nothing_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "gpu-steps", "--output", str(tmp_path / "steps.json")]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": ""}, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("skipped: ")
    assert not list(tmp_path.iterdir())
