"""What may be loaded by which command and module, one after another in few interpreters.

Nothing is unloaded in between: whatever a module loads that it must not is there when it is looked at, so one
interpreter for several asks more of them than one for each.
"""

import json
import os
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
LEARNING = "lightgbm"
SAMPLES = "tests/models/cluster_state/slurm_samples"
# Of OpenTelemetry FastAPI loads the interface.
TRACING = ("opentelemetry.sdk", "opentelemetry.exporter", "opentelemetry.instrumentation")

# What is run, one interpreter a list: the arguments of a command, or a module; and what it must not have loaded then.
FORBIDDEN: dict[str, dict[str, tuple[str, ...]]] = {
    "commands": {
        "stowplan --help": (*MODELS, *DRAWING, *WEB, *NUMBERS, "pydantic", "rich", "models", "solver"),
        "stowplan examples": (*MODELS, *DRAWING, *WEB, *NUMBERS, "pydantic", "rich", "models", "solver"),
        "stowplan serve --help": (*MODELS, *DRAWING, *WEB, *NUMBERS),
        "stowplan plan --help": (*MODELS, *DRAWING, *WEB),
        "stowplan trace --help": (*MODELS, *DRAWING, *WEB),
        "stowplan replay --help": (*MODELS, *DRAWING, *WEB),
        "stowplan forecast --help": (*MODELS, *DRAWING, *WEB, LEARNING),
        "stowplan forecast train --help": (*MODELS, *DRAWING, *WEB, LEARNING),
        "stowplan applications --help": (*MODELS, *DRAWING, *WEB),
        "stowplan calendar --help": (*MODELS, *DRAWING, *WEB),
        "api.cli.compare": (*MODELS, *DRAWING, *WEB),
        "api.cli.parallel": (*MODELS, *DRAWING, *WEB),
        "api.cli.demo": (*MODELS, *DRAWING, *WEB),
        "api.cli.verify": (*MODELS, *DRAWING, *WEB),
        "api.cli.what_if": (*MODELS, *DRAWING, *WEB),
    },
    # Of a command that takes seconds for the largest clusters.
    "import": {
        "stowplan import --help": (*MODELS, *DRAWING, *WEB, "executor", "networkx", "pydantic"),
        f"stowplan import slurm --nodes {SAMPLES}/sinfo.json --queue {SAMPLES}/squeue.json --output {os.devnull}": (
            *(
                *MODELS,
                *DRAWING,
                *WEB,
                "executor",
                "networkx",
                "scipy",
                "pydantic",
                "pydantic_core",
                "api.schemas.base",
            ),
        ),
    },
    "readers, workers": {
        "workloads.readers.table": (*MODELS, *DRAWING, *WEB, "scipy", "models", "topology", "solver", "api"),
        "workloads.generators.suika": (*MODELS, *DRAWING, *WEB, "scipy", "models", "topology", "solver", "api"),
        # In workers, before they are ready; the rest of their hot paths.
        "models.planning": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
        "models.allocation.sia.formulation": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
        "models.placement.arnold.policy": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
        "models.allocation.arena.policy": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
        "models.allocation.gang.formulation": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
        "models.allocation.suika.formulation": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
        "api.replays.replay_task": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize"),
        "api.reading.packed": (*MODELS, *DRAWING, *WEB, "networkx", "scipy.optimize"),
        # All that they have while nobody waits.
        "api.workers:IDLE_LOAD": (*DECLARATIONS, *DRAWING, *WEB, "pyscipopt", "scipy.optimize", "scipy.linalg"),
    },
    "service": {
        # Until the workers are on their way.
        "api.server": (*MODELS, *DRAWING, *WEB, "networkx", "scipy", LEARNING, *TRACING),
        "api.app": (*MODELS, *DRAWING, "networkx", "scipy", LEARNING, *TRACING),
        "api.web": (*MODELS, *DRAWING, "scipy", LEARNING, *TRACING),
    },
    # The controller asks it at every event.
    "whether anything may start": {
        # Beside httpx it needs nothing.
        "stowplan.client": (*MODELS, *DRAWING, *WEB, *NUMBERS, "pydantic", "models", "solver", "api"),
        "models.allocation.gang.idle": (*MODELS, *DRAWING, *WEB, *NUMBERS, "pydantic"),
    },
    "replays": {"executor.simulation.replay": (*MODELS, *DRAWING, *WEB, "networkx", "pydantic", "scipy.optimize")},
}
_PROGRAM = """
import importlib, json, runpy, sys
found = {{}}
for name, forbidden in {chain!r}.items():
    program, *arguments = name.split()
    sys.argv = [program, *arguments]
    try:
        if arguments:
            runpy.run_module("api.cli.main", run_name="__main__")
        else:
            module, _, listed = name.partition(":")
            loaded = importlib.import_module(module)
            for each in getattr(loaded, listed) if listed else ():
                importlib.import_module(each)
    except SystemExit as end:
        assert not end.code, end.code
    found[name] = sorted(set(sys.modules) & set(forbidden))
print(json.dumps(found), file=sys.stderr)
"""


@pytest.mark.parametrize("chain", FORBIDDEN)
def test_heavy_modules_are_loaded_by_those_who_need_them(chain: str) -> None:
    program = _PROGRAM.format(chain=FORBIDDEN[chain])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    # Behind what commands say there.
    assert json.loads(done.stderr.splitlines()[-1]) == {name: [] for name in FORBIDDEN[chain]}
