"""Hand-overs to a real Slurm: jobs start on the nodes of the plan and nowhere else, what waits waits."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.placement.slurm_cluster import Gpus, missing, slurm_cluster
from executor.export import ExportedPlan, export_plan
from models.plan import Change, Plan
from models.workload import Snapshot
from tests.executor.slurm.scenes import gets, later, left, plan, runs, snapshot, waits
from tests.waiting import eventually
from topology.calendar import CalendarEntry, EntryKind
from topology.readers.hostlist import fold_hostlist

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing() is not None, reason=f"needs Slurm: {missing()}"),
]
# A job on a node whose reservation has begun is started when the scheduler comes round.
_PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("slurm") / "c"
    with slurm_cluster(folder, gpus=Gpus(type="h100", num=8)) as running:
        yield dict(running.environment)


@pytest.fixture
def slurm(environment: dict[str, str], tmp_path: Path) -> Iterator["Queue"]:
    """A queue without jobs and reservations, also when the test is over."""
    queue = Queue(environment, tmp_path)
    yield queue
    queue.say("scancel", "--user=root")
    eventually(lambda: queue.say("squeue", "--noheader").split(), [].__eq__)
    for name in queue.reservations():
        queue.say("scontrol", "delete", f"ReservationName={name}")
    queue.say("scontrol", "update", "NodeName=n[1-4]", "State=resume", check=False)


class Queue:
    """What a test does to Slurm."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder

    def say(self, *words: str, check: bool = True) -> str:
        done = subprocess.run(
            words, env=self._environment, cwd=self._folder, capture_output=True, text=True, timeout=60, check=False
        )
        assert not check or done.returncode == 0, (words, done.stderr)
        return done.stdout

    def submit(self, *options: str) -> str:
        command = ("sbatch", "--parsable", "--mem=1", "--time=30", *options, "--wrap", "sleep 600")
        return self.say(*command).strip()

    def nodes(self, job_id: str) -> str:
        """Where a job runs, folded; its state where it does not."""
        state, nodes = self.say("squeue", "--noheader", f"--jobs={job_id}", "--format=%T|%N").strip().split("|")
        return nodes if state == "RUNNING" else state

    def gpus(self, job_id: str) -> set[str]:
        """GPUs that a job has of its nodes."""
        words = self.say("scontrol", "--details", "show", "job", job_id).split()
        return {word.partition("(")[0].removeprefix("GRES=") for word in words if word.startswith("GRES=")}

    def reservations(self) -> list[str]:
        words = self.say("scontrol", "--oneliner", "show", "reservations").split()
        return [word.partition("=")[2] for word in words if word.startswith("ReservationName=")]

    def hand_over(
        self, planned: Plan, scene: Snapshot, *, at_s: float | None = None, **options: str
    ) -> subprocess.CompletedProcess[str]:
        made = export_plan(ExportedPlan(plan=planned, snapshot=scene, taken_at_s=at_s), "scontrol", options)
        (self._folder / "apply.sh").write_text(made.files["apply.sh"])
        return subprocess.run(
            ["bash", "apply.sh"],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def runs_on(self, job_id: str, nodes: str) -> None:
        eventually(lambda: self.nodes(job_id), nodes.__eq__, limit_s=_PATIENCE_S)


def ok(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")


def test_folded_names_are_those_that_slurm_expands(environment: dict[str, str], tmp_path: Path) -> None:
    names = [f"r{rack:02d}n{node}" for rack in (1, 2, 3, 7) for node in (8, 9, 10, 11)]
    names += ["n098", "n099", "n100", "n9", "n10", "a1-ib", "a2-ib", "login", "b1c1d1", "b2c1d1", "b2c2d2"]
    shown = Queue(environment, tmp_path).say("scontrol", "show", "hostnames", fold_hostlist(names))
    assert shown.split() == names


def test_jobs_start_on_the_nodes_of_the_plan_however_they_asked_for_gpus(slurm: Queue) -> None:
    blocker = slurm.submit("--nodes=4", "--gpus-per-node=8", "--hold")
    total = slurm.submit("--gpus=8", "--hold")
    typed = slurm.submit("--gpus-per-node=h100:8", "--nodes=1", "--hold")
    task = slurm.submit("--gpus-per-task=1", "--ntasks=4", "--hold")
    array = slurm.submit("--array=0-3", "--gres=gpu:2", "--hold")
    planned = plan(
        # Four and four, which --gpus alone would not say.
        gets(total, n4=4, n2=4),
        gets(typed, n3=8),
        gets(task, n1=2, n4=2),
        gets(f"{array}_2", n4=2),
        *(left(f"{array}_{k}") for k in (0, 1, 3)),
        left(blocker),
    )
    jobs = [waits(total), waits(typed), waits(task, 4), *(waits(f"{array}_{k}", 2) for k in range(4))]
    ok(slurm.hand_over(planned, snapshot(*jobs, waits(blocker, 32))))
    slurm.runs_on(total, "n[2,4]")
    slurm.runs_on(typed, "n3")
    slurm.runs_on(task, "n[1,4]")
    slurm.runs_on(f"{array}_2", "n4")
    assert slurm.gpus(total) == {"gpu:h100:4"}
    assert slurm.gpus(task) == {"gpu:h100:2"}
    assert [slurm.nodes(f"{array}_{k}") for k in (0, 1, 3)] == ["PENDING"] * 3


def test_the_plan_s_order_comes_before_slurm_s_own(slurm: Queue) -> None:
    """A job that waits for all nodes keeps those behind it from starting under Slurm's own scheduler."""
    running = slurm.submit("--nodelist=n1", "--gpus-per-node=8")
    slurm.runs_on(running, "n1")
    wide = slurm.submit("--nodes=4", "--gpus-per-node=8")
    small = slurm.submit("--gpus=4", "--time=1-0")
    late = slurm.submit("--gpus=4", "--time=1-0")
    scene = snapshot(runs(running, n1=8), waits(wide, 32), waits(small, 4), waits(late, 4))
    planned = plan(gets(running, Change.KEPT, n1=8), gets(small, n3=4), left(wide), left(late))
    ok(slurm.hand_over(planned, scene, waiting="hold"))
    slurm.runs_on(small, "n3")
    assert slurm.nodes(running) == "n1"
    reasons = slurm.say("squeue", "--noheader", f"--jobs={wide},{late}", "--format=%r").split()
    assert reasons == ["JobHeldAdmin"] * 2


def test_jobs_that_run_move_grow_and_give_way(slurm: Queue) -> None:
    moved = slurm.submit("--nodelist=n1", "--gpus-per-node=8")
    grown = slurm.submit("--nodelist=n2", "--gpus=h100:4")
    out = slurm.submit("--nodelist=n3", "--gpus-per-node=8")
    for job_id, node in ((moved, "n1"), (grown, "n2"), (out, "n3")):
        slurm.runs_on(job_id, node)
    first = slurm.submit("--gpus-per-node=8", "--hold")
    planned = plan(
        gets(first, n1=8),
        gets(moved, Change.MOVED, n2=8),
        gets(grown, Change.RESCALED, n3=8, n4=8),
        left(out, preempted=True),
    )
    scene = snapshot(runs(moved, n1=8), runs(grown, n2=4), runs(out, n3=8), waits(first))
    ok(slurm.hand_over(planned, scene, running="requeue", waiting="hold"))
    slurm.runs_on(first, "n1")
    slurm.runs_on(moved, "n2")
    slurm.runs_on(grown, "n[3-4]")
    assert slurm.gpus(grown) == {"gpu:h100:8"}
    assert slurm.nodes(out) == "PENDING"


def test_jobs_ahead_start_when_their_reservation_begins_and_others_do_not(slurm: Queue) -> None:
    large = slurm.submit("--nodes=2", "--gpus-per-node=8", "--time=60", "--hold")
    other = slurm.submit("--nodes=3", "--gpus-per-node=8", "--time=60", "--hold")
    now_s = time.time()
    ahead = later(large, "n1", "n2", start_s=15.0, end_s=3615.0)
    fan = CalendarEntry(name="fan", kind=EntryKind.MAINTENANCE, from_s=7200.0, until_s=9000.0, nodes=("n3",))
    scene = snapshot(waits(large, 16, user="root"), waits(other, 24), calendar=(fan,))
    ok(slurm.hand_over(plan(left(large), left(other), ahead), scene, at_s=now_s))
    assert sorted(slurm.reservations()) == ["fan", f"stowplan-{large}"]
    shown = slurm.say("scontrol", "--oneliner", "show", "reservation", "fan")
    assert "Nodes=n3 " in shown
    assert "Duration=00:30:00" in shown
    assert "MAINT" in shown
    slurm.say("scontrol", "release", other)
    assert slurm.nodes(large) == "PENDING"
    slurm.runs_on(large, "n[1-2]")
    assert slurm.nodes(other) == "PENDING"
    # Again, an hour later: what is there is changed.
    moved = later(large, "n3", "n4", start_s=86_400.0, end_s=90_000.0)
    planned_again = plan(gets(other, n1=8, n2=8, n3=8), moved, left(large))
    refused = slurm.hand_over(planned_again, scene, at_s=now_s)
    assert (refused.returncode, "nothing was changed" in refused.stderr) == (1, True)


def test_a_promise_is_kept_elsewhere(slurm: Queue) -> None:
    large = slurm.submit("--nodes=1", "--gpus-per-node=8", "--hold")
    scene = snapshot(waits(large, user="root"))
    for node in ("n1", "n4"):
        ok(slurm.hand_over(plan(left(large), later(large, node)), scene, at_s=time.time()))
        assert f"Nodes={node} " in slurm.say("scontrol", "--oneliner", "show", "reservations")
    assert slurm.nodes(large) == "PENDING"


def test_a_node_that_is_lost_before(slurm: Queue) -> None:
    job_id = slurm.submit("--gpus-per-node=8", "--hold")
    slurm.say("scontrol", "update", "NodeName=n2", "State=drain", "Reason=fan")
    done = slurm.hand_over(plan(gets(job_id, n2=8)), snapshot(waits(job_id)))
    assert (done.returncode, done.stderr) == (
        1,
        "apply.sh: node n2 is drained now: plan again; nothing was changed\n",
    )
    assert slurm.say("squeue", "--noheader", "--format=%r|%n").strip() == "JobHeldUser|"


def test_a_node_that_is_lost_after_it_keeps_nobody_else_from_starting(slurm: Queue) -> None:
    blocker = slurm.submit("--gpus-per-node=8", "--nodelist=n2")
    slurm.runs_on(blocker, "n2")
    job_id = slurm.submit("--gpus-per-node=8", "--hold")
    scene = snapshot(runs(blocker, n2=8), waits(job_id))
    ok(slurm.hand_over(plan(gets(job_id, n2=8), left(blocker, preempted=False)), scene))
    slurm.say("scontrol", "update", "NodeName=n2", "State=drain", "Reason=fan")
    other = slurm.submit("--gpus-per-node=8")
    eventually(lambda: slurm.nodes(other), {"n1", "n3", "n4"}.__contains__, limit_s=_PATIENCE_S)
    assert slurm.nodes(job_id) == "PENDING"
