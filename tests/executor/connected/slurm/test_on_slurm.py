"""The loop closed on a real Slurm of eight nodes in three tiers: `stowplan connect slurm` as a process of its own."""

import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.placement.slurm_cluster import LARGER, OFTEN, Gpus, SlurmCluster, missing, slurm_cluster
from executor.connected.slurm.terms import Stage
from tests.executor.connected.slurm.queue import SOON, Queue
from tests.paths import ROOT
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"needs Slurm: {missing()}"),
]
OURS = (SOON, "--comment=stowplan")
# What a connection could change of a job.
_FIELDS = (
    "admin_comment",
    "comment",
    "eligible_time",
    "required_nodes",
    "node_count",
    "max_nodes",
    "priority",
    "nodes",
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    folder = tmp_path_factory.mktemp("slurm") / "c"
    with slurm_cluster(folder, gpus=Gpus(type="h100", num=8), layout=LARGER, settings=OFTEN) as running:
        yield running


@pytest.fixture
def queue(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Queue]:
    made = Queue(cluster.environment, tmp_path)
    yield made
    made.say("scancel", "--user=root")
    eventually(lambda: made.say("squeue", "--noheader"), "".__eq__)


def looks(queue: Queue, *job_ids: str) -> list[dict[str, Any]]:
    jobs = queue.jobs()
    return [{name: jobs[job_id][name] for name in _FIELDS} for job_id in job_ids]


def comes_to(queue: Queue, job_id: str, stage: Stage) -> None:
    """Wait until the note of a job says so."""
    eventually(lambda: queue.jobs()[job_id]["admin_comment"], lambda text: f"[stowplan {stage}" in text, limit_s=90.0)


def starts(queue: Queue, job_id: str) -> str:
    return eventually(lambda: queue.nodes(job_id), lambda found: found.startswith("n"), limit_s=90.0)


def test_only_jobs_that_opted_in_are_placed_and_holds_of_users_stay(queue: Queue) -> None:
    held = queue.submit("--hold", "--comment=stowplan", "--gpus=8")
    foreign = queue.submit(SOON, "--gpus=8")
    off = queue.submit(SOON, "--gpus=8", "--comment=stowplan: off")
    nodes = queue.submit(*OURS, "--gpus=8", "--nodelist=n5")
    shape = queue.submit(*OURS, "--nodes=2", "--gpus-per-node=2")
    before = looks(queue, held, foreign, off, nodes, shape)
    ours = queue.submit(*OURS, "--gpus=16")
    said = (
        f"{held}: is on hold",
        f"{nodes}: asks for required_nodes n5",
        f"{shape}: asks for 2 nodes and 4 GPUs, which plans put on 1",
    )
    with queue.connected():
        starts(queue, ours)
        # With its second look, which may come after the start.
        eventually(queue.log, lambda log: all(line in log for line in said))
    assert looks(queue, held, foreign, off, nodes, shape) == before


def test_without_send_everything_is_said_and_nothing_done(queue: Queue) -> None:
    jobs = [queue.submit(*OURS, "--gpus=8"), queue.submit(*OURS, "--gpus=64"), queue.submit("--comment=stowplan", "-H")]
    before = looks(queue, *jobs)
    done = queue.connect("--once", "--log", str(queue.folder / "log.json"))
    assert done.returncode == 0, done.stderr
    assert looks(queue, *jobs) == before
    said = [json.loads(line) for line in (queue.folder / "log.json").read_text().splitlines()]
    assert [line["sent"] for line in said] == [False, False]
    assert {line["command"][2] for line in said} == {f"JobId={jobs[0]}", f"JobId={jobs[1]}"}
    assert "nothing was sent: 2 changes" in done.stderr


def test_what_waits_is_let_go_when_the_connection_ends(queue: Queue) -> None:
    queue.runs_on(queue.submit("--gpus=8", "-w", "n1"), "n1")
    waits = queue.submit(*OURS, "--gpus=64", "--comment=stowplan", "-t", "5")
    [as_submitted] = looks(queue, waits)
    with queue.connected("--lease", "3600"):
        comes_to(queue, waits, Stage.KEPT)
        assert queue.jobs()[waits]["eligible_time"] > time.time() + 3000
    [let_go] = looks(queue, waits)
    assert let_go["eligible_time"] <= time.time()
    assert let_go | {"eligible_time": 0} == as_submitted | {"eligible_time": 0}


def test_a_connection_that_is_killed_leaves_nothing_kept_and_the_next_goes_on(queue: Queue) -> None:
    """Its leases end by themselves; before that, another connection knows what was kept."""
    blocker = queue.submit("--gpus=8", "-w", "n1")
    queue.runs_on(blocker, "n1")
    wide, small = queue.submit(*OURS, "--gpus=64"), queue.submit(*OURS, "--gpus=8", "-t", "30")
    with queue.connected("--lease", "5") as connection:
        comes_to(queue, wide, Stage.KEPT)
        connection.kill()
    queue.say("scancel", blocker)
    with queue.connected() as connection:
        starts(queue, wide)
        comes_to(queue, small, Stage.KEPT)
        connection.kill()
    queue.say("scancel", wide)
    assert queue.connect("--release", "--send").returncode == 0
    starts(queue, small)
    last = queue.submit(*OURS, "--gpus=64")
    with queue.connected("--lease", "5") as connection:
        comes_to(queue, last, Stage.KEPT)
        connection.kill()
    queue.say("scancel", small)
    # Nobody is connected any more.
    starts(queue, last)


def test_drained_nodes_and_maintenance_are_kept_free(queue: Queue) -> None:
    queue.say("scontrol", "update", "nodename=n[1-2]", "state=drain", "reason=fan")
    words = "reservationname=maint starttime=now+300 duration=60 nodes=n[3-6] flags=maint user=root"
    queue.say("scontrol", "create", "reservation", *words.split())
    try:
        long, wide, short = (
            queue.submit(*OURS, "--gpus=16", "-t", "30"),
            queue.submit(*OURS, "--gpus=24", "-t", "30"),
            queue.submit(*OURS, "--gpus=16", "-t", "2"),
        )
        with queue.connected():
            assert starts(queue, long) == "n[7-8]"
            assert set(starts(queue, short).strip("n[]").replace("-", ",").split(",")) <= set("3456")
            comes_to(queue, wide, Stage.KEPT)
    finally:
        queue.say("scontrol", "update", "nodename=n[1-2]", "state=resume")
        queue.say("scontrol", "delete", "reservationname=maint")


def test_a_job_that_does_not_start_where_it_was_sent_is_left_to_slurm(queue: Queue) -> None:
    """Nobody tells plans of memory: n1 to n8 have no room for it beside the others, until these are over."""
    for k in range(1, 9):
        queue.submit("--mem=60", "-w", f"n{k}")
    eventually(lambda: queue.say("squeue", "--noheader", "--format=%t").split(), (["R"] * 8).__eq__)
    job = queue.submit(*OURS, "--gpus=8", "--mem=30")
    with queue.connected("--patience", "1"):
        comes_to(queue, job, Stage.LEFT)
    assert looks(queue, job)[0]["required_nodes"] == ""
    assert f"{job}: has not started on" in queue.log()


def test_sixty_jobs_end_while_connections_and_the_controller_of_slurm_are_killed(
    cluster: SlurmCluster, queue: Queue
) -> None:
    """slurmctld saves every few seconds what it knows, and forgets the rest when it is killed: while one job has all
    nodes there is nothing to forget. That job goes on until the controller is back: of one that was about to end Slurm
    (22.05) would never give back the GPUs."""
    everything, is_back = 20, queue.folder / "back"
    names = [
        queue.submit(
            *OURS,
            f"--gpus={64 if k == everything else (8, 16, 4, 24, 2)[k % 5]}",
            *("-t", "5"),
            run=f"{f'until [ -e {is_back} ]; do sleep 0.2; done' if k == everything else 'sleep 1'}; "
            f"echo {k} >> {queue.folder}/ended",
        )
        for k in range(60)
    ]

    def ended() -> set[str]:
        path = queue.folder / "ended"
        return set(path.read_text().split()) if path.exists() else set()

    with queue.connected() as connection:
        eventually(lambda: len(ended()), lambda num: num >= 5, limit_s=60.0)
        connection.kill()
    with queue.connected() as connection:
        queue.runs_on(names[everything], "n[1-8]")
        running_s, saved = time.time(), Path(cluster.environment["SLURM_CONF"]).with_name("state") / "job_state"
        # That it runs may have been saved before it was seen here, and nothing is saved until something changes.
        queue.say("scontrol", "update", f"jobid={names[-1]}", "nice=1")
        eventually(lambda: saved.stat().st_mtime > running_s)
        cluster.kill_controller()
        cluster.start_controller()
        is_back.touch()
        eventually(lambda: len(ended()), lambda num: num == 60, limit_s=240.0)
        assert connection.is_alive()
    # None ran twice.
    assert len((queue.folder / "ended").read_text().split()) == 60


def test_an_urgent_job_takes_gpus_where_that_is_allowed(queue: Queue) -> None:
    low = queue.submit(*OURS, "--gpus=64", "--requeue")
    rules = ("--may-requeue", "--parameters", '{"order": "priority", "preemption": true}')
    with queue.connected(*rules):
        starts(queue, low)
        queue.say("scontrol", "update", f"jobid={low}", "priority=10")
        high = queue.submit(*OURS, "--gpus=32")
        starts(queue, high)
        comes_to(queue, low, Stage.KEPT)
        queue.say("scancel", high)
        starts(queue, low)


def test_tasks_of_an_array_are_sent_one_by_one_and_the_rest_waits_together(queue: Queue) -> None:
    array = queue.submit(*OURS, "--array=0-9", "--gpus=8")
    with queue.connected():
        eventually(
            lambda: queue.say("squeue", "--noheader", "--array", "--states=R", "--format=%F").split(),
            lambda found: len(found) == 8,
            limit_s=90.0,
        )
        rest = eventually(queue.jobs, lambda jobs: "kept" in jobs[array]["admin_comment"], limit_s=90.0)[array]
        assert rest["array_task_string"] == "8-9"
        queue.say("scancel", f"{array}_0", f"{array}_1")
        eventually(lambda: queue.say("squeue", "--noheader", "--states=PD"), "".__eq__, limit_s=90.0)


def test_the_lines_of_the_docs(queue: Queue) -> None:
    text = (ROOT / "docs" / "slurm.md").read_text()
    [block] = re.findall(r"^```sh connect\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    job = queue.submit(*OURS[:1], "--comment=stowplan: tp=8 dp=2", "--gpus=16")
    for line in block.splitlines():
        program, *words = shlex.split(line)
        assert program == "stowplan"
        if "--release" in words:
            # Under one leaf, where it was sent.
            assert starts(queue, job) in {"n[1,3]", "n[2,4]", "n[5,7]", "n[6,8]"}
        else:
            words.append("--once")
        if "--arnold" in words:
            # As users start it: the one that loads most.
            queue.say(sys.executable, "-m", "api.cli.main", *words, *queue.options())
        else:
            done = queue.connect(*words[2:])
            assert done.returncode == 0, done.stderr
    assert "ReqNodeList" in (queue.folder / "changes.jsonl").read_text()


def test_two_connections_do_not_send_at_once(queue: Queue) -> None:
    with queue.connected():
        eventually(queue.log, lambda text: "governed are" in text, limit_s=90.0)
        second = queue.connect("--send", "--once")
    assert second.returncode != 0
    assert "another process is connected to this cluster" in second.stderr
