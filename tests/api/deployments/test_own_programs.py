"""Training programs of users over HTTP: started, supervised, restarted, measured, stopped; what operators allow."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from executor.launch.local import LocalBackend
from solver.pool import WorkerPool
from tests.api.asking import planned
from tests.api.deployments.test_deployments import CLUSTER, JOB, body, plan
from tests.api.serving import serving
from tests.paths import ROOT
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.slow

_LIMIT_S = 240.0
# What a rank is told, and three steps of rank 0.
_SCRIPT = """\
import json, os, sys, time
from pathlib import Path
import stowplan_metrics
names = ["RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"]
plan = json.loads(Path(os.environ["STOWPLAN_PLAN"]).read_text())
print(json.dumps([[os.environ[name] for name in names], sys.argv[1:], plan["notation"]]), flush=True)
steps = int(sys.argv[1])
for step in range(1, steps + 1):
    time.sleep(0.05)
    stowplan_metrics.report(step, loss=1 / step, tokens=64)
    if sys.argv[2:] != ["deaf"] and stowplan_metrics.should_stop():
        break
"""
# Ten steps at once, as a program in another language would write them.
_TELLS = """\
import json, os, sys, time
step_s = float(sys.argv[1])
began_s = time.time() - 10 * step_s
with open(os.environ["STOWPLAN_METRICS"], "a") as file:
    for step in range(1, 11):
        line = {"step": step, "started_at_s": began_s + (step - 1) * step_s, "step_s": step_s, "loss": 1.0}
        file.write(json.dumps(line) + "\\n")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "deployments"
    for run in (tmp_path / "deployments").glob("deployment-*/runs/*"):
        LocalBackend().stop(run, grace_s=1.0)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(_SCRIPT)
    return path


