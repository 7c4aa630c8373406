"""Tutorials are followed: their files are written and their commands run, in a folder of their own, in order.

Those of the admins have tests of their own (`test_slurm_journey.py`, `test_kubernetes_journey.py`).
"""

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from api.cli import local_worker
from api.cli.main import app
from api.schemas.parallel_answer import ParallelPlanAnswer
from solver.pool import WorkerPool
from tests.api.warm import WarmPool
from tests.paths import ROOT

pytestmark = pytest.mark.slow
_BLOCK = re.compile(r"^```(sh|csv)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def follow(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What every command has printed, by its line."""
    monkeypatch.chdir(folder)
    said = {}
    for language, name, text in _BLOCK.findall((ROOT / "docs" / page).read_text()):
        if language == "csv":
            (folder / name).write_text(text)
            continue
        for line in text.splitlines():
            program, *words = shlex.split(line)
            assert program == "stowplan"
            words, into = (words[:-2], words[-1]) if ">" in words else (words, "")
            result = CliRunner().invoke(app, words)
            assert result.exit_code == 0, (line, result.output)
            said[line] = result.stdout
            if into:
                (folder / into).write_text(result.stdout)
    assert said
    return said


@pytest.fixture
def warm(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line plans with a worker that is there."""
    monkeypatch.setattr(local_worker, "WorkerPool", lambda **_: WarmPool(pool))


@pytest.mark.usefixtures("warm")
def test_a_lead_gets_a_plan_nodes_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = follow("lead.md", tmp_path, monkeypatch)
    assert ParallelPlanAnswer.model_validate_json((tmp_path / "parallel.json").read_text()).best.num_gpus == 16
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["verified"]
    assert said["stowplan verify request.json plan.json"].startswith("legal")
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")
    assert {"megatron.sh", "job.sbatch"} <= {path.name for path in (tmp_path / "run").iterdir()}


@pytest.mark.usefixtures("warm")
def test_a_researcher_compares_solvers_and_replays_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = follow("researcher.md", tmp_path, monkeypatch)
    assert any("proven answers agree" in text for text in said.values())
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    replays = json.loads((tmp_path / "replays.json").read_text())["replays"]
    assert len(replays) == 2
