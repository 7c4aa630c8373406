"""CONTRIBUTING.md is followed literally: in a copy of the tree, every file is written and every line added that it
names, and the result is used as its reader would."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.cli.exit_codes import ExitCode
from tests.paths import ROOT

pytestmark = pytest.mark.slow
ROOMS = ("benchmarks", "stowplan", "topology", "workloads", "solver", "models", "executor", "api", "tests")
_BLOCK = re.compile(r"^```(python|diff) (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LIMIT_S = 120

Run = Callable[..., str]

# Nodes of 4 and 8 GPUs: `large` weighs as much as three others, so it gets the 8 and one of the others the 4.
_GPU = {
    "name": "a100",
    "memory_bytes": 80 * 2**30,
    "peak_flops_per_s": 312e12,
    "intra_node_bandwidth_bytes_per_s": 300e9,
    "inter_node_bandwidth_bytes_per_s": 25e9,
}
_REQUEST = {
    "policy": "most-jobs",
    "snapshot": {
        "cluster": {
            "gpu_types": [_GPU],
            "nodes": [
                {"id": "small", "gpu_type": "a100", "num_gpus": 4},
                {"id": "big", "gpu_type": "a100", "num_gpus": 8},
            ],
        },
        "jobs": [
            {"id": "large", "min_gpus": 8, "weight": 3.0},
            {"id": "b", "min_gpus": 4},
            {"id": "c", "min_gpus": 4},
        ],
    },
}


def _follow(recipes: str, tree: Path) -> None:
    """Write the files and add the lines of all blocks."""
    for language, name, text in _BLOCK.findall(recipes):
        path = tree / name
        if language == "python":
            assert not path.exists(), f"{name} is there already"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            continue
        lines = text.splitlines()
        anchor = "\n".join(line[1:] for line in lines if line.startswith(" "))
        added = "\n".join(line[1:] for line in lines if line.startswith("+"))
        before = path.read_text()
        assert before.count(f"{anchor}\n") == 1, f"{name} does not have once: {anchor}"
        path.write_text(before.replace(f"{anchor}\n", f"{anchor}\n{added}\n"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    for room in ROOMS:
        shutil.copytree(ROOT / room, folder / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    _follow((ROOT / "CONTRIBUTING.md").read_text(), folder)
    return folder


@pytest.fixture(scope="module")
def run(tree: Path) -> Run:
    def in_the_copy(*arguments: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree), **environment},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return in_the_copy


# Loading is most of the work, so one interpreter does all that the tests below look at. Of every command the exit
# code, the standard output and the standard error.
_USED = """
import json, sys
from typer.testing import CliRunner
from api.cli.main import app
from api.app import create_app
from api.common.settings import Settings
from api.plans.policies import POLICIES

def stowplan(*arguments):
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr

folder = sys.argv[1]
gpus = ("--gpu-type", "a100", "--gpus-per-node", "8", "--gpu-types", f"{folder}/request.json")
print(json.dumps({
    "plan": stowplan("plan", f"{folder}/request.json", "--output", f"{folder}/answer.json"),
    "reserved": stowplan("plan", f"{folder}/reserved.json"),
    "hosts": stowplan("import", "mpi-hostfile", f"{folder}/hosts", *gpus),
    "no_hosts": stowplan("import", "mpi-hostfile", f"{folder}/no_hosts", *gpus),
    "export": stowplan("export", f"{folder}/answer.json", "--job", "large", "--to", "hydra"),
    "openapi": create_app(Settings()).openapi(),
    "policies": POLICIES.model_dump(mode="json"),
}))
"""


@pytest.fixture(scope="module")
def used(run: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the copy says and answers."""
    folder = tmp_path_factory.mktemp("used")
    reserved = {"id": "d", "reservation": {"gpu_type": "a100", "num_gpus": 1}}
    snapshot = {**_REQUEST["snapshot"], "jobs": [reserved]}  # type: ignore[dict-item]
    (folder / "request.json").write_text(json.dumps(_REQUEST))
    (folder / "reserved.json").write_text(json.dumps({**_REQUEST, "snapshot": snapshot}))
    (folder / "hosts").write_text("# two hosts\nn1 slots=4\nn2\n")
    (folder / "no_hosts").write_text("n1\nn2 slots=many\n")
    said: dict[str, Any] = json.loads(run("-c", _USED, str(folder)))
    assert said["plan"][0] == 0, said["plan"]
    return said | {"answer": json.loads((folder / "answer.json").read_text())}


