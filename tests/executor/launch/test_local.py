"""The local backend and its agents, with shell commands in place of a trainer."""

import errno
import itertools
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from operator import not_
from pathlib import Path

import pytest

from executor.launch.agent import hold_port, log_file
from executor.launch.base import HEARTBEAT_LIMIT_S, LaunchError, PortError, RunState, RunStatus, read_launch, status_of
from executor.launch.local import LocalBackend
from executor.outcome import PEER_LOST
from executor.watch import Watch
from tests.ports import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.slow


def deployment(folder: Path, script: str, hosts: dict[str, int], port: int | None = None) -> Path:
    """A folder whose ranks run `script` in a shell; `hosts` maps names to numbers of ranks."""
    ranks = [
        {"rank": 0, "node": host, "gpu": k, "local_rank": k} for host, count in hosts.items() for k in range(count)
    ]
    for number, rank in enumerate(ranks):
        rank["rank"] = number
    launch = {
        "ranks": ranks,
        "command": ["/bin/sh", "-c", script],
        "device": "cpu",
        "environment": {"GREETING": "hello"},
        "master_addr": "127.0.0.1",
        "master_port": port or free_port(),
        "grace_s": 0.5,
    }
    folder.mkdir(exist_ok=True)
    (folder / "launch.json").write_text(json.dumps(launch))
    return folder


def wait(backend: LocalBackend, folder: Path, until: Callable[[RunStatus], bool]) -> RunStatus:
    return eventually(lambda: backend.status(folder), until)


def over(pid: int) -> bool:
    """Whether a process has ended within a second; one that nobody has reaped yet has."""
    for _ in range(50):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.02)
    return False


def test_every_rank_gets_its_place_in_the_run(tmp_path: Path) -> None:
    backend = LocalBackend()
    folder = deployment(tmp_path / "d", "echo $GREETING $RANK $LOCAL_RANK $WORLD_SIZE $MASTER_ADDR", {"b": 2, "a": 1})
    backend.start(folder)
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.SUCCEEDED
    lines = [log_file(folder, rank).read_text().strip() for rank in range(3)]
    assert lines == ["hello 0 0 3 127.0.0.1", "hello 1 1 3 127.0.0.1", "hello 2 0 3 127.0.0.1"]


def test_agents_and_ranks_get_no_secret_of_whoever_starts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STOWPLAN_TOKEN", "CLOUD_KEY", "NCCL_DEBUG"):
        monkeypatch.setenv(name, "of the starter")
    backend = LocalBackend()
    folder = deployment(tmp_path / "d", "cat /proc/$PPID/environ; env -0", {"a": 1})
    backend.start(folder)
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.SUCCEEDED
    agent_and_rank = log_file(folder, 0).read_text().split("\0")
    assert [line for line in agent_and_rank if "of the starter" in line] == ["NCCL_DEBUG=of the starter"] * 2


