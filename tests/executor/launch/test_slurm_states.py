"""What Slurm says of a job's end against what the agents say; `scontrol`, `sbatch` and `scancel` are stood in for."""

import json
import shutil
from pathlib import Path

import pytest

from executor.launch.base import HEARTBEAT_LIMIT_S, LaunchError, RunState, RunStatus
from executor.launch.slurm import SlurmBackend
from executor.watch import Watch
from tests.executor.launch.test_local import deployment

_SCONTROL = """#!/bin/sh
cat {said}
grep -q JobState {said} || {{ echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1; }}
"""


class Slurm:
    """The folder of a run, and what Slurm says of its job."""

    def __init__(self, root: Path) -> None:
        self.said, self.folder = root / "said", deployment(root / "d", "true", {"a": 1, "b": 1})
        (root / "bin").mkdir()
        script = _SCONTROL.format(said=self.said)
        self.nodes = root / "nodes"
        for name, text in (
            ("sinfo", f"#!/bin/sh\ncat {self.nodes}\n"),
            ("scontrol", script),
            ("sbatch", "#!/bin/sh\nenv > {}\necho 7\n".replace("{}", str(root / "environment"))),
            ("scancel", "#!/bin/sh\necho $1 > {}\n"),
        ):
            (root / "bin" / name).write_text(text.replace("{}", str(root / "cancelled")))
            (root / "bin" / name).chmod(0o755)
        self.cancelled = root / "cancelled"

    def goes_away(self) -> None:
        away = "#!/bin/sh\necho 'Unable to contact controller' >&2; exit 1\n"
        (self.said.parent / "bin" / "scontrol").write_text(away)

    def says(self, state: str | None, reason: str = "None") -> None:
        self.said.write_text(f"JobId=7 JobName=job JobState={state} Reason={reason}\n" if state else "")

    def says_of_nodes(self, *lines: str) -> None:
        self.nodes.write_text("".join(f"{line}\n" for line in lines))

    def status(self) -> RunStatus:
        return SlurmBackend().status(self.folder)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    made = Slurm(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    SlurmBackend().start(made.folder)
    # Both agents were told to end, and have.
    (made.folder / "status").mkdir()
    for number, host in enumerate(("a", "b")):
        rank = {"pid": 1, "running": False, "exit_code": None, "signal": 15, "ended_by_agent": True}
        report = {"host": host, "num_beats": 1, "final": True, "stopped": True, "error": None}
        (made.folder / "status" / f"{host}.json").write_text(json.dumps(report | {"ranks": {str(number): rank}}))
    return made


@pytest.mark.parametrize(
    ("state", "reason", "detail"),
    [
        ("TIMEOUT", "TimeLimit", "Slurm ended the job as TIMEOUT: TimeLimit"),
        ("PREEMPTED", "None", "Slurm ended the job as PREEMPTED"),
        ("NODE_FAIL", "NodeDown", "Slurm ended the job as NODE_FAIL: NodeDown"),
        ("OUT_OF_MEMORY", "OutOfMemory", "Slurm ended the job as OUT_OF_MEMORY: OutOfMemory"),
    ],
)
def test_what_slurm_does_by_itself_is_a_fault(slurm: Slurm, state: str, reason: str, detail: str) -> None:
    slurm.says(state, reason)
    found = slurm.status()
    assert (found.state, found.detail) == (RunState.FAILED, detail)
    # Slurm forgets a job within minutes.
    slurm.says(None)
    assert slurm.status() == found
    SlurmBackend().stop(slurm.folder)
    assert not slurm.cancelled.exists()


def test_a_job_gets_no_secret_of_whoever_submits_it(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWPLAN_TOKEN", "secret")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/ours.conf")
    SlurmBackend().start(slurm.folder)
    # Slurm gives the job all variables of sbatch, and keeps them on its disk until then.
    names = {line.partition("=")[0] for line in (slurm.folder.parent / "environment").read_text().splitlines()}
    assert {"PATH", "SLURM_CONF", "STOWPLAN_TOKEN"} & names == {"PATH", "SLURM_CONF"}


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", None])
def test_what_was_cancelled_was_stopped(slurm: Slurm, state: str | None) -> None:
    slurm.says(state)
    assert slurm.status().state is RunState.STOPPED


def test_agents_are_not_believed_before_slurm_has_an_end(slurm: Slurm) -> None:
    slurm.says("RUNNING")
    found = slurm.status()
    assert (found.state, found.detail) == (RunState.RUNNING, "ends; Slurm calls the job RUNNING")
    slurm.says("CANCELLED")
    assert slurm.status().state is RunState.STOPPED


@pytest.mark.parametrize(
    "reason",
    ["ReqNodeNotAvail,_UnavailableNodes:b", "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher"],
)
def test_hosts_that_take_no_job_are_named(slurm: Slurm, reason: str) -> None:
    shutil.rmtree(slurm.folder / "status")
    slurm.says("PENDING", reason)
    # A line per partition.
    slurm.says_of_nodes("b|down*|Not responding", "a|drained|bad fan|left", "b|down*|Not responding")
    found = slurm.status()
    assert (found.state, found.is_queued, found.unavailable) == (RunState.STARTING, True, ("a", "b"))
    assert found.detail == (
        "waits in Slurm's queue for hosts that take no job: a is drained (bad fan|left), b is down (Not responding); "
        "repair them, or move to a plan without them"
    )
    slurm.says_of_nodes()
    assert (slurm.status().unavailable, slurm.status().detail) == ((), f"waits in Slurm's queue: {reason}")


def test_nothing_is_known_of_a_job_whose_agents_do_not_speak_while_slurm_does_not(slurm: Slurm) -> None:
    slurm.goes_away()
    said = "Slurm does not answer: Unable to contact controller"
    # They have said that they ended, and whether Slurm had them do so will be known.
    assert slurm.status() == RunStatus(state=RunState.RUNNING, detail=said)
    for report in (slurm.folder / "status").iterdir():
        report.write_text(json.dumps(json.loads(report.read_text()) | {"final": False}))
    backend, now_s = SlurmBackend(), 0.0
    backend.watch = Watch(lambda: now_s)
    found = backend.status(slurm.folder)
    assert (found.state, found.is_unknown) == (RunState.RUNNING, False)
    now_s = HEARTBEAT_LIMIT_S + 1.0
    found = backend.status(slurm.folder)
    assert (found.state, found.is_unknown) == (RunState.LOST, True)
    shutil.rmtree(slurm.folder / "status")
    found = slurm.status()
    assert (found.state, found.detail, found.is_unknown) == (RunState.STARTING, said, True)


def test_a_job_that_cannot_be_noted_is_cancelled(slurm: Slurm) -> None:
    (slurm.folder / "slurm.json").unlink()
    (slurm.folder / "slurm.json").mkdir()
    with pytest.raises(LaunchError, match=r"slurm\.json: Is a directory"):
        SlurmBackend().start(slurm.folder)
    assert slurm.cancelled.read_text() == "7\n"
