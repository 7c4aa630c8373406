"""The words of every command that Slurm is told."""

import pytest

from executor.slurm.actions import (
    HoldJob,
    RankJob,
    ReleaseJob,
    Reserve,
    SteerJob,
    StopBy,
    StopJob,
    job_issues,
    node_list,
)
from stowplan.errors import InputError

# 2026-11-25 10:00:00 UTC
AT_S = 1_795_600_800.0


def test_commands_of_jobs() -> None:
    assert StopJob(job_id="7", by=StopBy.REQUEUE).words() == ("scontrol", "requeuehold", "Incomplete", "7")
    assert StopJob(job_id="7", by=StopBy.CANCEL).words() == ("scancel", "7")
    assert HoldJob(job_id="5_2").words() == ("scontrol", "hold", "5_2")
    assert ReleaseJob(job_id="7").words() == ("scontrol", "release", "7")
    assert RankJob(job_id="7", priority=9).words() == ("scontrol", "update", "JobId=7", "Priority=9")


def test_nodes_are_one_word_and_as_many_as_there_are() -> None:
    words = SteerJob(job_id="7", nodes=("n10", "n2", "n1")).words()
    assert words == ("scontrol", "update", "JobId=7", "NumNodes=3-3", "ReqNodeList=n[1-2,10]")


def test_requests_go_by_what_the_job_asked_for() -> None:
    steer = SteerJob(job_id="7", nodes=("n1", "n2"), gpus_per_node=4, num_gpus=8)
    assert steer.requests() == ("Gres=gpu:4",)
    assert steer.requests("h100") == ("Gres=gpu:h100:4",)
    assert steer.requests("h100", per_job=True) == ("TresPerJob=gres:gpu:h100:8", "Gres=gpu:h100:4")
    # A number in all that stays is not said again.
    assert SteerJob(job_id="7", nodes=("n1",), gpus_per_node=4).requests(per_job=True) == ("Gres=gpu:4",)


def test_a_job_that_was_requeued_need_not_wait() -> None:
    steer = SteerJob(job_id="7", nodes=("n1",), reservation="r", at_once=True)
    assert steer.words()[-2:] == ("ReservationName=r", "StartTime=now")


@pytest.mark.parametrize(
    ("from_s", "until_s", "taken_at_s", "times"),
    [
        (3600.0, 7200.0, AT_S, ("StartTime=2026-11-25T11:00:00", "EndTime=2026-11-25T12:00:00")),
        (-60.0, 7200.0, AT_S, ("StartTime=now", "EndTime=2026-11-25T12:00:00")),
        (0.0, None, AT_S, ("StartTime=now", "Duration=UNLIMITED")),
        (90.5, 3690.5, None, ("StartTime=now+91", "Duration=60")),
        (-600.0, 61.0, None, ("StartTime=now", "Duration=2")),
    ],
)
def test_times_of_reservations(
    from_s: float, until_s: float | None, taken_at_s: float | None, times: tuple[str, str]
) -> None:
    reserve = Reserve(
        name="r", nodes=("n1",), from_s=from_s, until_s=until_s, taken_at_s=taken_at_s, users=("ada", "bob")
    )
    assert reserve.words() == (
        *("scontrol", "create", "reservation", "ReservationName=r", "Nodes=n1", *times),
        *("Users=ada,bob", "Flags=ignore_jobs"),
    )


def test_reservations_for_maintenance_and_beside_others() -> None:
    reserve = Reserve(name="r", nodes=("n1",), from_s=0, until_s=60, accounts=("llm",), maintenance=True, soft=True)
    assert reserve.words(exists=True)[:3] == ("scontrol", "update", "ReservationName=r")
    assert reserve.words()[-2:] == ("Accounts=llm", "Flags=maint,overlap,ignore_jobs")


@pytest.mark.parametrize("name", ["n[1-2]", "n1,n2", "n1;reboot", "$(id)", "", "-w", "ALL n1"])
def test_what_is_no_node_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="is no node of Slurm"):
        node_list(("n1", name))


@pytest.mark.parametrize(("job_id", "fault"), [("7", False), ("5_2", False), *((text, True) for text in
    ("7+1", "0", "x", "", "7,8", "7;id", "5_[0-3]", "٣", "7\n8"))])  # fmt: skip
def test_ids_that_scontrol_takes(job_id: str, fault: bool) -> None:
    issues = job_issues(job_id, "/jobs/0")
    assert [issue.code for issue in issues] == (["not_a_slurm_job"] if fault else [])
