"""`stowplan connect kubernetes`, as a user runs it, against a server on loopback."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from api.app import create_app
from api.cli import connect_options
from api.cli.connect import CONNECT_COMMANDS
from api.cli.connect_options import ConnectedCalendar
from api.cli.main import app
from api.schemas.reservation import CALENDAR_EXAMPLE
from executor.connected.kubernetes.lease import Lease, LeaseTimes
from models import planning
from models.allocation.gang.parameters import GangParameters
from models.placement.arnold.descriptor import ARNOLD
from models.placement.arnold.parameters import ArnoldParameters
from models.policy import Parameters
from solver.options import SolveOptions
from solver.pool import WorkerPool
from stowplan.errors import InputError
from tests.api.asking import JSON
from tests.api.conftest import SETTINGS
from tests.api.serving import serving
from tests.executor.connected.kubernetes.api_server import ApiServer, RefusedError
from tests.executor.connected.kubernetes.scenes import NOW, api_of, gang, nodes, patches, served
from tests.paths import ROOT
from tests.waiting import eventually

DOCS = (ROOT / "docs" / "kubernetes.md").read_text()


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with served(("nodes", nodes()), ("pods", [*gang("train", 2), *gang("waits", 5)])) as found:
        yield found


@pytest.fixture
def config(server: ApiServer, tmp_path: Path) -> Path:
    file = tmp_path / "config"
    file.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "one",
                "clusters": [{"name": "c", "cluster": {"server": server.host}}],
                "users": [{"name": "u", "user": {"token": "secret"}}],
                "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return file


def run(config: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["connect", "kubernetes", "--kubeconfig", str(config), *words])


@pytest.mark.parametrize("name", CONNECT_COMMANDS)
def test_a_command_says_of_itself_what_the_group_says(name: str) -> None:
    command = CONNECT_COMMANDS[name].load()
    assert (command.name, (command.help or "").splitlines()[0]) == (name, CONNECT_COMMANDS[name].summary)


def test_it_is_dry_until_it_is_told_to_send(server: ApiServer, config: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    result = run(config, "--once", "--log", str(log))
    assert result.exit_code == 0, result.output
    assert "4 nodes with 32 GPUs; governed are 2 jobs, of which 0 have their nodes; others run 0 jobs" in result.output
    assert "team/train on n0, n1" in result.output
    assert "nothing was sent: 4 changes would have been; --send sends them" in result.output
    assert server.writes() == []
    assert len(log.read_text().splitlines()) == 4
    # The lines are commands: the words of each are those of a shell.
    lines = [line for line in result.output.splitlines() if line.startswith("would send: ")]
    body = shlex.split(lines[-1].removeprefix("would send: "))[-1]
    assert json.loads(body)[-1] == {"op": "remove", "path": "/spec/schedulingGates/0"}
    result = run(config, "--once", "--send")
    assert result.exit_code == 0, result.output
    assert patches(server) == ["train-workers-0-0-x0", "train-workers-0-1-x1"] * 2


def test_two_do_not_send_to_one_cluster(server: ApiServer, config: Path) -> None:
    other = Lease(api_of(server), "default/stowplan-connect", times=LeaseTimes(renew_s=0.05))
    other.acquire()
    result = run(config, "--once", "--send")
    assert result.exit_code == 2
    assert f"another connection, {other.identity}, holds the lease default/stowplan-connect" in result.output
    assert server.writes() == []
    # One that sends nothing, and one that governs others, are in nobody's way.
    assert run(config, "--once").exit_code == 0
    assert run(config, "--once", "--send", "--lease", "team/other").exit_code == 0
    assert server.get("leases", "other", "team")["spec"]["holderIdentity"] == ""
    other.release()


def test_the_way_out(server: ApiServer, config: Path) -> None:
    result = run(config, "--release", "--send")
    assert result.exit_code == 0, result.output
    assert "let go without a choice of nodes: 7" in result.output
    assert len(patches(server)) == 7


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--policy", "sia"), "--policy is 'sia'; a scheduler says of jobs what these need: gang, gang-ilp"),
        (("--in-cluster",), "--in-cluster is given beside --kubeconfig"),
        (("--context", "two"), "there is no way to a Kubernetes cluster in "),
        (("--parameters", '{"order": "best"}'), "parameter object of gang"),
        (("--calendar", "absent.json", "--once"), "absent.json"),
        (("--lease", "connect"), "--lease is 'connect'; must be NAMESPACE/NAME"),
        (("--topology-labels", "gke", "--once"), "no node has a label of it"),
    ],
)
def test_wrong_options_say_what_is_wrong(config: Path, words: tuple[str, ...], says: str) -> None:
    result = run(config, *words)
    assert result.exit_code == 2, result.output
    assert says in result.output


def test_missing_rights_end_it_with_the_rule_that_is_missing(server: ApiServer, config: Path) -> None:
    def refuse(request: object) -> None:
        if "/pods" in request.path:  # type: ignore[attr-defined]
            raise RefusedError(403, "Forbidden", "pods is forbidden")

    server.before = refuse
    result = run(config, "--once")
    assert result.exit_code == 2
    assert 'its role lacks the rule apiGroups: [""], resources: ["pods"], verbs: ["list"]' in result.output


@pytest.mark.slow
@pytest.mark.parametrize("release", [False, True])
def test_a_signal_ends_it_in_order(server: ApiServer, config: Path, release: bool) -> None:
    words = [*(["--release-on-exit"] if release else []), "--send", "--kubeconfig", str(config)]
    process = subprocess.Popen(
        [sys.executable, "-m", "api.cli.main", "connect", "kubernetes", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        eventually(lambda: len(patches(server)) == 4)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, said
    assert len(patches(server)) == (9 if release else 4)
    assert ("let go without a choice of nodes: 5" in said) is release


def test_a_calendar_is_read_anew_and_tells_what_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "calendar.json"
    entry = {"name": "m", "kind": "maintenance", "from_time": "2026-11-20T13:00:00Z", "nodes": ["n0"]}
    file.write_text(json.dumps({"entries": [entry]}))
    calendar = ConnectedCalendar(str(file))
    (found,) = calendar.news(NOW) or ()
    assert (found.name, found.from_s, found.nodes) == ("m", 3600.0, ("n0",))
    assert calendar.news(NOW) is None
    file.write_text("[]")
    assert calendar.news(NOW) == ()
    file.write_text('{"entries": [{"name": "m"}]}')
    with pytest.raises(InputError, match=re.escape(str(file))):
        calendar.news(NOW)


def test_a_calendar_of_a_service_is_followed(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "s3cret-tok.en"  # noqa: S105 - for this test only
    with serving(create_app(SETTINGS.model_copy(update={"token": token}), pool=pool)) as service:
        service.headers.update({**JSON, "Authorization": f"Bearer {token}"})
        path = "/v1/clusters/floor%20one/calendar"
        made = service.put(path, content=json.dumps(CALENDAR_EXAMPLE))
        assert made.status_code == 201, made.text
        calendar = ConnectedCalendar(f"{service.base_url}{path}")
        with pytest.raises(InputError, match="401"):
            calendar.news(NOW)
        monkeypatch.setenv("STOWPLAN_TOKEN", token)
        found = calendar.news(NOW)
        assert found is not None
        assert [entry.name for entry in found] == [entry["name"] for entry in CALENDAR_EXAMPLE["entries"]]
        assert calendar.news(NOW) is None
        service.put(path, content='{"entries": []}', headers={"If-Match": made.headers["etag"]})
        assert calendar.news(NOW) == ()
        with pytest.raises(InputError, match="there is no calendar of a cluster 'other'"):
            ConnectedCalendar(f"{service.base_url}/v1/clusters/other/calendar").news(NOW)


def test_the_commands_of_the_page(server: ApiServer, config: Path, tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", DOCS, re.DOTALL | re.MULTILINE)
    lines = [shlex.split(line) for block in blocks for line in block.splitlines()]
    connecting = [words for words in lines if words[1] == "connect"]
    assert len(connecting) >= 3
    (tmp_path / "calendar.json").write_text("[]")
    for words in connecting:
        given = [str(tmp_path / word) if word.endswith((".json", ".jsonl")) else word for word in words[3:]]
        result = run(config, *given, *([] if "--release" in given else ["--once"]))
        assert result.exit_code == 0, (words, result.output)
    assert server.writes() != []


def test_what_plans_need_is_loaded_before_the_first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[object] = []

    def load(parameters: Parameters, options: SolveOptions, *, declared: bool = False) -> None:
        planning.load(parameters, options, declared=declared)
        loaded.append((parameters, declared))

    monkeypatch.setattr(connect_options, "load", load)
    options = connect_options.control_options("gang", None, 30.0)
    connect_options.planner_of('{"alpha": 0.3}', options, print, loads=False)
    assert loaded == []
    connect_options.planner_of('{"alpha": 0.3}', options, print, loads=True)
    assert loaded == [(GangParameters(), False), (ArnoldParameters(alpha=0.3), True)]
    assert set(ARNOLD.declarations) <= sys.modules.keys()
