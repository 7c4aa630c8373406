"""What programs of users import: alone, without anything of ours beside it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from executor.launch.pulse import Listener
from executor.own_steps import OwnStep, first_own_step, last_own_step, newest_own_steps
from tests.paths import ROOT

pytestmark = pytest.mark.slow


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_elsewhere_it_does_nothing() -> None:
    code = "import sys; from stowplan_metrics import *; import stowplan_metrics as m; m.report(1, loss=2.0); "
    assert run(code + "print(m.should_stop(), [n for n in sys.modules if n in ('executor', 'stowplan', 'numpy')])") == (
        "False []\n"
    )


def test_lines_pulse_and_stop(tmp_path: Path) -> None:
    path, stop = tmp_path / "own-rank0.jsonl", tmp_path / "stop"
    listener = Listener(tmp_path / "pulse")
    code = (
        "import pathlib, stowplan_metrics as m; m.report(5, loss=2.0, lr=0.1); m.report(6, loss=float('nan')); "
        f"print(m.should_stop()); pathlib.Path({str(stop)!r}).touch(); print(m.should_stop())"
    )
    said = run(
        code,
        STOWPLAN_METRICS=str(path),
        STOWPLAN_STOP=str(stop),
        STOWPLAN_PULSE=str(listener.path),
        STOWPLAN_REPORT_LIMIT_S="7.5",
    )
    assert said.split() == ["False", "True"]
    first, last = first_own_step(path), last_own_step(path)
    assert first is not None
    assert last is not None
    assert (first.step, first.loss, last.step, last.loss) == (5, 2.0, 6, None)
    assert last.started_at_s == pytest.approx(first.started_at_s + first.step_s)
    assert json.loads(path.read_text().splitlines()[0])["lr"] == 0.1
    assert not listener.is_late(1.0)
    assert not listener.is_late(7.0)
    assert listener.is_late(1.0)
    assert listener.describe() == "has been waiting for its next report for more than 8 s"


def test_steps_that_are_told_of_at_once_share_their_time(tmp_path: Path) -> None:
    path = tmp_path / "own-rank0.jsonl"
    code = (
        "import itertools, time; at_s = itertools.chain([0.0, 7.0, 17.0, 18.0]); time.time = lambda: next(at_s); "
        "import stowplan_metrics as m; m.report(40, loss=1.0); m.report(50, loss=1.0); m.report(50, loss=1.0)"
    )
    run(code, STOWPLAN_METRICS=str(path))
    # What the first report stands for is not known: the program may have gone on from a checkpoint.
    told = [(step.step, step.started_at_s, step.step_s) for step in newest_own_steps(path, 10)]
    assert told == [(40, 0.0, 7.0), (50, 16.0, 1.0), (50, 17.0, 1.0)]
    assert [step.started_at_s for step in newest_own_steps(path, 1)] == [17.0]


def test_lines_that_are_no_steps_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    assert last_own_step(path) is None
    line = '{"step": 3, "started_at_s": 1.0, "step_s": 0.5}'
    path.write_text(
        f'hello\n[]\n{line}\n{{"step": "x"}}\n'
        f"{line.replace('3', '0')}\n{line.replace('0.5', '-1')}\n{line.replace('0.5', 'NaN')}\n"
        '{"step": 4, "started_at_s": 2'
    )
    assert first_own_step(path) == last_own_step(path) == OwnStep(step=3, started_at_s=1.0, step_s=0.5, loss=None)
