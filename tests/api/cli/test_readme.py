"""The commands of README.md, in order: run against a service, in a folder of their own, or named with the test that
runs them. `tests/docs/test_commands.py` has read them all."""

import re
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from api.cli import local_worker
from api.cli.main import app
from api.common.examples import example
from solver.pool import WorkerPool
from tests.api.asking import planned, post
from tests.api.warm import WarmPool
from tests.docs.commands import Command, commands
from tests.paths import ROOT

pytestmark = pytest.mark.slow

_CLI = "tests/api/cli"
# Runs long, needs other software, or files that the README does not have. Test files, and a test in each.
ELSEWHERE = {
    r"make (demo|test|serve|demo-loop)\b": ("tests/docs/test_commands.py", "test_targets_of_make_are_there"),
    r"pip install": ("tests/docs/test_commands.py", "test_modules_and_extras_are_there"),
    r"stowplan import slurm": (f"{_CLI}/test_slurm_journey.py", "test_on_files"),
    r"stowplan compare-solvers": (
        f"{_CLI}/test_tutorials.py",
        "test_a_researcher_compares_solvers_and_replays_a_trace",
    ),
    r"stowplan connect (slurm|kubernetes)": (f"{_CLI}/test_connect.py", "test_the_commands_of_the_page"),
    r"sacct ": (f"{_CLI}/test_trace.py", "test_what_was_left_out_and_what_is_shared_is_told"),
    r"stowplan replay jobs.csv": (f"{_CLI}/test_replay.py", "test_tables_of_throughputs"),
    r"stowplan replay trainings.csv": (f"{_CLI}/test_replay.py", "test_models_of_the_catalogue"),
    r"stowplan forecast (train|show|predict)": (
        f"{_CLI}/test_forecast.py",
        "test_the_report_is_printed_and_the_same_when_it_is_shown",
    ),
    r"stowplan plan request.json --forecaster": (
        f"{_CLI}/test_forecast.py",
        "test_a_plan_goes_by_a_forecaster_in_a_file",
    ),
    r"curl .*/v1/forecasters": (
        "tests/api/forecasts/test_forecasters.py",
        "test_it_is_trained_and_says_how_well_it_did",
    ),
    r"stowplan parallel --model llama2-13b .*--calibration": (
        f"{_CLI}/test_calibrate.py",
        "test_logs_times_and_bandwidths",
    ),
    r"stowplan parallel --model llama2-13b": (f"{_CLI}/test_parallel.py", "test_several_types_and_what_does_not_fit"),
    r"stowplan parallel --model llama3.1-405b": (f"{_CLI}/test_parallel.py", "test_schedules"),
    r"stowplan parallel --model path/config.json": (f"{_CLI}/test_parallel.py", "test_a_model_in_a_file"),
    r"stowplan parallel --model train_llama.sh": (f"{_CLI}/test_parallel.py", "test_the_plan_of_a_file"),
    r"stowplan calibrate": (f"{_CLI}/test_calibrate.py", "test_logs_times_and_bandwidths"),
    r"jq .*train.log|curl .*(measured.json|/v1/calibrations)": (
        "tests/api/calibrations/test_calibrations.py",
        "test_logs_and_bandwidth_tests_are_told_apart",
    ),
    r"curl .*parallel-plans .*calibration": (
        "tests/api/calibrations/test_calibrations.py",
        "test_plans_of_one_job_name_it",
    ),
    r"stowplan deploy .*--dry-run": (f"{_CLI}/test_deploy.py", "test_a_dry_run_writes_and_starts_nothing"),
    r"stowplan deploy request.json": (f"{_CLI}/test_deploy.py", "test_deploy_follows_the_training_to_its_end"),
    r"stowplan deploy --from parallel.json": (
        f"{_CLI}/test_deploy.py",
        "test_a_parallel_answer_and_hosts_are_a_deployment",
    ),
    r"stowplan deploy --from plan.json .*--command": (
        f"{_CLI}/test_deploy.py",
        "test_a_program_of_ones_own_is_a_line",
    ),
    r"stowplan redeploy": (f"{_CLI}/test_deploy.py", "test_a_running_job_is_moved_to_what_a_planner_has_written"),
    r"benchmarks growing-job": (
        "tests/executor/deployed/test_growing.py",
        "test_a_training_grows_shrinks_and_moves_as_suika_decides",
    ),
    r"(curl|stowplan what-if) .*ahead": (f"{_CLI}/test_what_if.py", "test_tables_json_and_picture"),
}
# A job a line, as sacct writes it.
_SACCT = (
    "JobID|User|Partition|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|NNodes|ReqTRES|AllocTRES|JobName\n"
    + "".join(
        f"{k}|ann|gpu|COMPLETED|2026-01-01T0{k}:00:00|2026-01-01T0{k}:10:00|2026-01-01T0{k}:40:00|1800|60|1|"
        "billing=8,gres/gpu=8,node=1|billing=8,gres/gpu=8,node=1|train\n"
        for k in range(1, 5)
    )
)
_CSV = "submit_time,gpu_num,run_min\n0,2,10\n60,4,30\n"
_ID = re.compile(r"\b((plan|snapshot|replays|reservation)-)[0-9a-f]{8,}")
_LIMIT_S = 60


