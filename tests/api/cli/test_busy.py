"""The line that says what a command is at: on a terminal alone, on standard error, gone afterwards."""

import json
import os
import pty
import subprocess
import sys
from io import StringIO

import pytest

from api.cli.busy import busy
from tests.paths import ROOT

_LIMIT_S = 60


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_told_what_is_done(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with busy("reading [bold]jobs.txt"):
        assert capsys.readouterr().out == ""
    assert "reading [bold]jobs.txt" in screen.getvalue(), "a name is no markup"
    assert "0:00:00" in screen.getvalue()
    assert capsys.readouterr().out == ""


def test_nobody_else_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with busy("reading"):
        pass
    assert capsys.readouterr() == ("", "")


def test_what_goes_wrong_passes_and_leaves_the_terminal_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with pytest.raises(KeyboardInterrupt), busy("reading"):
        raise KeyboardInterrupt
    assert screen.getvalue().rindex("\x1b[?25h") > screen.getvalue().rindex("\x1b[?25l"), "the cursor is shown again"


@pytest.mark.slow
def test_a_command_on_a_terminal_keeps_its_answer_apart() -> None:
    """Standard error is a terminal, standard output a pipe: what is piped on is JSON alone."""
    master, slave = pty.openpty()
    jobs = "id,submit,gpus,duration\na,0,4,100\n"
    command = [sys.executable, "-m", "api.cli.main", "trace", "-", "--format", "csv", "--json"]
    columns = ["--columns", "id=id,submit=submit,gpus=gpus,duration=duration"]
    try:
        done = subprocess.run(
            [*command, *columns],
            check=True,
            cwd=ROOT,
            input=jobs.encode(),
            stdout=subprocess.PIPE,
            stderr=slave,
            timeout=_LIMIT_S,
            env={**os.environ, "TERM": "xterm"},
        )
        assert b"reading -" in os.read(master, 65536)
    finally:
        os.close(master)
        os.close(slave)
    assert json.loads(done.stdout)["num_jobs"] == 1
