"""Ranks that hang are told from those that work, leave their stacks, and end; small programs in place of a trainer."""

import errno
import json
import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from executor.launch.agent import log_file
from executor.launch.base import RunState
from executor.launch.flight_recorder import FlightRecorder
from executor.launch.local import LocalBackend
from executor.launch.pulse import PULSE, Listener, Pulse
from tests.executor.launch.test_local import deployment, over, wait
from tests.paths import ROOT
from tests.waiting import eventually

# Beats as long as the file `work` is there.
_BEATS = """
import os, pathlib, time
from executor.launch.pulse import Pulse
def step():
    time.sleep(0.05)
pulse, work = Pulse(os.environ), pathlib.Path("work")
pulse.beat(2.0, "doing a step")
print("beats", flush=True)
while work.exists():
    pulse.beat(2.0, "doing a step")
    step()
"""
_WAITS = """
pulse.beat({limit}, "writing to disk")
while True:
    step()
"""


def working(folder: Path, script: str, num_ranks: int, start_limit_s: float | None = None) -> LocalBackend:
    """A run of a host `a` whose ranks run `script`."""
    deployment(folder, "", {"a": num_ranks})
    launch = json.loads((folder / "launch.json").read_text())
    launch |= {"command": [sys.executable, "-c", script], "environment": {"PYTHONPATH": str(ROOT)}}
    launch["start_limit_s"] = start_limit_s
    (folder / "launch.json").write_text(json.dumps(launch))
    (folder / "work").touch()
    backend = LocalBackend()
    backend.start(folder)
    return backend


@pytest.mark.slow
def test_a_stopped_rank_is_found_leaves_its_stack_and_is_ended(tmp_path: Path) -> None:
    backend = working(tmp_path / "d", _BEATS, 2)
    pids = wait(backend, tmp_path / "d", lambda status: status.num_running == 2).pids
    eventually(lambda: "beats" in log_file(tmp_path / "d", 1).read_text())
    os.kill(pids[1], signal.SIGSTOP)
    status = wait(backend, tmp_path / "d", lambda status: status.state.final)
    assert (status.state, status.dead) == (RunState.FAILED, ())
    assert status.detail == (
        "host a hangs: rank 1 is stopped by a signal; rank 1 has been doing a step for more than 2 s; "
        "the stacks are in logs/rank-*.log"
    )
    for rank in (0, 1):
        assert "in step\n" in log_file(tmp_path / "d", rank).read_text()
        assert over(pids[rank])


@pytest.mark.slow
def test_a_rank_that_waits_for_ever_is_found(tmp_path: Path) -> None:
    backend = working(tmp_path / "d", _BEATS + _WAITS.format(limit=1.0), 1)
    (tmp_path / "d" / "work").unlink()
    status = wait(backend, tmp_path / "d", lambda status: status.state.final)
    assert status.detail.startswith("host a hangs: rank 0 has been writing to disk for more than 1 s; ")
    assert 'File "<string>", line 15 in <module>' in log_file(tmp_path / "d", 0).read_text()


@pytest.mark.slow
def test_a_rank_that_never_says_anything_is_found_where_it_should(tmp_path: Path) -> None:
    # Nothing is asked for its stack before it has said that it can give one: the signal would end it.
    backend = working(tmp_path / "d", "import signal; signal.pause()", 1, start_limit_s=1.0)
    status = wait(backend, tmp_path / "d", lambda status: status.state.final)
    assert (status.state, status.dead) == (RunState.FAILED, ())
    assert status.detail == (
        "host a hangs: rank 0 has been starting for more than 1 s; no rank has got so far that it writes its stack"
    )


@pytest.mark.slow
def test_it_is_said_of_whom_there_is_no_stack(tmp_path: Path) -> None:
    early = "import os, signal\nif os.environ['RANK'] != '0': signal.pause()\n"
    backend = working(tmp_path / "d", early + _BEATS, 3, start_limit_s=5.0)
    status = wait(backend, tmp_path / "d", lambda status: status.state.final)
    assert status.detail == (
        "host a hangs: rank 1 has been starting for more than 5 s; the stacks are in logs/rank-*.log, too early for "
        "that of rank 1, 2"
    )
    assert "in step\n" in log_file(tmp_path / "d", 0).read_text()