def test_secrets_are_read_where_the_ranks_start(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    (tmp_path / "binary").write_bytes(b"a\0b")
    backend = LocalBackend()
    for name, file in (("there", "secret"), ("away", "none"), ("odd", "binary")):
        folder = deployment(tmp_path / name, "echo $API_KEY; echo $GREETING", {"a": 1})
        launch = json.loads((folder / "launch.json").read_text())
        secrets = {"API_KEY": str(tmp_path / file), "GREETING": str(tmp_path / file)}
        (folder / "launch.json").write_text(json.dumps(launch | {"secrets": secrets}))
        backend.start(folder)
        status = wait(backend, folder, lambda status: status.state.final)
        if file == "secret":
            assert log_file(folder, 0).read_text() == "hush\nhush\n"
        else:
            assert "a secret of the ranks cannot be read on host a: " in status.detail
            assert str(tmp_path / file) in status.detail


def test_a_rank_that_fails_is_named_and_the_others_end(tmp_path: Path) -> None:
    backend = LocalBackend()
    script = "if [ $RANK = 1 ]; then echo out of luck; exit 7; else sleep 60; fi"
    folder = deployment(tmp_path / "d", script, {"a": 3})
    backend.start(folder)
    status = wait(backend, folder, lambda status: status.state.final and not status.num_running)
    assert status.state is RunState.FAILED
    assert [(dead.rank, dead.host, dead.exit_code, dead.signal) for dead in status.dead] == [(1, "a", 7, None)]
    assert status.dead[0].last_lines == ("out of luck",)
    assert status.detail == "rank 1 on host a ended with exit code 7"


def test_death_by_signal_is_no_success(tmp_path: Path) -> None:
    backend = LocalBackend()
    folder = deployment(tmp_path / "d", "sleep 60", {"a": 1, "b": 1})
    backend.start(folder)
    running = wait(backend, folder, lambda status: status.num_running == 2)
    os.kill(running.pids[0], signal.SIGKILL)
    status = wait(backend, folder, lambda status: status.state is RunState.FAILED)
    assert [(dead.rank, dead.signal) for dead in status.dead] == [(0, "SIGKILL")]
    backend.stop(folder)
    assert backend.status(folder).num_running == 0


def test_stopping_leaves_no_process(tmp_path: Path) -> None:
    backend = LocalBackend()
    # The rank ignores SIGTERM: it has to be killed after the grace.
    folder = deployment(tmp_path / "d", "trap '' TERM; while true; do sleep 0.1; done", {"a": 2})
    backend.start(folder)
    pids = wait(backend, folder, lambda status: status.num_running == 2).pids
    backend.stop(folder, grace_s=1.0)
    assert backend.status(folder).state is RunState.STOPPED
    assert all(over(pid) for pid in pids.values())
    backend.stop(folder)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("exec sleep 60", id="killed"),
        # What a shell ends with whose child was killed first.
        pytest.param("trap 'exit 143' TERM; while true; do sleep 0.1; done", id="shell"),
    ],
)
def test_ranks_that_are_told_to_end_with_their_agent_are_no_failure(tmp_path: Path, script: str) -> None:
    backend = LocalBackend()
    folder = deployment(tmp_path / "d", script, {"a": 2})
    backend.start(folder)
    pids = wait(backend, folder, lambda status: status.num_running == 2).pids
    agent = json.loads((folder / "agents.json").read_text())["a"]["pid"]
    for pid in pids.values():
        os.kill(pid, signal.SIGTERM)
    time.sleep(1.0)
    os.kill(agent, signal.SIGTERM)
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.STOPPED


def test_another_process_can_take_over(tmp_path: Path) -> None:
    folder = deployment(tmp_path / "d", "sleep 60", {"a": 1})
    starter, other = LocalBackend(), LocalBackend()
    starter.start(folder)
    assert wait(other, folder, lambda status: status.num_running == 1).state is RunState.RUNNING
    with pytest.raises(LaunchError, match="running already"):
        other.start(folder)
    other.stop(folder, grace_s=1.0)
    assert starter.status(folder).state is RunState.STOPPED


def test_an_agent_that_is_killed_is_no_success(tmp_path: Path) -> None:
    backend = LocalBackend()
    folder = deployment(tmp_path / "d", "sleep 60", {"a": 1})
    backend.start(folder)
    wait(backend, folder, lambda status: status.num_running == 1)
    os.kill(json.loads((folder / "agents.json").read_text())["a"]["pid"], signal.SIGKILL)
    status = wait(backend, folder, lambda status: status.state.final)
    assert status.state is RunState.FAILED
    assert "agents are gone" in status.detail
    # Even before anybody cleans up.
    assert over(status.pids[0])
    backend.stop(folder)


def test_a_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        folder = deployment(tmp_path / "d", "true", {"a": 1}, port)
        with pytest.raises(LaunchError, match=f"port {port} .* choose another"):
            LocalBackend().start(folder)
    assert not (folder / "agents.json").exists()


def test_a_host_without_enough_gpus_says_so(tmp_path: Path) -> None:
    folder = deployment(tmp_path / "d", "true", {"a": 1})
    launch = json.loads((folder / "launch.json").read_text()) | {"device": "cuda"}
    launch["ranks"][0]["gpu"] = 4095
    (folder / "launch.json").write_text(json.dumps(launch))
    backend = LocalBackend()
    backend.start(folder)
    status = wait(backend, folder, lambda status: status.state.final)
    assert status.state is RunState.FAILED
    assert "its ranks use GPU indices up to 4095" in status.detail


def test_a_folder_without_a_deployment(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match=r"launch\.json"):
        LocalBackend().status(tmp_path)