@pytest.fixture
def client(folder: Path, script: Path, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[httpx.Client]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    allowed = f"/opt/train.sh, {sys.executable} {script}"
    settings = Settings(
        database=IN_MEMORY,
        deployments=str(folder),
        launch_commands=allowed,
        layers_hooks="ours:layers",
        launch_images="registry/ours:1",
    )
    with serving(create_app(settings, pool=pool)) as made:
        yield made


def asked(*command: object, **launch: Any) -> dict[str, Any]:
    words = [str(word) for word in command]
    return body(launch={"master_port": free_port(), "grace_s": 1.0, "command": words, **launch})


def wait(client: httpx.Client, path: str, until: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    return eventually(lambda: client.get(path).json(), until, poll_s=0.1, limit_s=_LIMIT_S)


def created(client: httpx.Client, request: dict[str, Any]) -> str:
    made = client.post("/v1/deployments", json=request)
    assert made.status_code == 201, made.text
    path: str = made.headers["Location"]
    return path


def test_a_program_is_told_its_place_and_measured(client: httpx.Client, script: Path) -> None:
    # The trainer could run neither the precision nor the stages, whose degrees differ.
    request = asked(sys.executable, script, 3, "x y") | {"plan": plan([(1, 2), (3, 1)], local=2)}
    request["job"] = {**request["job"], "precision": "fp16", "software": "torch"}
    path = created(client, request)
    done = wait(client, path, lambda document: document["phase"] in ("finished", "failed"))
    assert (done["phase"], done["step"], done["loss"]) == ("finished", 3, pytest.approx(1 / 3))
    assert done["step_s"] >= 0.05
    assert not done["synthetic_data"]
    port = str(request["launch"]["master_port"])
    for rank in range(3):
        (line,) = client.get(f"{path}/logs", params={"rank": rank}).text.splitlines()
        place = [str(rank), str(rank), "3", "3", "127.0.0.1", port]
        assert json.loads(line) == [place, ["3", "x y"], "1L 2x1 | 3L 1x1 (2 x 4)"]


def test_its_steps_calibrate_the_job(client: httpx.Client, script: Path) -> None:
    """A program that says itself how long its steps took: half as long again as predicted."""
    script.write_text(_TELLS)
    request = asked(sys.executable, script, "9.9") | {"cluster": CLUSTER}
    wait(client, created(client, request), lambda document: document["phase"] == "finished")
    performance = "/v1/jobs/tiny/performance"
    eventually(lambda: client.get(performance).status_code, lambda code: code == 200, limit_s=_LIMIT_S)
    (first,) = client.get(performance).json()["runs"]
    assert "too far for a calibration" in first["detail"]
    request["launch"] = asked(sys.executable, script, str(1.5 * first["white_box_s"]))["launch"]
    path = created(client, request)
    wait(client, path, lambda document: document["phase"] == "finished")
    found = wait(client, performance, lambda document: document["calibration"] is not None)
    newest = found["runs"][0]
    assert newest["measured_s"] == pytest.approx(1.5 * first["white_box_s"])
    assert newest["calibrated_s"] == pytest.approx(newest["measured_s"], rel=0.15)
    # The next plan of the job is predicted by it.
    job = {"id": "tiny", "min_gpus": 1, "max_gpus": 2, "transformer": JOB}
    made = planned(client, {"policy": "arena", "snapshot": {"cluster": CLUSTER, "jobs": [job]}})
    assert [note["pointer"] for note in made["warnings"] if note["code"] == "measured"] == [
        "/snapshot/jobs/0/calibration"
    ]


def test_gpus_that_nobody_knows_measure_nothing_and_that_is_said(client: httpx.Client, script: Path) -> None:
    path = created(client, asked(sys.executable, script, 1))
    said = client.get(path).json()["not_measured"]
    assert said == "nobody says how fast its GPUs are: give cluster, or plan for GPU types of the catalogue"
    wait(client, path, lambda document: document["phase"] == "finished")


@pytest.mark.parametrize("listens", [True, False])
def test_a_program_is_stopped_whether_it_listens_or_not(client: httpx.Client, script: Path, listens: bool) -> None:
    path = created(client, asked(sys.executable, script, 10_000, *(() if listens else ("deaf",))))
    wait(client, path, lambda document: document["step"] > 0)
    moved = client.post(f"{path}:reconfigure", json={"plan": plan([(4, 1)], local=8)})
    assert (moved.status_code, "stop it first" in moved.text) == (409, True)
    client.post(f"{path}:stop")
    done = wait(client, path, lambda document: document["phase"] == "stopped")
    again = client.post(f"{path}:reconfigure", json={"plan": plan([(4, 1)], local=8)})
    assert again.status_code == 202, again.text
    assert again.json()["runs"][-1]["from_step"] >= done["step"]


def test_a_program_that_keeps_breaking_is_given_up(client: httpx.Client, script: Path) -> None:
    script.write_text("raise SystemExit(1)")
    path = created(client, asked(sys.executable, script))
    done = wait(client, path, lambda document: document["phase"] == "failed")
    assert "given up after 3 restarts" in done["detail"]


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"launch": {"command": ["sh", "-c", "true"]}}, "/launch/command"),
        ({"launch": {"command": [sys.executable]}}, "/launch/command"),
        ({"launch": {"command": ["/opt/train.sh.other"]}}, "/launch/command"),
        ({"launch": {"image": "registry/theirs:1"}}, "/launch/image"),
        ({"training": {"device": "cpu", "layers_hook": "os:system"}}, "/training/layers_hook"),
    ],
)
def test_what_the_operator_does_not_name_is_refused(
    client: httpx.Client, changes: dict[str, Any], pointer: str
) -> None:
    answer = client.post("/v1/deployments", json=body(**changes))
    errors = [(error["code"], error["pointer"]) for error in answer.json()["errors"]]
    assert (answer.status_code, errors) == (422, [("not_allowed", pointer)])


def test_images_and_hooks_that_the_operator_names_are_written(client: httpx.Client, folder: Path) -> None:
    launch = {"backend": "kubernetes", "image": "registry/ours:1"}
    path = created(client, body(launch=launch, training={"device": "cpu", "layers_hook": "ours:layers"}))
    (run,) = folder.glob("deployment-*/runs/0001")
    assert "image: registry/ours:1" in (run / "jobset.yaml").read_text()
    assert json.loads((run / "job.json").read_text())["layers_hook"] == "ours:layers"
    client.post(f"{path}:stop")
