"""What may be loaded by which command and module: each in an interpreter of its own."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SOLVERS = ("highspy", "pyscipopt")
DECLARATIONS = ("cvxpy", "pyomo")
DRAWING = ("matplotlib",)
WEB = ("fastapi", "sqlalchemy", "uvicorn")
NUMBERS = ("numpy", "scipy", "networkx")
MODELS = (*SOLVERS, *DECLARATIONS)

# What is run: the arguments of a command, or a module; and what must not be loaded when it ends.
FORBIDDEN = {
    "stowplan --help": (*MODELS, *DRAWING, *WEB, *NUMBERS, "pydantic", "rich", "models", "solver"),
    "stowplan examples": (*MODELS, *DRAWING, *WEB, *NUMBERS, "pydantic", "rich", "models", "solver"),
    "stowplan plan --help": (*MODELS, *DRAWING, *WEB),
    "stowplan trace --help": (*MODELS, *DRAWING, *WEB),
    "stowplan serve --help": (*MODELS, *DRAWING, *WEB, *NUMBERS),
    "api.cli.compare": (*MODELS, *DRAWING, *WEB),
    "api.cli.parallel": (*MODELS, *DRAWING, *WEB),
    "api.cli.demo": (*MODELS, *DRAWING, *WEB),
    "api.cli.verify": (*MODELS, *DRAWING, *WEB),
    "workloads.readers.table": (*MODELS, *DRAWING, *WEB, "scipy", "models", "topology", "solver", "api"),
    "workloads.generators.suika": (*MODELS, *DRAWING, *WEB, "scipy", "models", "topology", "solver", "api"),
    # Until the workers are on their way.
    "api.server": (*MODELS, *DRAWING, *WEB, "networkx", "scipy.optimize"),
    "api.app": (*MODELS, *DRAWING, "networkx", "scipy.optimize"),
    # In workers, before they are ready; the rest of their hot paths.
    "models.planning": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
    "models.allocation.sia.formulation": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
    "models.placement.arnold.policy": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
    "models.allocation.arena.policy": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
    "models.allocation.gang.formulation": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
    "models.allocation.suika.formulation": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
}
_PROGRAM = """
import runpy, sys
name, *arguments = {name!r}.split()
sys.argv = ["stowplan", *arguments]
try:
    runpy.run_module("api.cli.main" if arguments else name, run_name="__main__" if arguments else name)
except SystemExit as end:
    assert not end.code, end.code
print(*(set(sys.modules) & {{*{forbidden!r}}}), file=sys.stderr)
"""


@pytest.mark.parametrize("name", FORBIDDEN)
def test_heavy_modules_are_loaded_by_those_who_need_them(name: str) -> None:
    program = _PROGRAM.format(name=name, forbidden=FORBIDDEN[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr.split()) == (0, [])
