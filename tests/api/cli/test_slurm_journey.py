"""The journey of a Slurm admin: the commands of `docs/slurm.md`, on files and on a real Slurm."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from api.cli.main import app
from benchmarks.placement.slurm_cluster import Gpus, missing, slurm_cluster
from tests.paths import ROOT
from tests.waiting import eventually

_TUTORIAL = (ROOT / "docs" / "slurm.md").read_text()
_SAMPLES = ROOT / "tests" / "models" / "cluster_state" / "slurm_samples"
# What runs before the admin looks: two jobs on half a node, a broken node, and a queue behind a job that is too wide.
_RUN_FIRST = (
    "sbatch --mem=1 -w n1 --gres=gpu:h100:4 -t 50 -J tune --wrap 'sleep 600'",
    "sbatch --mem=1 -w n1 --gpus=2 -t 30 -J eval --wrap 'sleep 600'",
)
_WAIT = (
    "scontrol update nodename=n4 state=drain reason='bad fan'",
    "sbatch --mem=1 -N4 --gpus-per-node=h100:8 -t 2:00:00 -J wide --wrap 'sleep 600'",
    "sbatch --mem=1 -H -N2 --gpus-per-node=8 -t 2-0 -J llm --wrap 'sleep 600'",
    "sbatch --mem=1 --array=0-3%2 --gpus=1 -t 10 -J sweep --wrap 'sleep 600'",
    "sbatch --mem=1 --dependency=afterok:3 --gpus=8 -t 10 -J report --wrap 'sleep 600'",
    "sbatch --mem=1 --gpus-per-task=1 -n 4 -t 10 -J test --wrap 'sleep 600'",
    "sbatch --mem=1 -n1 --gpus=1 -J duo --wrap true : -n2 --mem=1 --gpus=2 -t 10",
    "scontrol create reservation reservationname=maint starttime=now+3600 duration=120 nodes=n[1-2] flags=maint user=0",
)


def blocks(kind: str) -> list[str]:
    """Lines of the shell blocks of a kind."""
    found = re.findall(rf"^```{re.escape(kind)}\n(.*?)^```", _TUTORIAL, re.DOTALL | re.MULTILINE)
    return [line for block in found for line in block.splitlines()]


def planned(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Run the commands of the tutorial in a folder; gives the plans."""
    monkeypatch.chdir(folder)
    plans = []
    for line in blocks("sh"):
        program, *words = shlex.split(line)
        assert program == "stowplan"
        result = CliRunner().invoke(app, [*words, "--json"] if words[0] == "plan" else words)
        assert result.exit_code == 0, (line, result.output)
        if words[0] == "plan":
            plans.append(json.loads(result.stdout))
    return plans


def assert_is_handed_over(folder: Path) -> None:
    """What starts is told the nodes of the plan; the large job, its two."""
    for name, wanted in (("handover", {"5_0", "5_1", "7", "8"}), ("large-handover", {"4"})):
        actions = json.loads((folder / name / "actions.json").read_text())["actions"]
        assert {item["job_id"] for item in actions if item["action"] == "steer"} == wanted
    assert (folder / "large-handover" / "hosts-4").read_text().split() in (
        ["n2"] * 8 + ["n3"] * 8,
        ["n3"] * 8 + ["n2"] * 8,
    )
    script = (folder / "large-job" / "job.sbatch").read_text().splitlines()
    assert {"#SBATCH --nodelist=n[2-3]", "#SBATCH --account=llm", "#SBATCH --gres=gpu:8"} <= set(script)


def assert_is_the_plan(folder: Path, plans: list[dict[str, Any]]) -> None:
    """Both plans are verified; what runs stays, what is free is used, and the large job is on the two free nodes."""
    snapshot = json.loads((folder / "snapshot.json").read_text())
    assert {job["id"]: job["current"] for job in snapshot["jobs"] if "current" in job} == {
        "1": {"n1": [0, 1, 2, 3]},
        "2": {"n1": [4, 5]},
    }
    assert [entry["name"] for entry in snapshot["calendar"]] == ["maint"]
    queue, large = plans
    assert queue["verified"]
    changes = {item["job_id"]: item["change"] for item in queue["allocations"]}
    assert changes == {"1": "kept", "2": "kept"} | dict.fromkeys(("5_0", "5_1", "7", "8"), "started")
    assert {item["job_id"]: item["reason"] for item in queue["unplaced"]} == {"3": "capacity"}
    assert large["verified"]
    assert {item["job_id"]: set(item["gpus"]) for item in large["allocations"]}["4"] == {"n2", "n3"}


def test_on_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, source in (("nodes.json", "sinfo.json"), ("squeue.json",) * 2, ("topology.conf",) * 2):
        shutil.copy(_SAMPLES / source, tmp_path / name)
    shutil.copy(_SAMPLES / "reservations.txt", tmp_path)
    assert_is_the_plan(tmp_path, planned(tmp_path, monkeypatch))
    assert_is_handed_over(tmp_path)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[dict[str, str]]:
    with slurm_cluster(tmp_path / "slurm", gpus=Gpus(type="h100", num=8)) as running:
        yield dict(running.environment)
        # The cluster ends when all its nodes are idle.
        subprocess.run(["scontrol", "update", "nodename=n4", "state=resume"], env=running.environment, check=True)


def shell(line: str, environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(line, shell=True, env=environment, cwd=folder, capture_output=True, text=True, check=True)  # noqa: S602
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason=f"needs Slurm: {missing()}")
def test_on_a_real_slurm(cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in _RUN_FIRST:
        shell(line, cluster, tmp_path)
    eventually(lambda: shell("squeue --noheader --format=%t", cluster, tmp_path).split(), ["R", "R"].__eq__)
    for line in _WAIT:
        shell(line, cluster, tmp_path)
    shutil.copy(tmp_path / "slurm" / "topology.conf", tmp_path)
    for line in blocks("sh slurm-22.05"):
        shell(line, cluster, tmp_path)
    plans = planned(tmp_path, monkeypatch)
    assert_is_the_plan(tmp_path, plans)
    assert_is_handed_over(tmp_path)
    for line in blocks("sh slurm"):
        assert "job 8 is heterogeneous" in shell(line, cluster, tmp_path)
    # Job 8 aside, which Slurm places by itself, all that starts runs where it was planned, and nothing else does.
    places = {item["job_id"]: ",".join(item["gpus"]) for item in plans[0]["allocations"] if item["job_id"] != "8"}

    def running() -> dict[str, str]:
        lines = shell("squeue --noheader --array --states=R --format='%i %N'", cluster, tmp_path).splitlines()
        return {job_id: node for job_id, node in map(str.split, lines) if "+" not in job_id}

    eventually(running, places.__eq__)
    assert shell("scontrol --oneliner show reservations", cluster, tmp_path).count("ReservationName=") == 1
