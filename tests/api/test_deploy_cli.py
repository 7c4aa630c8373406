"""`stowplan deploy` and `stowplan redeploy`, on local processes that only pretend to train."""

import json
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api.cli import app
from api.shell import ExitCode
from executor.deployment import LaunchOptions
from executor.launch.local import LocalBackend
from executor.supervision import Phase, Supervisor
from tests.api.test_deployments import body, plan

_ROOT = Path(__file__).parents[2]
_LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _pretending(monkeypatch: pytest.MonkeyPatch) -> None:
    script = _ROOT / "tests" / "executor" / "pretend_trainer.py"
    monkeypatch.setattr("api.deploying.LaunchOptions", partial(LaunchOptions, command=(sys.executable, str(script))))
    # Handlers belong to the main thread; the command runs in another one here.
    monkeypatch.setattr("api.deploy_cli.signal.signal", lambda *_: None)
    monkeypatch.setenv("PYTHONPATH", str(_ROOT))


def written(folder: Path, document: dict[str, Any], name: str = "request.json") -> str:
    path = folder / name
    path.write_text(json.dumps(document))
    return str(path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output + (result.stderr if result.stderr not in result.output else "")


def test_a_dry_run_writes_and_starts_nothing(tmp_path: Path) -> None:
    code, said = run("deploy", written(tmp_path, body()), "--dry-run", "-o", str(tmp_path / "out"))
    assert code == ExitCode.PLANNED, said
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"hostfile", "ds_config.json", "ranks.csv", "launch-ssh.sh", "job.sbatch", "jobset.yaml"} <= names
    assert not (tmp_path / "out" / "logs").exists()


def test_deploy_follows_the_training_to_its_end(tmp_path: Path) -> None:
    code, said = run("deploy", written(tmp_path, body()), "-o", str(tmp_path / "job"))
    assert code == ExitCode.PLANNED, said
    assert "finished: step 12" in said


def test_redeploy_changes_a_deployment_that_another_process_looks_after(tmp_path: Path) -> None:
    training = {"device": "cpu", "num_steps": 80, "checkpoint_interval": 5}
    ended: list[tuple[int, str]] = []
    request = written(tmp_path, body(training=training))
    first = threading.Thread(target=lambda: ended.append(run("deploy", request, "-o", str(tmp_path / "job"))))
    first.start()
    supervisor = Supervisor(tmp_path / "job", LocalBackend())
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        if (tmp_path / "job" / "state.json").exists() and supervisor.state().phase is Phase.RUNNING:
            break
        time.sleep(0.05)
    change = written(tmp_path, {"plan": plan([(4, 2)], local=2)}, "change.json")
    code, said = run("redeploy", str(tmp_path / "job"), change)
    assert code == ExitCode.PLANNED, said
    assert "PP2 DP1 TP1 (2+2 layers, 2 x 4) -> PP1 DP2 TP1" in said
    first.join(_LIMIT_S)
    assert [code for code, _ in ended] == [ExitCode.PLANNED]
    assert [run.plan[:7] for run in supervisor.state().runs] == ["PP2 DP1", "PP1 DP2"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"plan": plan([(2, 1), (2, 2)])}, "project it to a symmetric one"),
        ({"plan": plan([(2, 1), (2, 2)]), "project": True}, "needs to know the GPUs"),
        ({"plan": None, "plan_id": "plan-7"}, "needs a service"),
        ({"training": {"device": "cpu", "num_steps": 0}}, "/training/num_steps"),
    ],
)
def test_what_cannot_be_deployed(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    request = {key: value for key, value in body(**changes).items() if value is not None}
    code, said = run("deploy", written(tmp_path, request), "-o", str(tmp_path / "job"))
    assert (code, says in said) == (ExitCode.BAD_INPUT, True), said
    assert not (tmp_path / "job" / "state.json").exists()


def test_redeploying_what_is_not_there(tmp_path: Path) -> None:
    code, said = run("redeploy", str(tmp_path / "none"), written(tmp_path, {"plan": plan([(4, 1)], local=8)}))
    assert code == ExitCode.BAD_INPUT
    assert "cannot be read as a deployment" in said