def test_silence_is_told_from_work(tmp_path: Path) -> None:
    folder = deployment(tmp_path / "d", "true", {"a": 1})
    now = [0.0]
    watch = Watch(lambda: now[0])
    assert status_of(folder, read_launch(folder), watch).state is RunState.STARTING
    (folder / "status").mkdir()
    rank = {"pid": 1, "running": True, "exit_code": None, "signal": None, "ended_by_agent": False}
    report = {
        "host": "a",
        "num_beats": 1,
        "final": False,
        "stopped": False,
        "error": None,
        "ranks": {"0": rank},
    }
    path = folder / "status" / "a.json"
    path.write_text(json.dumps(report))
    os.utime(path, (0.0, 0.0))
    assert status_of(folder, read_launch(folder), watch).state is RunState.RUNNING
    now[0] = HEARTBEAT_LIMIT_S
    assert status_of(folder, read_launch(folder), watch).state is RunState.RUNNING
    now[0] += 1.0
    lost = status_of(folder, read_launch(folder), watch)
    assert lost.state is RunState.LOST
    assert "no word from a" in lost.detail
    # Who begins to look now has not waited yet.
    assert status_of(folder, read_launch(folder), Watch(lambda: now[0])).state is RunState.RUNNING
    # A count that goes on, and the touch of what has no room for it, are signs of life, whatever time they carry.
    path.write_text(json.dumps(report | {"num_beats": 2}))
    os.utime(path, (0.0, 0.0))
    assert status_of(folder, read_launch(folder), watch).state is RunState.RUNNING
    now[0] += HEARTBEAT_LIMIT_S + 1.0
    os.utime(path, (-3600.0, -3600.0))
    assert status_of(folder, read_launch(folder), watch).state is RunState.RUNNING


@pytest.mark.parametrize("step_s", [40.0, 3600.0, -3600.0])
def test_a_step_of_the_clock_loses_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float) -> None:
    backend = LocalBackend()
    folder = deployment(tmp_path / "d", "sleep 60", {"a": 1})
    backend.start(folder)
    wait(backend, folder, lambda status: status.num_running == 1)
    now_s = time.time() + step_s
    monkeypatch.setattr(time, "time", lambda: now_s)
    assert backend.status(folder).state is RunState.RUNNING
    backend.stop(folder, grace_s=1.0)


def test_causes_are_named_before_what_they_cause(tmp_path: Path) -> None:
    folder = deployment(tmp_path / "d", "true", {"a": 2, "b": 3})
    (folder / "status").mkdir()
    ends = {"a": [(PEER_LOST, None), (None, signal.SIGABRT)]}
    ends["b"] = [(PEER_LOST, None), (1, None), (None, signal.SIGKILL)]
    numbers = itertools.count()
    for host, own in ends.items():
        ranks = {
            next(numbers): {"pid": 1, "running": False, "exit_code": code, "signal": number, "ended_by_agent": False}
            for code, number in own
        }
        report = {"host": host, "num_beats": 1, "final": True, "stopped": False, "error": None, "ranks": ranks}
        (folder / "status" / f"{host}.json").write_text(json.dumps(report))
    assert [dead.rank for dead in status_of(folder, read_launch(folder), Watch()).dead] == [3, 4, 0, 1, 2]


def test_a_report_that_cannot_be_written_ends_no_run(tmp_path: Path) -> None:
    backend = LocalBackend()
    folder = deployment(tmp_path / "d", "while [ ! -f enough ]; do sleep 0.05; done", {"a": 1})
    backend.start(folder)
    pid = wait(backend, folder, lambda status: status.num_running == 1).pids[0]
    # As on a full disk: the next reports have no place.
    shutil.rmtree(folder / "status")
    log = folder / "agent-a.log"
    eventually(log.read_text, lambda text: "cannot be written" in text)
    assert "a.json cannot be written: No such file or directory" in log.read_text()
    (folder / "status").mkdir()
    assert wait(backend, folder, lambda status: status.num_running == 1).pids == {0: pid}
    (folder / "enough").touch()
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.SUCCEEDED


def test_a_run_on_a_full_disk_is_not_lost(tmp_path: Path) -> None:
    backend, now = LocalBackend(), [0.0]
    backend.watch = Watch(lambda: now[0])
    folder = deployment(tmp_path / "d", "sleep 60", {"a": 1})
    backend.start(folder)
    wait(backend, folder, lambda status: status.num_running == 1)
    # No new report can be drafted.
    (folder / "status" / "a.json.part").mkdir()
    report = folder / "status" / "a.json"
    said, touched_ns = report.read_text(), report.stat().st_mtime_ns
    assert backend.status(folder).state is RunState.RUNNING
    now[0] += HEARTBEAT_LIMIT_S + 1.0
    eventually(lambda: report.stat().st_mtime_ns, lambda seen_ns: seen_ns != touched_ns)
    assert backend.status(folder).state is RunState.RUNNING
    assert report.read_text() == said
    backend.stop(folder, grace_s=1.0)


