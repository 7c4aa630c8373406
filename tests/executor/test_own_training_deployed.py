"""A placement becomes a training of one's own program on the command line, which is killed and goes on."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.cli import local_worker as local
from api.cli.exit_codes import ExitCode
from api.cli.main import app
from executor.export import FORMATS
from executor.launch.local import LocalBackend
from executor.lifecycle import Cause, Phase
from executor.supervision import Supervisor
from solver.pool import WorkerPool
from tests.api.conftest import pool
from tests.api.requests import Json, arnold_request
from tests.api.warm import WarmPool
from tests.paths import ROOT
from tests.ports import free_port

pytestmark = pytest.mark.slow
# pytest finds fixtures by name in the module that uses them.
__all__ = ["pool"]

_PROGRAM = ROOT / "tests" / "executor" / "own_training.py"
_MODEL: Json = {
    "num_layers": 4,
    "hidden_size": 256,
    "num_heads": 4,
    "vocabulary_size": 1000,
    "sequence_length": 128,
    "global_batch": 8,
    "micro_batch": 1,
}


@pytest.fixture(autouse=True)
def _warm(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "WorkerPool", lambda **_: WarmPool(pool))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def planned(folder: Path, body: Json, num_gpus: int, **parallelism: int) -> tuple[Path, Path]:
    """Files of a request for one job, and of its plan."""
    (job,) = body["snapshot"]["jobs"]
    job |= {"min_gpus": num_gpus, "max_gpus": num_gpus, "parallelism": parallelism, "transformer": _MODEL}
    request, plan = folder / "request.json", folder / "plan.json"
    request.write_text(json.dumps(body))
    result = run("plan", request, "-o", plan)
    assert result.exit_code == ExitCode.PLANNED, result.output
    return request, plan


def ahead_request() -> Json:
    """The same job under `ahead`, which starts it now or later."""
    return arnold_request(parameters={}) | {"policy": "ahead"}


# They are told an image.
_KUBERNETES = ("jobset", "job", "leaderworkerset", "trainjob")


@pytest.mark.parametrize("policy", ["arnold", "ahead"])
def test_a_placement_is_exported_to_every_format_and_deployed(tmp_path: Path, policy: str) -> None:
    body = arnold_request() if policy == "arnold" else ahead_request()
    if policy == "ahead":
        body["snapshot"]["jobs"][0]["remaining_s"] = 3600.0
    request, plan = planned(tmp_path, body, 8, tp=2, pp=2, dp=2)
    # torchtitan has no model of this shape.
    plain = FORMATS.keys() - {"torchtitan", *_KUBERNETES}
    formats = [word for name in FORMATS if name in plain for word in ("--to", name)]
    result = run("export", plan, "--request", request, *formats, "-o", tmp_path / "out")
    assert result.exit_code == ExitCode.PLANNED, result.output
    hosts = (tmp_path / "out" / "slurm_hosts").read_text().split()
    assert len(hosts) == 8
    said = ("--option", "image=example/train:1", "--option", "command=python train.py")
    manifests = [word for name in _KUBERNETES for word in ("--to", name)]
    result = run("export", plan, "--request", request, *manifests, *said, "-o", tmp_path / "manifests")
    assert result.exit_code == ExitCode.PLANNED, result.output
    written = {path.name: path.read_text() for path in (tmp_path / "manifests").iterdir()}
    assert all(any(name in file for file in written) for name in _KUBERNETES), list(written)
    assert set(hosts) <= set(re.findall(r"[\w-]+", "".join(written.values())))
    other = run("export", plan, "--request", request, "--to", "torchtitan")
    assert (other.exit_code, "torchtitan has no model of this shape" in other.stderr) == (ExitCode.BAD_INPUT, True)
    options = ("--from", plan, "--request", request, "--command", "python train.py", "--dry-run")
    result = run("deploy", *options, "-o", tmp_path / "deployed")
    assert result.exit_code == ExitCode.PLANNED, result.output
    # Every way has the ranks on the same hosts.
    assert (tmp_path / "deployed" / "slurm_hosts").read_text().split() == list(dict.fromkeys(hosts))
    assert re.findall(r"rank \d+=(\S+)", (tmp_path / "out" / "rankfile").read_text()) == hosts


@pytest.mark.training
def test_the_program_is_killed_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install -e '.[executor]'")
    monkeypatch.setattr("api.cli.deploy.signal.signal", lambda *_: None)
    request, plan = planned(tmp_path, arnold_request(), 2, tp=1, pp=1, dp=2)
    rest = tmp_path / "rest.json"
    rest.write_text(json.dumps({"launch": {"master_port": free_port(), "grace_s": 1.0}}))
    line = shlex.join([sys.executable, str(_PROGRAM), str(tmp_path / "own.pt"), "12", "8"])
    options = ("--from", plan, "--request", request, "--device", "cpu", "--command", line)
    result = run("deploy", *options, rest, "-o", tmp_path / "d")
    assert result.exit_code == ExitCode.PLANNED, result.output
    assert "finished: step 12" in result.output
    supervisor = Supervisor(tmp_path / "d", LocalBackend())
    state = supervisor.state()
    assert (state.phase, state.detail) == (Phase.FINISHED, "")
    assert [one.cause for one in state.runs] == [Cause.DEPLOYED, Cause.RESTARTED]
    assert "SIGKILL" in state.runs[1].detail
    # It had told of seven steps, five of which were in its checkpoint.
    assert state.runs[1].from_step == 7
    assert state.runs[1].cost_s is not None
    for rank in range(2):
        told = (supervisor.folder(2) / "metrics" / f"own-rank{rank}.jsonl").read_text().splitlines()
        assert [json.loads(step)["step"] for step in told] == list(range(6, 13))
    status = supervisor.status()
    assert status.step == 12
    assert status.loss is not None
    assert 0 < status.loss < 10
