"""The wheel beside a user's own modules that are called like rooms of the tree, outside of the checkout."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from shipping.described import addresses, described
from shipping.moved import HOME, ROOMS, MoveError, moved
from tests.paths import ROOT
from tests.ports import free_port

HOME_ADDRESS = "https://git.example.org/stowplan"
MODULES = frozenset({"models.plan", "solver.pool", "solver"})
# What a user's script does with a service that is installed, and with classes of the product.
SCRIPT = """
import subprocess, sys
import api, executor, models, solver, topology, workloads

assert {own.WHOSE for own in (api, executor, models, solver, topology, workloads)} == {"the user's own"}
from stowplan.client import Client, Retries
from stowplan.solver.result import SolveResult

assert SolveResult.__module__ == "stowplan.solver.result"
serve = ["-S", "-m", "stowplan", "serve", "--port", sys.argv[1], "--database", ":memory:"]
service = subprocess.Popen([sys.executable, *serve])
try:
    retries = Retries(attempts=1000, first_pause_s=0.1, longest_pause_s=0.2, total_s=90.0)
    with Client(f"http://127.0.0.1:{sys.argv[1]}", retries=retries) as client:
        plan = client.plans.solve(client.service.example("quickstart"), timeout_s=90)
        print(plan["status"], plan["verified"], client.plans.figure(plan["id"])[:5])
        job = {"model": "opt-125m", "global_batch": 8}
        best = client.parallel_plans.create({"job": job, "gpus": [{"gpu_type": "h100", "counts": [1]}]})["best"]
        print(best["num_gpus"])
finally:
    service.terminate()
    service.wait(60)
"""


def test_names_of_rooms_are_moved_where_they_are_names() -> None:
    source = (
        '"""from models.plan import Plan: documentation stays."""\n'
        "from models.plan import Plan\n"
        "from stowplan.errors import models\n"
        'TASK, ÄHNLICH, FILE = "models.plan:plan_task", ("ä", "solver.pool"), "models.toml"\n'
        'LOGGER = "stowplan.solver.pool"\n'
        "def late():\n"
        "    from solver import pool\n"
    )
    assert moved(source, "here", MODULES) == (
        '"""from models.plan import Plan: documentation stays."""\n'
        "from stowplan.models.plan import Plan\n"
        "from stowplan.errors import models\n"
        'TASK, ÄHNLICH, FILE = "stowplan.models.plan:plan_task", ("ä", "stowplan.solver.pool"), "models.toml"\n'
        'LOGGER = "stowplan.solver.pool"\n'
        "def late():\n"
        "    from stowplan.solver import pool\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        "import models.plan",
        'command = "python -m solver.pool"',
        'program = f"from solver.pool import main; main({1})"',
        'folder = files("models")',
        'module = importlib.import_module("solver")',
        "from  models.plan import Plan",
    ],
)
def test_what_cannot_be_moved_for_certain_is_refused(source: str) -> None:
    with pytest.raises(MoveError, match=r"^here:2: "):
        moved(f"pass\n{source}\n", "here", MODULES)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built in a copy of what it is built from."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in (*ROOMS, HOME, "shipping"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "stowplan_metrics.py"):
        shutil.copy(ROOT / name, tree)
    # An earlier build, from before rooms were moved.
    (tree / "build" / "lib" / "models").mkdir(parents=True)
    (tree / "build" / "lib" / "models" / "plan.py").touch()
    build = "from setuptools.build_meta import build_wheel; build_wheel('.')"
    home = os.environ | {"STOWPLAN_HOME": HOME_ADDRESS}
    subprocess.run([sys.executable, "-c", build], cwd=tree, check=True, capture_output=True, timeout=120, env=home)
    (built,) = tree.glob("*.whl")
    return built


def test_links_of_what_an_index_shows_lead_somewhere() -> None:
    text = "![plan](docs/a.svg)\n[how](docs/b.md#c), [here](#d), [paper](https://example.org/)\n```\n[a](b)\n```\n"
    assert described(text, None) == "\nhow, [here](#d), [paper](https://example.org/)\n```\n[a](b)\n```\n"
    home = "https://git.example.org/stowplan"
    led = described(text, f"{home}/")
    assert f"![plan]({home}/raw/main/docs/a.svg)" in led
    assert f"[how]({home}/blob/main/docs/b.md#c)" in led
    assert "![plan](https://raw.example.org/docs/a.svg)" in described(text, home, "https://raw.example.org")
    assert addresses(home)["Repository"] == home
    assert addresses(None) == {}


@pytest.mark.slow
def test_an_installed_product_does_not_meet_modules_of_users(wheel: Path, tmp_path: Path) -> None:
    installed, work = tmp_path / "installed", tmp_path / "work"
    with zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        packed.extractall(installed)
    version = next(name.partition("/")[0] for name in names if name.endswith("/METADATA"))
    assert {name.partition("/")[0] for name in names} == {HOME, "stowplan_metrics.py", version}
    metadata = (installed / version / "METADATA").read_text()
    assert f"Project-URL: Repository, {HOME_ADDRESS}" in metadata
    assert f"![Minipods over time]({HOME_ADDRESS}/raw/main/docs/ahead-two-weeks.svg)" in metadata
    assert "](docs/" not in metadata.partition("\n\n")[2]
    assert "stowplan = stowplan.__main__:main" in (installed / version / "entry_points.txt").read_text()
    shipped = {path for path in names if not path.endswith(".py")}
    assert {f"{HOME}/models/models.toml", f"{HOME}/py.typed", f"{HOME}/api/examples/quickstart.json"} <= shipped

    work.mkdir()
    for room in ROOMS:
        (work / f"{room}.py").write_text('WHOSE = "the user\'s own"\n')
    (work / "script.py").write_text(SCRIPT)
    # Without what `site` adds, the checkout among it; the user's modules come first.
    packages = [path for path in sys.path if path.endswith("site-packages")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(work), str(installed), *packages])}
    command = [sys.executable, "-S", "script.py", str(free_port())]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "succeeded True <?xml\n1\n"
    assert str(ROOT) not in done.stderr
