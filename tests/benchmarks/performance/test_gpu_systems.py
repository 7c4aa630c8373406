"""Calibrations of the native engine come along as they are fitted, and are as good as is said."""

from pathlib import Path

import pytest

from api.convert.job_model import shipped_calibrations
from benchmarks.paths import ROOT
from benchmarks.performance import gpu_systems
from benchmarks.performance.gpu_systems import figures, steps_by_gpu, write_calibration

_STEPS = steps_by_gpu()


@pytest.mark.parametrize("gpu_type", ["h200", "h100"])
def test_what_comes_along_is_what_is_fitted(gpu_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_systems, "FOLDER", tmp_path)
    write_calibration(gpu_type, _STEPS[gpu_type])
    found, shipped = (tmp_path / f"{gpu_type}-native.json"), shipped_calibrations()[f"{gpu_type}-native"]
    document = type(shipped).model_validate_json(found.read_text(encoding="utf-8"))
    assert document.source == shipped.source
    assert document.adjustment is not None
    assert shipped.adjustment is not None
    for name in ("computation", "memory", "launch", "num_points"):
        assert getattr(document.adjustment, name) == pytest.approx(getattr(shipped.adjustment, name), rel=1e-6)


@pytest.mark.parametrize("gpu_type", ["h200", "h100"])
def test_figures_of_the_readme_are_those_of_the_steps(gpu_type: str) -> None:
    rows = list(figures(gpu_type, _STEPS))
    said = " | ".join(f"{row['median %']:.1f}, {row['worst %']:+.0f} %" for row in rows)
    assert f"| {gpu_type}-native | {said} |\n" in (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    # Of models and of a card that had no part in it, too.
    before, *after = (float(str(row["median %"])) for row in rows)
    assert max(after) < 0.5 * before