class Follower:
    """Runs statements in a folder; `service` listens where the README says 8080. `ids`: the last ones by kind."""

    def __init__(self, folder: Path, service: httpx.Client) -> None:
        self.folder, self.address = folder, str(service.base_url).removeprefix("http://").rstrip("/")
        self.ids: dict[str, str] = {}

    def run(self, command: Command) -> str:
        """Run it; what it has printed."""
        text = re.sub(r"\b(plan|snapshot|replays|reservation)-[0-9a-f]{4}\.\.\.", self._known, command.text)
        if command.parts[0][0] == "stowplan":
            said = "".join(self._stowplan(part) for part in text.split(" && "))
        else:
            said = self._shell(text.replace("localhost:8080", self.address))
        self.ids |= {found[2]: found[0] for found in _ID.finditer(said)}
        return said

    def _known(self, shown: re.Match[str]) -> str:
        return self.ids[shown[1]]

    def _stowplan(self, text: str) -> str:
        words = shlex.split(text, comments=True)[1:]
        words, into = (words[:-2], words[-1]) if ">" in words else (words, "")
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (text, result.output)
        if into:
            (self.folder / into).write_text(result.stdout)
        return result.stdout

    def _shell(self, text: str) -> str:
        """Refusals of the service are failures, too; a stream is over when all of it was read."""
        text = re.sub(r"\bcurl ", "curl --fail-with-body ", text)
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, (text, done.stdout, done.stderr)
        return done.stdout


def elsewhere(command: Command) -> tuple[str, str] | None:
    """The test that stands for a command."""
    text = " ".join(" ".join(part) for part in command.parts)
    return next((test for pattern, test in ELSEWHERE.items() if re.search(pattern, text)), None)


@pytest.fixture
def follower(pool: WorkerPool, client: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Follower:
    """With the traces that the README speaks of, and a plan that a calendar can be of."""
    monkeypatch.setattr(local_worker, "WorkerPool", lambda **_: WarmPool(pool))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.txt").write_text(_SACCT)
    (tmp_path / "jobs.csv").write_text(_CSV)
    found = Follower(tmp_path, client)
    request = dict(example("arnold-fig12").request)
    snapshot = post(client, "/v1/snapshots", request.pop("snapshot")).json()["id"]
    found.ids |= {
        "plan": planned(client, {**request, "snapshot": {"snapshot_id": snapshot}})["id"],
        "snapshot": snapshot,
    }
    return found


def test_every_command_runs_or_has_a_test(follower: Follower) -> None:
    kept = dict(follower.ids)
    said = {}
    for command in commands("README.md"):
        if command.is_whole and elsewhere(command) is None:
            if "/calendar" in command.text or "plan_id" in command.text:
                follower.ids |= kept
            said[command.text] = follower.run(command)
    assert len(said) > 20
    folder = follower.folder
    assert (folder / "plan.svg").read_text().startswith("<?xml")
    assert (folder / "replays.png").read_bytes().startswith(b"\x89PNG")
    assert {"megatron.sh", "job.sbatch"} <= {path.name for path in (folder / "run").iterdir()}
    assert any('"proven_optimal":true' in text for text in said.values())
    confirmed = next(text for line, text in said.items() if line.endswith(":confirm"))
    assert '"confirmed"' in confirmed


def test_the_tests_that_stand_for_commands_are_there() -> None:
    used = {elsewhere(command) for command in commands("README.md") if command.is_whole}
    assert used - {None} == set(ELSEWHERE.values())
    for path, name in ELSEWHERE.values():
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), (path, name)