def test_a_process_without_a_pulse_is_heard_as_long_as_its_folder_grows(tmp_path: Path) -> None:
    listener, folder = Listener(tmp_path / "pulse"), tmp_path / "growing"
    pulse = Pulse({PULSE: str(listener.path)})
    with pulse.beats_while_growing(folder, 0.04, "converting"):
        listener.is_late(0.0)
        folder.mkdir()
        for name in "ab":
            assert listener.is_late(1.0)
            (folder / name).write_text("more")
            eventually(lambda: not listener.is_late(1.0))
    assert listener.describe() == "has been converting for more than 0 s"


def test_a_folder_that_goes_while_it_is_looked_at_ends_no_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener, folder, scan = Listener(tmp_path / "pulse"), tmp_path / "growing", os.scandir
    (folder / "tmp").mkdir(parents=True)

    def scandir(path: str | Path) -> Iterator[os.DirEntry[str]]:
        # It goes after it was found and before it is opened.
        if Path(path) == folder / "tmp":
            Path(path).rmdir()
        return scan(path)

    with Pulse({PULSE: str(listener.path)}).beats_while_growing(folder, 0.04, "converting"):
        monkeypatch.setattr(os, "scandir", scandir)
        eventually(lambda: not (folder / "tmp").exists())
        listener.is_late(0.0)
        (folder / "more").touch()
        eventually(lambda: not listener.is_late(1.0))


@pytest.mark.slow
def test_silence_is_counted_from_the_last_beat(tmp_path: Path) -> None:
    listener = Listener(tmp_path / "pulse")
    pulse = Pulse({PULSE: str(listener.path)})
    assert not listener.is_late(1000.0)
    pulse.beat(10.0, "doing a step")
    assert [listener.is_late(4.0) for _ in range(4)] == [False, False, False, True]
    pulse.beat(10.0, "doing a step")
    assert not listener.is_late(1000.0)
    assert not listener.is_late(10.0)
    pulse.beat(math.inf, "waiting")
    assert [listener.is_late(1e9) for _ in range(2)] == [False, False]


@pytest.mark.parametrize("fills_up", ["before the agent starts", "before the file is there", "before the first beat"])
def test_a_rank_that_works_is_not_late_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fills_up: str
) -> None:
    path, written, replaced = tmp_path / "pulse", Path.write_bytes, os.pwrite

    def write_bytes(path: Path, data: bytes) -> int:
        if fills_up == "before the file is there":
            written(path, b"")
        if fills_up != "before the first beat":
            raise OSError(errno.ENOSPC, "No space left on device")
        return written(path, data)

    def pwrite(file: int, data: bytes, place: int) -> int:
        if place + len(data) > os.fstat(file).st_size:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replaced(file, data, place)

    monkeypatch.setattr(Path, "write_bytes", write_bytes)
    monkeypatch.setattr(os, "pwrite", pwrite)
    listener = Listener(path, first_limit_s=20.0)
    pulse, is_heard = Pulse({PULSE: str(path)}), fills_up == "before the first beat"
    for _ in range(5):
        pulse.beat(10.0, "doing a step")
        assert not listener.is_late(9.0)
    assert listener.is_watched is is_heard
    # One that hangs is late where it was heard.
    assert listener.is_late(100.0) is is_heard


def test_nobody_listens_where_no_agent_has_started_the_rank() -> None:
    Pulse({}).beat(1.0, "doing a step")


def test_nccl_is_asked_for_its_recordings(tmp_path: Path) -> None:
    recorder = FlightRecorder(tmp_path / "logs", tmp_path)
    pipe = recorder.environment["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + "3.pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    recorder.dump([2, 3])
    assert os.read(reader, 10) == b"1"
    os.close(reader)
