"""Ranks that hang are told from those that work, leave their stacks, and end; small programs in place of a trainer."""

import json
import math
import os
import signal
import sys
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
pulse.beat(2.0)
print("beats", flush=True)
while work.exists():
    pulse.beat(2.0)
    step()
"""
_WAITS = """
pulse.beat({limit})
while True:
    step()
"""


def working(folder: Path, script: str, num_ranks: int) -> LocalBackend:
    """A run of a host `a` whose ranks run `script`."""
    deployment(folder, "", {"a": num_ranks})
    launch = json.loads((folder / "launch.json").read_text())
    launch |= {"command": [sys.executable, "-c", script], "environment": {"PYTHONPATH": str(ROOT)}}
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
        "host a hangs: rank 1 is stopped by a signal; rank 1 has not ended its step in time; "
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
    assert status.detail.startswith("host a hangs: rank 0 has not ended its step in time; ")
    assert 'File "<string>", line 15 in <module>' in log_file(tmp_path / "d", 0).read_text()


@pytest.mark.slow
def test_silence_is_counted_from_the_last_beat(tmp_path: Path) -> None:
    listener = Listener(tmp_path / "pulse")
    pulse = Pulse({PULSE: str(listener.path)})
    assert not listener.is_late(1000.0)
    pulse.beat(10.0)
    assert [listener.is_late(4.0) for _ in range(4)] == [False, False, False, True]
    pulse.beat(10.0)
    assert not listener.is_late(1000.0)
    assert not listener.is_late(10.0)
    pulse.beat(math.inf)
    assert [listener.is_late(1e9) for _ in range(2)] == [False, False]


def test_nobody_listens_where_no_agent_has_started_the_rank() -> None:
    Pulse({}).beat(1.0)


def test_nccl_is_asked_for_its_recordings(tmp_path: Path) -> None:
    recorder = FlightRecorder(tmp_path / "logs", tmp_path)
    pipe = recorder.environment["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + "3.pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    recorder.dump([2, 3])
    assert os.read(reader, 10) == b"1"
    os.close(reader)
