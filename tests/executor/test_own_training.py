"""A plain torch program of a user on CPU ranks, killed in the middle."""

import json
import sys
from pathlib import Path

import pytest

from executor.deployment import Deployment, LaunchOptions, TrainingOptions
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, Phase
from executor.supervision import Supervisor
from executor.training_options import Device
from models.parallel_plan import symmetric_plan
from tests.executor.jobs import GPT
from tests.executor.test_supervision import drive
from tests.paths import ROOT
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.training]
_PROGRAM = ROOT / "tests" / "executor" / "own_training.py"


def test_it_goes_on_from_its_own_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[executor]'")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    plan = symmetric_plan(
        num_layers=4,
        pp=1,
        dp=2,
        tp=1,
        global_batch=8,
        num_micro_batches=2,
        gpu_type="cpu",
        gpus=(("a", 0), ("a", 1)),
    )
    program = (sys.executable, str(_PROGRAM), str(tmp_path / "own.pt"), "12", "8")
    deployment = Deployment(
        name="own",
        model=GPT,
        plan=plan,
        training=TrainingOptions(device=Device.CPU),
        launch=LaunchOptions(program=program, master_port=free_port(), grace_s=1.0),
    )
    supervisor = Supervisor(tmp_path / "d", LocalBackend())
    supervisor.deploy(deployment)
    state = drive(supervisor, lambda state: state.phase.final)
    assert (state.phase, state.detail) == (Phase.FINISHED, "")
    assert [run.cause for run in state.runs] == [Cause.DEPLOYED, Cause.RESTARTED]
    assert "SIGKILL" in state.runs[1].detail
    # It had told of seven steps, five of which were in its checkpoint.
    assert state.runs[1].from_step == 7
    lines = (supervisor.folder(2) / "metrics" / "own-rank1.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(6, 13))
    status = supervisor.status()
    assert status.step == 12
    assert status.loss is not None
    assert 0 < status.loss < 10
    assert state.runs[1].cost_s is not None