def test_names_of_hosts_lead_nowhere(tmp_path: Path) -> None:
    hosts = {"rack1/host-0": 1, "../../evil": 1, "..": 1, "x" * 256: 1, "x" * 255 + "y": 1, "a b \u00e9": 1}
    backend = LocalBackend()
    folder = deployment(tmp_path / "d", "echo $RANK", hosts)
    backend.start(folder)
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.SUCCEEDED
    assert [path.name for path in tmp_path.iterdir()] == ["d"]
    reports = [json.loads(path.read_text()) for path in (folder / "status").iterdir()]
    assert sorted(report["host"] for report in reports) == sorted(hosts)
    assert (folder / "agent-rack1%2Fhost-0.log").exists()


def test_agents_that_cannot_be_noted_are_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = deployment(tmp_path / "d", "sleep 60", {"a": 1, "b": 1})
    monkeypatch.setattr("executor.launch.local.write_text", full)
    with pytest.raises(LaunchError, match=r"cannot be started in .*: No space left"):
        LocalBackend().start(folder)
    eventually(lambda: [pid for pid in Path("/proc").glob("[0-9]*") if str(folder) in _command_line(pid)], not_)


def _command_line(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def test_a_port_is_taken_before_the_ranks_listen(tmp_path: Path) -> None:
    backend, port = LocalBackend(), free_port()
    first = deployment(tmp_path / "first", "sleep 60", {"a": 1}, port)
    second = deployment(tmp_path / "second", "true", {"a": 1}, port)
    backend.start(first)
    with pytest.raises(PortError, match=f"port {port} .* choose another"):
        backend.start(second)
    backend.stop(first, grace_s=1.0)
    backend.start(second)
    assert wait(backend, second, lambda status: status.state.final).state is RunState.SUCCEEDED


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    folder = deployment(tmp_path / "d", "true", {"a": 2})
    launch = json.loads((folder / "launch.json").read_text()) | {"command": ["/nope/python"]}
    (folder / "launch.json").write_text(json.dumps(launch))
    backend = LocalBackend()
    backend.start(folder)
    status = wait(backend, folder, lambda status: status.state.final)
    assert status.detail == "rank 0 cannot be started on host a: /nope/python: No such file or directory"


def test_an_interpreter_is_not_asked_for_a_port_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, python = deployment(tmp_path / "d", "true", {"a": 1}), tmp_path / "python"
    monkeypatch.setenv("STOWPLAN_TOKEN", "secret")
    python.write_text(f"#!/bin/sh\necho ${{STOWPLAN_TOKEN-none}} > {tmp_path / 'asked'}\n")
    python.chmod(0o755)
    launch = json.loads((folder / "launch.json").read_text()) | {"trainer": True, "python": str(python)}
    (folder / "launch.json").write_text(json.dumps(launch))
    with hold_port("127.0.0.1", launch["master_port"]), pytest.raises(PortError):
        LocalBackend().start(folder)
    assert not (tmp_path / "asked").exists()
    backend = LocalBackend()
    backend.start(folder)
    assert (tmp_path / "asked").read_text() == "none\n"
    assert wait(backend, folder, lambda status: status.state.final).state is RunState.SUCCEEDED


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (None, "python is '.*/python': there is no such program here"),
        ("echo; echo 'training needs torch; install the extra'", "python: training needs torch; install the extra$"),
        ("echo 'Traceback' >&2; echo 'No module named executor' >&2; exit 1", "python: No module named executor$"),
        ("exit 3", "python: exit code 3"),
    ],
)
def test_an_interpreter_that_cannot_train_is_refused_before_anything_starts(
    tmp_path: Path, script: str | None, says: str
) -> None:
    folder, python = deployment(tmp_path / "d", "true", {"a": 1}), tmp_path / "python"
    if script is not None:
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    launch = json.loads((folder / "launch.json").read_text()) | {"trainer": True, "python": str(python)}
    (folder / "launch.json").write_text(json.dumps(launch))
    with pytest.raises(LaunchError, match=says):
        LocalBackend().start(folder)
    assert not list(folder.glob("agent*"))
