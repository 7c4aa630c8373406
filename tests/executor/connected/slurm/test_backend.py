"""What is told to a Slurm that is pretended, as things happen; time passes where it is waited for."""

from pathlib import Path
from typing import Any

from benchmarks.workloads.slurm_documents import NOW_S, node, reservation, running
from executor.connected.slurm.terms import Terms
from models.allocation.gang.parameters import QueueOrder
from tests.executor.connected.slurm.pretend import Loop, PretendSlurm, ours
from tests.growth import work

WIDE: dict[str, Any] = {"tres_per_node": "gres/gpu:h100:8", "node_count": 4}


def nothing() -> None:
    """Time passes."""


def slurm(*jobs: dict[str, Any], **fields: Any) -> PretendSlurm:
    return PretendSlurm(jobs={one["job_id"]: one for one in jobs}, **fields)


def test_what_fits_is_sent_and_what_does_not_is_kept_and_renewed() -> None:
    """The wide job waits for the four hours of what runs on n0, and nothing longer may start before it."""
    here = slurm(running(1, "n0", ["gpu:h100:8(IDX:0-7)"]), ours(2, **WIDE), ours(3, time_limit=60))
    loop = Loop(here)
    loop.run(nothing)
    told = here.updates()
    assert told["2"] == ["update StartTime=now+600 AdminComment=[stowplan kept nodes=4-0 misses=0]"]
    assert told["3"] == [
        f"update NumNodes=1-1 ReqNodeList=n1 StartTime=now AdminComment=[stowplan sent nodes=1-0 misses=0 at={NOW_S}]"
    ]
    here.start(3, "n1", ["gpu:h100:8(IDX:0-7)"])
    # Looked at every 5 s, renewed when a third of 600 s is left.
    Loop(here).run(*[nothing] * 90)
    assert here.updates() == {"2": ["update StartTime=now+600"]}


def test_a_job_that_waits_for_closer_nodes_starts_though_nothing_happens(tmp_path: Path) -> None:
    topology = tmp_path / "topology.conf"
    topology.write_text("SwitchName=a Nodes=n[0-1]\nSwitchName=b Nodes=n[2-3]\n")
    held = [running(number, name, ["gpu:h100:8(IDX:0-7)"]) for number, name in ((1, "n0"), (4, "n2"))]
    here = slurm(*held, ours(2, node_count=2, tres_per_node="gres/gpu:h100:8"))
    Loop(here, near_wait_s=12, topology=topology).run(*[nothing] * 4)
    kept, sent = here.updates()["2"]
    assert kept == "update StartTime=now+600 AdminComment=[stowplan kept nodes=2-0 misses=0]"
    # Looked at every 5 s.
    assert sent.startswith("update NumNodes=2-2 ReqNodeList=n[1,3] StartTime=now")
    assert f"at={NOW_S + 15}]" in sent


def test_what_did_not_start_is_sent_elsewhere_and_left_to_slurm_in_the_end() -> None:
    here = slurm(ours(2))
    loop = Loop(here, Terms(patience_s=10))
    loop.run(*[nothing] * 12)
    told = here.updates()["2"]
    assert [words.split("misses=")[1][0] for words in told if "sent" in words] == ["0", "1", "2"]
    assert told[-1] == "update ReqNodeList= NumNodes=1-4 StartTime=now AdminComment=[stowplan left]"
    Loop(here).run(nothing)
    assert not here.told


def test_a_job_whose_nodes_others_took_is_sent_anew_at_once() -> None:
    here = slurm(ours(2))
    loop = Loop(here)

    def taken() -> None:
        here.jobs[9] = running(9, "n0", ["gpu:h100:8(IDX:0-7)"])

    loop.run(taken, nothing)
    nodes = [words.split("ReqNodeList=")[1].split()[0] for words in here.updates()["2"]]
    assert nodes == ["n0", "n1"]


def test_what_others_wrote_into_the_admin_comment_stays_and_comes_back() -> None:
    here = slurm(ours(2, **WIDE), running(1, "n0", ["gpu:h100:8(IDX:0-7)"]))
    here.jobs[2]["admin_comment"] = "ticket 17"
    loop = Loop(here)
    loop.run(nothing)
    assert here.jobs[2]["admin_comment"] == "ticket 17 [stowplan kept nodes=4-0 misses=0]"
    assert loop.cluster.release() == 1
    assert here.jobs[2]["admin_comment"] == "ticket 17"
    assert here.jobs[2]["eligible_time"] == here.moment_s[0]


def test_a_begin_far_ahead_is_meant_and_one_soon_is_not() -> None:
    here = slurm(ours(2), ours(3))
    here.jobs[3]["eligible_time"] = NOW_S + 7200
    Loop(here).run(nothing)
    assert set(here.updates()) == {"2"}
    here.moment_s[0] = NOW_S + 7200
    Loop(here).run(nothing)
    assert "3" in here.updates()


def test_one_job_that_cannot_be_let_go_keeps_no_other_from_it() -> None:
    here = slurm(*(ours(k, **WIDE) for k in (2, 3)), running(1, "n0", ["gpu:h100:8(IDX:0-7)"]))
    loop = Loop(here)
    loop.run(nothing)
    # Two groups, since others have written something of one.
    here.jobs[2]["admin_comment"] += " ticket"
    here.refuses.add(2)
    loop.cluster.release()
    assert here.jobs[3]["admin_comment"] == ""