def test_the_policy_plans_and_its_plan_is_checked(used: dict[str, Any]) -> None:
    plan = used["answer"]
    given = {item["job_id"]: item["gpus"] for item in plan["allocations"]}
    assert plan["policy"] == "most-jobs"
    assert plan["proven_optimal"]
    assert plan["verified"]
    assert plan["objective"] == pytest.approx(4.0)
    assert given.pop("large") == {"big": [0, 1, 2, 3, 4, 5, 6, 7]}
    assert list(given.values()) == [{"small": [0, 1, 2, 3]}]
    assert [job["reason"] for job in plan["unplaced"]] == ["capacity"]


def test_the_policy_refuses_what_it_cannot_plan(used: dict[str, Any]) -> None:
    code, _, said = used["reserved"]
    assert code == ExitCode.BAD_INPUT
    assert "has a reservation; most-jobs gives min_gpus" in said


def test_http_and_openapi_know_the_policy_and_the_solver(used: dict[str, Any]) -> None:
    document = used["openapi"]
    assert "most-jobs" in [policy["name"] for policy in used["policies"]["policies"]]
    assert "MostJobsPlanBody" in document["components"]["schemas"]
    assert "scipy-milp" in json.dumps(document["components"]["schemas"]["OptionsDoc"])


def test_the_reader_is_a_format_of_the_command_line(used: dict[str, Any]) -> None:
    code, cluster, said = used["hosts"]
    assert code == 0, said
    assert [(node["id"], node["num_gpus"]) for node in json.loads(cluster)["nodes"]] == [("n1", 4), ("n2", 8)]
    code, _, said = used["no_hosts"]
    assert code == ExitCode.BAD_INPUT
    assert "no_hosts:2: 'n2 slots=many' is no host" in said.replace("\n", " ")


def test_the_export_format_is_known_to_the_command_line(used: dict[str, Any]) -> None:
    assert used["export"] == [0, "big:8\n", ""]


def test_the_launch_backend_runs_ranks_on_its_hosts(run: Run, tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    docker = programs / "docker"
    # Runs the command here, as a container that sees the same files would: docker exec HOST sh -c COMMAND.
    docker.write_text('#!/bin/sh\n[ "$1 $3 $4" = "exec sh -c" ] && exec sh -c "$5"\n')
    docker.chmod(0o755)
    code = (
        "import json, sys, time; from pathlib import Path; from executor.launch.backends import launch_backend;"
        "from tests.executor.launch.test_local import deployment;"
        "folder = deployment(Path(sys.argv[1]), 'echo $RANK', {'a': 2, 'b': 1});"
        "launch = json.loads((folder / 'launch.json').read_text()) | {'python': sys.executable};"
        "(folder / 'launch.json').write_text(json.dumps(launch));"
        "backend = launch_backend('docker'); backend.start(folder); end = time.monotonic() + 60\n"
        "while not backend.status(folder).state.final and time.monotonic() < end: time.sleep(0.05)\n"
        "ends = [(folder / 'logs' / f'rank-{k}.log').read_text().strip() for k in range(3)];"
        "print(backend.status(folder).state.value, ends)"
    )
    said = run("-c", code, str(tmp_path / "d"), PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
    assert said.strip() == "succeeded ['0', '1', '2']"


def test_what_must_be_green_is_green(run: Run) -> None:
    chosen = ("tests/models/test_policies.py", "tests/solver/test_backends.py", "tests/topology/test_readers.py")
    said = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *chosen,
        "tests/executor/launch/test_backends.py", "-k", "most-jobs or scipy-milp or mpi-hostfile or docker",
    )  # fmt: skip
    assert " passed" in said
