"""The SSH backend: with a stand-in for `ssh` that runs commands here, and with a real daemon where there is one."""

import getpass
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from executor.launch.agent import log_file
from executor.launch.base import HEARTBEAT_LIMIT_S, LaunchError, RunState, RunStatus
from executor.launch.ssh import SshBackend
from executor.watch import Watch
from tests.executor.launch.test_local import deployment, over
from tests.waiting import eventually

pytestmark = pytest.mark.slow

# Runs the command here, unless the address is that of a host that is down or has an own file system.
_STAND_IN = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done
case "$2" in
  down) echo "ssh: connect to host down port 22: No route to host" >&2; exit 255;;
  elsewhere) exec sh -c "cd / && $(echo "$3" | sed 's#/#/nowhere/#g')";;
esac
exec sh -c "$3"
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "ssh"
    script.write_text(_STAND_IN)
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return folder


def finished(backend: SshBackend, folder: Path) -> RunStatus:
    return eventually(lambda: backend.status(folder), lambda status: status.state.final)


def addressed(folder: Path, script: str, hosts: dict[str, int], addresses: dict[str, str]) -> Path:
    """A deployment with addresses, and this interpreter for the agents."""
    made = deployment(folder, script, hosts)
    launch = json.loads((made / "launch.json").read_text())
    launch |= {"addresses": addresses, "python": sys.executable}
    (made / "launch.json").write_text(json.dumps(launch))
    return made


@pytest.mark.usefixtures("stand_in")
def test_ranks_run_on_their_hosts_and_their_ends_are_known(tmp_path: Path) -> None:
    backend = SshBackend()
    folder = addressed(tmp_path / "d", "echo $RANK", {"a": 2, "b": 1}, {})
    backend.start(folder)
    assert finished(backend, folder).state is RunState.SUCCEEDED
    assert [log_file(folder, k).read_text() for k in range(3)] == ["0\n", "1\n", "2\n"]


@pytest.mark.usefixtures("stand_in")
def test_stop_ends_agents_and_ranks_everywhere(tmp_path: Path) -> None:
    backend = SshBackend()
    folder = addressed(tmp_path / "d", "sleep 60", {"a": 1, "b": 1}, {})
    backend.start(folder)
    pids = eventually(lambda: backend.status(folder), lambda status: status.num_running == 2).pids
    backend.stop(folder, grace_s=2.0)
    assert backend.status(folder).state is RunState.STOPPED
    assert len(pids) == 2
    assert all(over(pid) for pid in pids.values())


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("address", "says"),
    [("down", "host b: down cannot be reached: .*No route"), ("elsewhere", "host b: elsewhere refused")],
)
def test_nothing_starts_unless_every_host_is_ready(tmp_path: Path, address: str, says: str) -> None:
    folder = addressed(tmp_path / "d", "true", {"a": 1, "b": 1}, {"b": address})
    with pytest.raises(LaunchError, match=says):
        SshBackend().start(folder)
    assert SshBackend().status(folder).state is RunState.STARTING
    assert not list((folder).glob("agent-*.log"))


@pytest.mark.usefixtures("stand_in")
def test_a_host_without_the_interpreter_says_so(tmp_path: Path) -> None:
    folder = addressed(tmp_path / "d", "true", {"a": 1}, {})
    launch = json.loads((folder / "launch.json").read_text()) | {"python": "/nope/python"}
    (folder / "launch.json").write_text(json.dumps(launch))
    with pytest.raises(LaunchError, match="host a: a refused: has no program /nope/python"):
        SshBackend().start(folder)


@pytest.mark.usefixtures("stand_in")
def test_a_host_without_the_executor_says_so(tmp_path: Path) -> None:
    folder, python = addressed(tmp_path / "d", "true", {"a": 1, "b": 1}, {}), tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named executor' >&2\nexit 1\n")
    python.chmod(0o755)
    launch = json.loads((folder / "launch.json").read_text()) | {"python": str(python)}
    (folder / "launch.json").write_text(json.dumps(launch))
    with pytest.raises(LaunchError, match=r"host b: b refused: has no executor under .*/python; install it there"):
        SshBackend().start(folder)
    assert not list(folder.glob("agent-*.log"))


@pytest.mark.usefixtures("stand_in")
def test_agents_that_die_before_their_first_word_are_found(tmp_path: Path) -> None:
    backend, now = SshBackend(), [0.0]
    backend.watch = Watch(lambda: now[0])
    folder = addressed(tmp_path / "d", "sleep 60", {"a": 1, "b": 1}, {})
    # No folder of this name can be made: both agents die, the first of them ends the run.
    (folder / "logs").touch()
    backend.start(folder)
    assert backend.status(folder).state is RunState.STARTING
    now[0] = HEARTBEAT_LIMIT_S
    status = finished(backend, folder)
    assert status.state is RunState.FAILED
    assert re.search(r"the agent of host (\w) is gone without a word; agent-\1\.log ends: ", status.detail)
    assert "FileExistsError" in status.detail


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("address", ["a", "down"])
def test_agents_that_may_live_are_waited_for(tmp_path: Path, address: str) -> None:
    backend, now = SshBackend(), [0.0]
    backend.watch = Watch(lambda: now[0])
    folder = addressed(tmp_path / "d", "true", {"a": 1}, {"a": address})
    assert backend.status(folder).detail == "no word yet from a"
    now[0] = HEARTBEAT_LIMIT_S
    line = [sys.executable, "-c", "import time; time.sleep(60)", "executor.launch.agent", str(folder), "a"]
    silent = subprocess.Popen(line)
    status = backend.status(folder)
    silent.kill()
    silent.wait()
    assert status.state is RunState.STARTING
    assert ("cannot be reached" in status.detail) == (address == "down")


def test_a_machine_without_ssh_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = addressed(tmp_path / "d", "true", {"a": 1}, {})
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LaunchError, match="install an SSH client"):
        SshBackend().start(folder)


def test_with_a_real_daemon(tmp_path: Path, daemon: tuple[str, ...]) -> None:
    backend = SshBackend(daemon)
    address = f"{getpass.getuser()}@127.0.0.1"
    folder = addressed(tmp_path / "d", "echo $RANK", {"a": 1, "b": 1}, {"a": address, "b": address})
    backend.start(folder)
    assert finished(backend, folder).state is RunState.SUCCEEDED
    assert log_file(folder, 1).read_text() == "1\n"
