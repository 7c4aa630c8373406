"""Settings, start and stop of the real process, and what it may load."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest

from api.common.environment import read_settings, setting_variables
from api.common.errors import StoreError
from api.common.settings import Flag, Settings
from api.openapi import PATH
from api.server import listen, serve
from api.workers import IDLE_LOAD, PRELOAD, READERS_LOAD
from stowplan.errors import InputError
from tests.api.asking import planned, post
from tests.api.requests import Json, sia_request
from tests.own_catalogue import CATALOGUE
from tests.waiting import eventually

START_LIMIT_S = 90.0


def set_variables(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """Have exactly these STOWPLAN_* variables."""
    for variable in setting_variables():
        monkeypatch.delenv(variable, raising=False)
    for variable, text in environ.items():
        monkeypatch.setenv(variable, text)


def test_settings_come_from_the_environment_and_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"STOWPLAN_PORT": "9000", "STOWPLAN_MAX_WAIT_S": "2.5", "STOWPLAN_HOST": "::1", "HOME": "/"}
    set_variables(monkeypatch, environ)
    found = read_settings({"port": 9001, "workers": None})
    assert found == Settings(port=9001, max_wait_s=2.5, host="::1")


def test_others_are_listened_to_with_a_token_or_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("127.0.0.2", "::1", "localhost"):
        assert Settings(host=host).token is None
    assert Settings(host="10.0.0.1", token="secret").host == "10.0.0.1"  # noqa: S106 - of the test
    set_variables(monkeypatch, {"STOWPLAN_INSECURE": "true", "STOWPLAN_HOST": "::"})
    assert read_settings({}).insecure
    set_variables(monkeypatch, {"STOWPLAN_HOST": "::"})
    assert read_settings({"insecure": True}).host == "::"


def test_settings_alone_do_not_look_at_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWPLAN_PORT", "9000")
    assert Settings().port == 8080


def test_every_setting_says_what_it_is_and_few_lack_an_option() -> None:
    assert all(field.description for field in Settings.model_fields.values())
    flags = {
        name: [flag.name for flag in field.metadata if isinstance(flag, Flag)]
        for name, field in Settings.model_fields.items()
    }
    assert {name for name, flag in flags.items() if not flag} == {
        *("replay_queue_size", "max_replays", "max_replay_jobs", "replay_time_limit_s", "max_replay_time_limit_s"),
        *("training_queue_size", "training_time_limit_s", "max_training_time_limit_s"),
        *("comparison_queue_size", "tasks_per_worker", "worker_start_s", "worker_start_attempts"),
        *("launch_pythons", "launch_variables", "launch_hosts", "data_folders", "secrets"),
        *("launch_commands", "layers_hooks", "launch_images"),
        *("readers", "small_body_bytes", "read_s"),
        *("max_bodies_bytes", "header_timeout_s", "body_timeout_s", "max_connections"),
        *("max_wait_s", "deadline_slack_s", "heartbeat_s", "shutdown_s"),
        *("client_share", "client_requests_per_s", "client_burst", "keep_audit_days"),
        *("keep_events_days", "keep_metrics_days", "keep_steps", "keep_deployments_days", "keep_deployments"),
        "token",
    }


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"STOWPLAN_PORT": "http"}, "STOWPLAN_PORT is 'http'; must be an integer"),
        ({"STOWPLAN_MAX_WAIT_S": "long"}, "STOWPLAN_MAX_WAIT_S is 'long'; must be a number"),
        ({"STOWPLAN_PROT": "80"}, "STOWPLAN_PROT names no setting"),
        ({"STOWPLAN_WORKERS": "0"}, "workers is 0; must be finite and above 0"),
        ({"STOWPLAN_PORT": "70000"}, "port is 70000"),
        ({"STOWPLAN_MAX_WAIT_S": "nan"}, "max_wait_s is nan"),
        ({"STOWPLAN_TIME_LIMIT_S": "7200"}, "above max_time_limit_s 3600.0; lower the one or raise the other"),
        ({"STOWPLAN_REPLAY_TIME_LIMIT_S": "7200"}, "above max_replay_time_limit_s 3600.0; lower the one or raise"),
        ({"STOWPLAN_TRAINING_TIME_LIMIT_S": "7200"}, "above max_training_time_limit_s 3600.0; lower the one or raise"),
        ({"STOWPLAN_MAX_BODIES_BYTES": "1000"}, "above max_bodies_bytes 1000; lower the one or raise the other"),
        ({"STOWPLAN_HOST": "10.0.0.1"}, "host is 10.0.0.1, which others reach, and there is no token"),
        ({"STOWPLAN_HOST": "example.org"}, "host is example.org, which others reach, and there is no token"),
        ({"STOWPLAN_INSECURE": "perhaps"}, "STOWPLAN_INSECURE is 'perhaps'; must be true or false"),
        ({"STOWPLAN_DATABASE": ""}, "database is ''; must be the path of a file, :memory:, or postgresql://"),
        (
            {"STOWPLAN_DATABASE": "mysql://u:pw@h/db"},
            "begins with mysql://; must be as in postgresql://user@host:5432/",
        ),
        ({"STOWPLAN_DATABASE": "postgresql://u:pw@h"}, "without the name of a database; must be as in postgresql://"),
        ({"STOWPLAN_DATABASE": "postgresql://u:pw@h:x/db"}, "host or port cannot be read; must be as in postgresql://"),
    ],
)
def test_wrong_settings_are_refused(environ: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, environ)
    with pytest.raises(InputError, match=message) as caught:
        read_settings({})
    assert ":pw" not in str(caught.value)


def test_the_url_of_a_database_is_not_in_the_text_of_settings() -> None:
    settings = Settings(database="postgresql://stowplan:word@example.org/stowplan")
    assert settings.database_location == settings.database
    assert ":word@" not in f"{settings} {settings!r}"
    # Whoever may read the variables of the process could read it there.
    assert settings.holds_secrets
    assert not Settings().holds_secrets


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.parametrize("closed", [False, True])
def test_others_of_the_same_user_do_not_read_its_token(closed: bool) -> None:
    """Workers and ranks are such others. Who has changed its user is closed to them until it starts a program."""
    program = f"""
