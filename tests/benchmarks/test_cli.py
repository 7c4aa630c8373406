"""`python -m benchmarks`: its table of commands, and what asking for help loads."""

import importlib
import inspect
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from benchmarks.cli import COMMANDS, app

HEAVY = ("cvxpy", "matplotlib", "numpy", "pydantic", "pyomo", "scipy")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_says_what_the_command_says_of_itself(name: str) -> None:
    known = COMMANDS[name]
    module, _, function = known.target.partition(":")
    own = inspect.getdoc(getattr(importlib.import_module(module), function)) or ""
    assert own.partition("\n")[0] == known.summary
    answer = CliRunner().invoke(app, [name, "--help"])
    assert answer.exit_code == 0, answer.output
    assert f"Usage: root {name}" in answer.output


def test_help_names_every_command_and_loads_none() -> None:
    code = f"""
import sys
from benchmarks.cli import app
app(["--help"], prog_name="benchmarks", standalone_mode=False)
sys.exit(" ".join(name for name in {HEAVY} if name in sys.modules))
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert answer.stderr.strip() == ""
    assert all(f"  {name} " in answer.stdout for name in COMMANDS)
