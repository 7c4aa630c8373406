"""The script that hands a plan over: what it says, runs and refuses, with commands in the place of Slurm's."""

import json
import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from executor.export import ExportedPlan, export_plan
from executor.slurm.actions import SteerJob
from executor.slurm.handover import HandOverOptions, Running, Waiting, hand_over
from models.plan import Change
from models.workload import Snapshot
from stowplan.errors import InputError
from tests.executor.export.jobs import plan_of
from tests.executor.slurm.scenes import gets, later, left, plan, runs, snapshot, waits
from tests.growth import work
from topology.calendar import CalendarEntry, EntryKind

PLAN = plan(
    gets("7", Change.MOVED, n1=4, n2=4),
    gets("5_2", n3=8),
    gets("8", n4=2),
    left("6"),
    left("9"),
    later("9", "n1", "n2"),
)
SNAPSHOT = snapshot(runs("7", n1=8), waits("5_2"), waits("8", 4), waits("6"), waits("9", 16, user="ada"))
OPTIONS = {"running": "requeue", "waiting": "hold"}
QUEUE = "7 RUNNING\n5_2 PENDING\n8 PENDING\n6 PENDING\n9 PENDING\n4 RUNNING\n"
NODES = "n1 mixed\nn2 idle\nn3 idle~\nn4 planned\n"
# Notes what it is told, and answers as Slurm does.
_COMMAND = """\
#!/bin/bash
name=$(basename "$0")
case "$name $*" in
"squeue --noheader --array "*) cat "$SCENE/queue"; exit 0 ;;
"squeue --noheader --jobs="*) echo PENDING; exit 0 ;;
"sinfo "*) cat "$SCENE/nodes"; exit 0 ;;
"scontrol show hostnames "*) printf 'n%s\\n' 1 2 3 4; exit 0 ;;
"scontrol show job "*) cat "$SCENE/job"; exit 0 ;;
"scontrol show reservation "*) grep -qx "$3" "$SCENE/reservations"; exit ;;
esac
for word in "$name" "$@"; do printf '%q ' "$word"; done >> "$SCENE/told"
echo >> "$SCENE/told"
! grep -qxF "$name $*" "$SCENE/refused" 2>/dev/null
"""


def written(options: dict[str, str] | None = None, taken_at_s: float | None = 0.0) -> dict[str, str]:
    whole = ExportedPlan(plan=PLAN, snapshot=SNAPSHOT, taken_at_s=taken_at_s)
    return dict(export_plan(whole, "scontrol", OPTIONS if options is None else options).files)


@pytest.fixture
def scene(tmp_path: Path) -> Path:
    for name in ("squeue", "sinfo", "scontrol", "scancel"):
        (tmp_path / name).write_text(_COMMAND)
        (tmp_path / name).chmod(0o755)
    for name, text in (("queue", QUEUE), ("nodes", NODES), ("job", "   TresPerJob=gres:gpu:h100:4\n"), ("told", "")):
        (tmp_path / name).write_text(text)
    (tmp_path / "reservations").touch()
    return tmp_path