import ctypes, os, subprocess
from api.server import _keep_others_out
os.setgroups([]); os.setgid(65534); os.setuid(65534)
ctypes.CDLL(None).prctl(4, 1)
if {closed}:
    _keep_others_out()
subprocess.run(["/bin/sh", "-c", "cat /proc/$PPID/environ"], env={{}}, stderr=subprocess.STDOUT)
"""
    environ = os.environ | {"STOWPLAN_TOKEN": "secret"}
    done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    assert ("STOWPLAN_TOKEN=secret" in done.stdout, "Permission denied" in done.stdout) == (not closed, closed)


def test_a_port_in_use_is_said_clearly(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            serve(Settings(port=port, database=str(tmp_path / "plans.sqlite")))


def test_a_database_that_cannot_be_opened_is_said_clearly(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        serve(Settings(port=0, database=str(tmp_path / "missing" / "plans.sqlite")))


def test_what_workers_load_in_idle_time_is_there() -> None:
    """A module that is not there would be left out with a word in the log."""
    assert [name for name in (*IDLE_LOAD, *PRELOAD, *READERS_LOAD) if find_spec(name) is None] == []


@pytest.mark.slow
def test_the_documented_plan_is_a_real_one(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    documented: Json = document["components"]["schemas"]["PlanDoc"]["examples"][0]
    body = document["paths"]["/v1/plans"]["post"]["requestBody"]
    examples = body["content"]["application/json"]["examples"]
    plan = planned(client, examples["Table 1 of the Sia paper"]["value"])
    measured = {"id", "times", "timings", "links", "version", "solver", "certificate"}
    rounded = {"objective", "bound", "relative_gap"}
    for name in documented.keys() - measured - rounded:
        assert plan[name] == documented[name], name
    for name in rounded:
        assert plan[name] == pytest.approx(documented[name], abs=1e-9)
    assert plan.keys() == documented.keys()


@pytest.mark.slow
def test_a_service_knows_the_users_catalogue(tmp_path: Path) -> None:
    """Names are looked up by the service, and what the GPU reaches by its worker."""
    own = tmp_path / "own.toml"
    own.write_text(CATALOGUE)
    with process(tmp_path / "plans.sqlite", own) as (client, _):
        answers = [
            client.post(
                "/v1/parallel-plans",
                json={"job": {"model": model, "global_batch": 64}, "gpus": [{"gpu_type": kind, "counts": [4]}]},
            )
            for model, kind in (("own-0.4b", "x1"), ("gpt2-350m", "h100"))
        ]
    assert [answer.status_code for answer in answers] == [200, 200]
    own_best, shipped_best = (answer.json()["best"] for answer in answers)
    assert own_best["gpu_type"] == "x1"
    assert own_best["iteration_s"] == shipped_best["iteration_s"]


def test_a_service_refuses_a_wrong_catalogue(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text("[gpu.x1]\nmemory_bytes = -1\n")
    with pytest.raises(InputError, match=r"own.toml: the catalogue has"):
        serve(Settings(port=0, database=str(tmp_path / "plans.sqlite"), catalogue=str(own)))


@contextmanager
def process(database: Path, catalogue: Path | str = "") -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]"]]:
    """A service in a process of its own, with a client for it."""
    with listen("127.0.0.1", 0) as probe:
        port = probe.getsockname()[1]
    settings = f"Settings(port={port}, workers=1, shutdown_s=2.0, database={str(database)!r}"
    settings += f", catalogue={str(catalogue)!r})"
    # The worker loads what is asked of it: nobody waits until it has loaded everything.
    code = "import api.workers; api.workers.IDLE_LOAD = (); "
    code += f"from api.server import serve; from api.common.settings import Settings; serve({settings})"
    with (
        subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as service,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=90) as client,
    ):
        try:
            _wait_until_ready(client, service)
            yield client, service
        finally:
            service.kill()


def _wait_until_ready(client: httpx.Client, service: "subprocess.Popen[str]") -> None:
    end_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end_s:
        assert service.poll() is None, service.stderr.read() if service.stderr else ""
        with suppress(httpx.TransportError):
            if client.get("/readyz").status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError("the service was not ready in time")


@pytest.mark.slow
def test_a_service_that_was_killed_finds_its_plans_again(tmp_path: Path) -> None:
    database = tmp_path / "plans.sqlite"
    hard = sia_request()
    with process(database) as (client, service):
        kept = planned(client, sia_request())
        waiting = post(client, "/v1/plans", hard).json()
        os.kill(service.pid, signal.SIGKILL)
        service.wait()
    with process(database) as (client, service):
        assert client.get(kept["links"]["self"]).json() == kept
        # The kill may have come after the plan was final; else it goes on.
        path = waiting["links"]["self"]
        eventually(lambda: client.get(path).json()["status"], lambda status: status == "succeeded")
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
        # SIGTERM ends the process in good order, although a client follows the events of a plan.
        service.terminate()
        assert service.wait(timeout=60) == 0
        assert service.stderr is not None
        assert "Traceback" not in service.stderr.read()
    # Whoever copies the database now has all of it: nothing is left in a write-ahead log.
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith("-wal")] == []


def test_every_reference_of_the_openapi_document_resolves() -> None:
    """Of the checked-in document; `make contract` compares it with the service's."""
    text = PATH.read_text(encoding="utf-8")
    schemas = json.loads(text)["components"]["schemas"]
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named <= set(schemas)
    assert {"PlanBody", "PlanDoc", "ProblemDoc", "VerifyBody", "SnapshotDoc"} <= named
    assert "HTTPValidationError" not in schemas