def test_what_cannot_be_read_is_asked_again() -> None:
    here = slurm(ours(2))
    loop = Loop(here)

    def half_written() -> None:
        here.jobs[3] = {**ours(3), "gres_detail": ["gpu:h100:8(IDX:x)"], "job_state": ["RUNNING"], "nodes": "n3"}

    def whole() -> None:
        here.jobs[3] = ours(3)

    loop.run(half_written, nothing, whole, nothing)
    assert "3" in here.updates()
    assert any("IDX:x" in line for line in loop.said)


def test_a_job_that_runs_in_a_reservation_that_is_over_is_work_like_any_other() -> None:
    here = slurm(running(1, "n0", ["gpu:h100:8(IDX:0-7)"], resv_name="gone"), ours(2))
    Loop(here).run(nothing)
    assert "ReqNodeList=n1" in here.updates()["2"][0]


def test_tasks_of_an_array_wait_together_and_are_sent_one_by_one() -> None:
    array = ours(5, array_job_id=5, array_task_string="0-4", array_max_tasks=0)
    here = slurm(array, running(1, "n0", ["gpu:h100:8(IDX:0-7)"]))
    loop = Loop(here, is_dry=True)
    loop.run(nothing)
    targets = [line.partition("JobId=")[2].split()[0] for line in loop.lines]
    assert targets == ["5_0", "5_1", "5_2", "5_[3,4]'"]


def test_dependencies_wait_untouched() -> None:
    here = slurm(ours(2, dependency="afterok:9(unfulfilled)", state_reason="Dependency"))
    Loop(here).run(nothing)
    assert not here.told


def test_without_send_each_change_is_said_once() -> None:
    here = slurm(ours(2), ours(3, **WIDE), running(1, "n0", ["gpu:h100:8(IDX:0-7)"], hours=0.0))
    loop = Loop(here, is_dry=True)
    loop.run(*[nothing] * 20)
    assert not here.told
    assert [line.partition("JobId=")[2].split()[0] for line in loop.lines] == ["2", "3"]


def test_slurm_that_is_away_is_asked_less_and_less_often_and_the_loop_goes_on() -> None:
    here = slurm(ours(2))
    loop = Loop(here)

    def away() -> None:
        here.is_away[0] = True

    def back() -> None:
        here.is_away[0] = False
        here.jobs[3] = ours(3)

    loop.run(away, *[nothing] * 6, back, nothing)
    assert loop.clock.waits[:8] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 60.0, 60.0]
    assert "3" in here.updates()
    assert sum("does not answer" in line for line in loop.said) == 1


def test_a_job_that_slurm_refuses_to_change_is_given_up_and_others_are_not() -> None:
    here = slurm(ours(2), ours(3), refuses={2})
    loop = Loop(here)
    loop.run(*[nothing] * 10)
    told = here.updates()
    assert len(told["3"]) == 1
    assert "2: pretended for 2" in loop.said
    assert [words.split("[stowplan ")[1][:4] for words in told["2"]] == ["sent", "sent", "sent", "left"]


def test_jobs_lose_their_gpus_only_where_that_is_allowed() -> None:
    def scene() -> PretendSlurm:
        low = ours(1, priority=1)
        here = slurm(low, ours(2, priority=9, **WIDE), nodes=[node(f"n{k}") for k in range(4)])
        here.start(1, "n0", ["gpu:h100:8(IDX:0-7)"])
        return here

    rules: dict[str, Any] = {"order": QueueOrder.PRIORITY, "preemption": True}
    here = scene()
    here.jobs[1]["priority"] = 1
    Loop(here, **rules).run(nothing)
    assert "1" not in here.updates()
    here = scene()
    here.jobs[1]["priority"] = 1
    Loop(here, Terms(may_requeue=True), **rules).run(nothing)
    told = [" ".join(words) for words in here.told]
    first = told.index("scontrol requeue 1")
    assert told[first - 1] == "scontrol update JobId=1 AdminComment=[stowplan kept nodes=1-0 misses=0]"
    assert told[first + 1] == "scontrol update JobId=1 StartTime=now+600"
    assert "ReqNodeList=n[0-3]" in told[first + 2]


def test_maintenance_keeps_jobs_away_whose_limit_is_longer() -> None:
    here = slurm(ours(2, time_limit=30), ours(3, time_limit=600))
    here.reservations.append(reservation("maint", "n[0-3]", 3600, 7200, "MAINT"))
    Loop(here).run(nothing)
    told = here.updates()
    assert "sent" in told["2"][0]
    assert "kept" in told["3"][0]


def test_a_reservation_that_begins_is_an_instant_of_its_own() -> None:
    here = slurm(ours(2, time_limit=600))
    here.reservations.append(reservation("maint", "n[0-3]", 100, 300, "MAINT"))
    Loop(here).run(*[nothing] * 70)
    told = here.updates()["2"]
    assert "kept" in told[0]
    assert "sent" in told[-1]


def test_the_work_of_a_look_grows_with_the_queue() -> None:
    def look(num: int) -> int:
        here = slurm(*(ours(k, **WIDE) for k in range(2, num)), running(1, "n0", ["gpu:h100:8(IDX:0-7)"]))
        loop = Loop(here)
        loop.run(nothing)
        return work(lambda: loop.cluster.release())

    assert look(400) < 2.3 * look(200)