def run(scene: Path, script: str) -> subprocess.CompletedProcess[str]:
    (scene / "apply.sh").write_text(script)
    environment = {"PATH": f"{scene}:{os.environ['PATH']}", "SCENE": str(scene)}
    return subprocess.run(
        ["bash", scene / "apply.sh"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def told(scene: Path) -> list[list[str]]:
    return [shlex.split(line) for line in (scene / "told").read_text().splitlines()]


def test_the_script_tells_slurm_what_the_list_says(scene: Path) -> None:
    files = written()
    done = run(scene, files["apply.sh"])
    assert (done.returncode, done.stderr) == (0, "")
    actions = hand_over(PLAN, SNAPSHOT, HandOverOptions(running=Running.REQUEUE, waiting=Waiting.HOLD), 0.0).actions
    listed = [item["command"] for item in json.loads(files["actions.json"])["actions"]]
    assert listed == [list(item.words()) for item in actions]
    # The script has looked how the jobs ask for their GPUs.
    assert told(scene) == [
        list(item.words("h100", per_job=True) if isinstance(item, SteerJob) else item.words()) for item in actions
    ]


def test_the_list_says_what_is_to_be_done() -> None:
    document = json.loads(written()["actions.json"])
    assert [(item["action"], item.get("job_id") or item["name"]) for item in document["actions"]] == [
        ("reserve", "stowplan-9"),
        ("stop", "7"),
        *(("hold", job_id) for job_id in ("6", "5_2", "8", "9")),
        *(("steer", job_id) for job_id in ("7", "5_2", "8", "9")),
        *((kind, job_id) for job_id in ("7", "5_2", "8", "9") for kind in ("release", "rank")),
    ]
    reserve = document["actions"][0]
    assert (reserve["nodes"], reserve["users"], reserve["from_s"]) == (["n1", "n2"], ["ada"], 3600.0)
    assert {note["code"] for note in document["notes"]} == {"gpu_indices_not_said", "size_changed"}


def test_the_head_says_what_it_will_do() -> None:
    head = written()["apply.sh"].partition("set -e")[0]
    assert all(line.startswith("#") for line in head.splitlines())
    for line in (
        "# - jobs that run are requeued: 7",
        "# - 1 reservation: stowplan-9",
        "# - jobs that are held, and wait: 6",
        "# - jobs that start on nodes of the plan: 7, 5_2, 8",
        "# - jobs that start in their reservation: 9",
        "# The plan is of 1970-01-01 00:00:00 UTC.",
    ):
        assert line in head.splitlines()
    empty = ExportedPlan(plan=plan(), snapshot=snapshot())
    assert "nothing: the plan changes nothing" in export_plan(empty, "scontrol", {}).files["apply.sh"]


def test_hosts_in_rank_order() -> None:
    assert written()["hosts-9"] == "n1\n" * 8 + "n2\n" * 8
    parallel = plan_of(pp=1, dp=2, tp=4)
    item = replace(gets("1", a0=4, a1=4), parallel_plan=parallel)
    nodes = snapshot(waits("1"))
    renamed = replace(nodes.cluster, nodes=tuple(replace(n, id=f"a{k}") for k, n in enumerate(nodes.cluster.nodes)))
    whole = ExportedPlan(plan=plan(item), snapshot=Snapshot(cluster=renamed, jobs=nodes.jobs))
    assert export_plan(whole, "scontrol", {}).files["hosts-1"] == "a0\n" * 4 + "a1\n" * 4
    # A job that runs on is told nothing, whatever it is called.
    kept = replace(item, job_id="../x", change=Change.KEPT)
    jobs = Snapshot(cluster=renamed, jobs=(replace(runs("../x"), current=item.gpus, min_gpus=8),))
    files = export_plan(ExportedPlan(plan=plan(kept), snapshot=jobs), "scontrol", {}).files
    assert set(files) == {"apply.sh", "actions.json"}


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("queue", QUEUE.replace("5_2 PENDING", "5_2 RUNNING"), "job 5_2 was planned as PENDING and is RUNNING now"),
        ("queue", QUEUE.replace("8 PENDING\n", ""), "job 8 was planned as PENDING and is gone now"),
        ("queue", QUEUE.replace("7 RUNNING\n", ""), "job 7 was planned as RUNNING and is gone now"),
        ("queue", "", "job 7 was planned as RUNNING and is gone now"),
        ("nodes", NODES.replace("n2 idle", "n2 drained"), "node n2 is drained now"),
        ("nodes", NODES.replace("n2 idle", "n2 idle*"), "node n2 is idle* now"),
        ("nodes", NODES.replace("n2 idle", "n2 down$"), "node n2 is down$ now"),
        ("nodes", NODES.replace("n2 idle\n", ""), "node n2 is unknown now"),
    ],
)
def test_it_changes_nothing_where_things_are_not_as_they_were_planned(
    file: str, text: str, said: str, scene: Path
) -> None:
    (scene / file).write_text(text)
    done = run(scene, written()["apply.sh"])
    assert (done.returncode, told(scene)) == (1, [])
    assert done.stderr.startswith(f"apply.sh: {said}")
    assert "nothing was changed" in done.stderr


@pytest.mark.parametrize("command", ["squeue", "sinfo", "scontrol"])
def test_it_changes_nothing_where_slurm_does_not_answer(command: str, scene: Path) -> None:
    (scene / command).write_text("#!/bin/sh\nexit 1\n")
    done = run(scene, written()["apply.sh"])
    assert (done.returncode, told(scene)) == (1, [])
    assert done.stderr == f"apply.sh: {command} does not answer; nothing was changed\n"


def test_it_stops_where_slurm_refuses(scene: Path) -> None:
    (scene / "refused").write_text("scontrol hold 5_2\n")
    done = run(scene, written()["apply.sh"])
    assert done.returncode == 1
    assert "stopped, since this failed: scontrol hold 5_2." in done.stderr
    assert told(scene)[-1] == ["scontrol", "hold", "5_2"]


def test_heterogeneous_jobs_are_left_to_slurm(scene: Path) -> None:
    (scene / "queue").write_text(QUEUE.replace("8 PENDING", "8+0 PENDING\n8+1 PENDING"))
    done = run(scene, written()["apply.sh"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("job 8 is heterogeneous")
    assert {"8", "JobId=8"}.isdisjoint(word for words in told(scene) for word in words)


def test_reservations_that_are_there_are_changed_or_stay(scene: Path) -> None:
    fan = CalendarEntry(name="fan", kind=EntryKind.MAINTENANCE, from_s=60.0, until_s=120.0, nodes=("n1",))
    whole = ExportedPlan(
        plan=plan(left("9"), later("9", "n2")), snapshot=snapshot(waits("9", user="ada"), calendar=(fan,))
    )
    script = export_plan(whole, "scontrol", {}).files["apply.sh"]
    (scene / "reservations").write_text("fan\nstowplan-9\n")
    done = run(scene, script)
    assert (done.returncode, done.stdout) == (0, "reservation fan is there already and stays as it is\n")
    assert told(scene)[0][:3] == ["scontrol", "update", "ReservationName=stowplan-9"]
    (scene / "reservations").write_text("")
    (scene / "told").write_text("")
    assert run(scene, script).returncode == 0
    assert [words[:4] for words in told(scene)[:2]] == [
        ["scontrol", "create", "reservation", "ReservationName=fan"],
        ["scontrol", "create", "reservation", "ReservationName=stowplan-9"],
    ]


def test_other_sizes_of_a_job_that_asks_for_gpus_per_node_cannot_be_uneven(scene: Path) -> None:
    whole = ExportedPlan(plan=plan(gets("8", n1=8, n2=4)), snapshot=snapshot(waits("8", 4)))
    script = export_plan(whole, "scontrol", {}).files["apply.sh"]
    (scene / "job").write_text("   TresPerNode=gres:gpu:4\n")
    done = run(scene, script)
    assert (done.returncode, "job 8 asks for GPUs per node" in done.stderr) == (1, True)
    (scene / "job").write_text("   TresPerJob=gres:gpu:4\n")
    (scene / "told").write_text("")
    assert run(scene, script).returncode == 0
    assert told(scene)[1][-1] == "TresPerJob=gres:gpu:12"


def test_names_from_outside_are_no_commands(scene: Path) -> None:
    evil = "$(touch pwned)\n`touch pwned`;touch pwned #'\""
    entry = CalendarEntry(name=evil, kind=EntryKind.MAINTENANCE, from_s=60.0, until_s=120.0, nodes=("n1",))
    nobody = CalendarEntry(name=f"r{evil}", kind=EntryKind.RESERVATION, from_s=600.0, until_s=1200.0, nodes=("n2",))
    job = waits("8", user=evil, application=evil, queue=evil)
    whole = ExportedPlan(plan=plan(gets("8", n4=8)), snapshot=snapshot(job, calendar=(entry, nobody)))
    done = run(scene, export_plan(whole, "scontrol", {}).files["apply.sh"])
    assert (done.returncode, done.stderr) == (0, "")
    assert [words[0] for words in told(scene)] == ["scontrol"] * 5
    assert not list(Path.cwd().glob("pwned"))
    assert not list(scene.glob("pwned"))


@pytest.mark.parametrize(
    ("options", "pointer", "said"),
    [
        ({"users": "ada,-bob"}, "/users", "'-bob' is no name"),
        ({"accounts": "a b"}, "/accounts", "'a b' is no name"),
        ({"priority": "0"}, "/priority", "must be keep, or a number"),
        ({"priority": "4294967295"}, "/priority", "must be keep, or a number"),
        ({"running": "kill"}, "/running", "must be one of keep, requeue, cancel"),
        ({"nodes": "n1"}, "/nodes", "there is no such option of scontrol; there are running, waiting"),
    ],
)
def test_wrong_options(options: dict[str, str], pointer: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        written(options)
    assert [issue.pointer for issue in caught.value.issues] == [pointer]
    assert said in caught.value.issues[0].detail


def test_priorities_may_stay_or_begin_elsewhere() -> None:
    def ranks(priority: str) -> list[str]:
        lines = written({**OPTIONS, "priority": priority})["apply.sh"].splitlines()
        return [line.split()[2] for line in lines if line.startswith("rank ")]

    assert ranks("70") == ["70", "69", "68", "67"]
    # Nothing would be on hold again.
    assert ranks("2") == ["2", "1", "1", "1"]
    assert ranks("keep") == []


def test_what_is_no_plan_of_the_snapshot_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        ExportedPlan(plan=plan(gets("1", n1=8), gets("2", n9=8)), snapshot=snapshot(waits("2"), waits("3")))
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [
        ("unknown_job", "/allocations/0/job_id"),
        ("job_not_planned", "/allocations"),
        ("unknown_node", "/allocations/1/gpus"),
    ]
    with pytest.raises(InputError, match="no export of whole plans to 'megatron'; known: scontrol"):
        export_plan(ExportedPlan(plan=plan(), snapshot=snapshot()), "megatron", {})


def test_work_grows_linearly() -> None:
    """Ten thousand nodes and two thousand jobs take a second or two."""

    def made(num_jobs: int) -> int:
        jobs = [waits(str(k), 40) for k in range(1, num_jobs + 1)]
        starts = [
            gets(job.id, Change.STARTED, **{f"n{5 * k + i}": 8 for i in range(1, 6)}) for k, job in enumerate(jobs)
        ]
        whole = ExportedPlan(plan=plan(*starts), snapshot=snapshot(*jobs, num_nodes=5 * num_jobs))
        return work(lambda: export_plan(whole, "scontrol", {}))

    assert made(1200) < 5 * made(300)
