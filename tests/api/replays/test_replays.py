"""Replays over HTTP. Few have workers of their own: most share those of the plans."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import api.replays.run
from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.replays import replay_task, run
from api.replays.active import ActiveReplays, common_status
from api.replays.run import RunningReplays
from api.replays.task import PackedReplays, Replayed, ReplayProgress, ReplayTask
from api.schemas.replay_answer import ReplayDoc, ReplayReportDoc, ReplayStatus
from api.store.database import Store
from api.store.keys import RequestKey
from api.store.replays import ReplayStore
from executor.simulation.replay import Replay
from models.allocation.gang.parameters import GangParameters
from models.plan import PlanOutcome, PlanRequest
from models.planning import plan
from solver.monitor import SolveMonitor
from solver.pool import WorkerPool
from solver.ticket import DeadlineError
from stowplan.errors import WorkerError
from stowplan.records import to_document
from tests.api import replay_tasks
from tests.api.asking import JSON, events_of, post, waited
from tests.api.replay_requests import (
    PATH,
    measured_request,
    modelled_request,
    replay_request,
    reserved_request,
    setups_of,
    tabled_request,
)
from tests.api.requests import Json, changed, json_text
from tests.api.serving import serving
from tests.api.warm import WarmPool
from tests.waiting import eventually

pytestmark = pytest.mark.slow

THREE_SEEDS = replay_request(policies=[{"policy": "gang"}], seeds=[0, 1, 2])
LATE = {"id": "late", "submit_s": 10, "num_gpus": 4, "duration_s": 100}
# CPU time differs from replay to replay.
MEASURED = ("decisions", "other_cpu_s")


@pytest.fixture(autouse=True)
def warm(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replays share the workers of plans."""
    monkeypatch.setattr(api.replays.run, "WorkerPool", lambda *_, **__: WarmPool(pool))


def work_as(task: Callable[..., Any], patched: pytest.MonkeyPatch) -> None:
    patched.setattr(api.replays.run, "REPLAY_TASK", f"{replay_tasks.__name__}:{task.__name__}")


def replayed(client: httpx.Client, request: Json) -> Json:
    answer = waited(client, post(client, PATH, request, Prefer="wait=50"))
    ReplayDoc.model_validate_json(answer.text)
    document: Json = answer.json()
    return document


def report_of(client: httpx.Client, document: Json) -> list[Json]:
    answer = client.get(document["links"]["report"])
    assert answer.headers["content-type"] == "application/json"
    ReplayReportDoc.model_validate_json(answer.text)
    replays: list[Json] = answer.json()["replays"]
    return replays


def ends(replay: Json) -> dict[str, float | None]:
    return {job["id"]: job["ended_s"] for job in replay["jobs"]}


@pytest.fixture(scope="module")
def done(client: httpx.Client, pool: WorkerPool) -> Json:
    """The example, replayed."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(api.replays.run, "WorkerPool", lambda *_, **__: WarmPool(pool))
        return replayed(client, replay_request())


def test_completions_by_hand(client: httpx.Client, done: Json) -> None:
    """A node of 8 GPUs, with EASY backfill and without; drawings in `tests.executor.simulation.test_replay`."""
    assert done["status"] == "succeeded"
    assert done["progress"] == {"num_jobs": 8, "num_ended": 8, "num_replays": 2, "num_done": 2}
    assert [(row["policy"], row["parameters"], row["seed"]) for row in done["replays"]] == [
        ("gang", {}, 0),
        ("gang", {"backfill": "none"}, 0),
    ]
    easy, none = report_of(client, done)
    assert ends(easy) == {"a": 100, "b": 150, "c": 50, "d": 350}
    assert ends(none) == {"a": 100, "b": 150, "c": 180, "d": 350}
    assert [row["figures"]["completion_s"]["mean"] for row in done["replays"]] == [148.75, 181.25]
    assert done["times"]["queued"] <= done["times"]["running"] <= done["times"]["finished"]
    assert client.get(done["links"]["self"]).json() == done


def test_a_calendar_is_honoured(client: httpx.Client) -> None:
    """The drawing is in `tests.executor.control.test_calendar`; c starts before d where there is no calendar."""
    kept, free = reserved_request(), reserved_request(calendar=[])
    del free["trace"]["jobs"][3]["calendar_entry"]
    (replay,), (without,) = (report_of(client, replayed(client, request)) for request in (kept, free))
    assert ends(replay) == {"a": 100, "b": 130, "c": 330, "d": 240}
    assert ends(without) == {"a": 100, "b": 130, "c": 160, "d": 260}
    calendar = {"cluster": kept["cluster"], "entries": kept["calendar"]}
    client.put("/v1/clusters/replayed/calendar", content=json_text(calendar), headers=JSON)
    named = reserved_request(calendar={"cluster": "replayed"})
    assert ends(report_of(client, replayed(client, named))[0]) == ends(replay)
    unknown = post(client, PATH, reserved_request(calendar={"cluster": "nowhere"}))
    assert (unknown.status_code, unknown.json()["errors"][0]["pointer"]) == (422, "/calendar/cluster")


def test_figures_are_those_of_a_replay_here(client: httpx.Client) -> None:
    """Noise and failures are drawn alike; rounds, delays and elasticity arrive."""
    drawn = {
        "noise": 0.5,
        "seeds": [3, 1],
        "failures": {"mtbf_s": 900.0, "repair_s": 60.0},
        "horizon_s": 600.0,
        "round_s": 30.0,
        "start_s": 5.0,
        "restart_s": 10.0,
        "checkpoint_s": 20.0,
        "elasticity": 2.0,
        "settle": True,
    }
    for request in (replay_request(**drawn), tabled_request(**drawn)):
        document = replayed(client, request)
        here = [to_document(Replay(setup).run()) for setup in setups_of(request)]
        there = report_of(client, document)
        assert [replay["seed"] for replay in there] == [3, 1, 3, 1]
        for mine, theirs, row in zip(here, there, document["replays"], strict=True):
            assert mine.keys() == theirs.keys()
            assert row["figures"] == {name: value for name, value in theirs.items() if name != "jobs"}
            for name in mine.keys() - set(MEASURED):
                assert theirs[name] == mine[name], name


def test_tables_of_throughputs(client: httpx.Client) -> None:
    """One GPU is nearest to the two that were asked for; four may be given."""
    document = replayed(client, tabled_request())
    assert [ends(replay)["x"] for replay in report_of(client, document)] == pytest.approx([100, 300])


def test_applications_that_were_measured(client: httpx.Client) -> None:
    request = measured_request(round_s=60.0, settle=True, profiling="released", shared_models=True)
    document = replayed(client, request)
    assert (document["status"], document["num_jobs"], document["num_left_out"]) == ("succeeded", 2, 1)
    here = [ends(to_document(Replay(setup).run())) for setup in setups_of(request)]
    assert [ends(replay) for replay in report_of(client, document)] == here
    assert all(None not in replay.values() for replay in here)


def test_models_of_the_catalogue(client: httpx.Client) -> None:
    """As a replay here; of the three jobs one has no batch, and for one there is no plan, which replays find out."""
    request = modelled_request()
    huge = {**request["trace"]["jobs"][0], "id": "huge", "submit_s": 9, "application": "gpt2-175b"}
    request["trace"]["jobs"].append(huge)
    document = replayed(client, request)
    assert document["status"] == "succeeded"
    assert (document["num_jobs"], document["num_left_out"]) == (1, 2)
    assert document["progress"] == {"num_jobs": 2, "num_ended": 2, "num_replays": 2, "num_done": 2}
    assert client.get(document["links"]["self"]).json() == document
    here = [ends(to_document(Replay(setup).run())) for setup in setups_of(request)]
    assert [ends(replay) for replay in report_of(client, document)] == here
    assert here[0].keys() == {"x"}


def test_models_without_a_plan_fail_with_what_would_do(client: httpx.Client) -> None:
    request = modelled_request(policies=[{"policy": "gang"}])
    document = replayed(client, changed(request, "/trace/jobs/0/application", "gpt2-175b"))
    (row,) = document["replays"]
    assert (document["status"], row["failure"]["code"]) == ("failed", "invalid_input")
    assert "can be trained on as many GPUs of this cluster" in row["failure"]["detail"]


def test_the_same_request_under_a_key_is_replayed_once(client: httpx.Client) -> None:
    """Another request is refused; what is deleted has no key."""
    once = replay_request(policies=[{"policy": "gang"}])
    first = waited(client, post(client, PATH, once, Idempotency_Key="k", Prefer="wait=50")).json()
    again = post(client, PATH, {**once, "noise": 0.0}, Idempotency_Key="k")
    assert (again.status_code, again.json()) == (200, first)
    other = post(client, PATH, {**once, "noise": 0.5}, Idempotency_Key="k")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert first["id"] in other.json()["detail"]
    assert post(client, PATH, once, Idempotency_Key="x" * 300).json()["code"] == "invalid_header"
    assert post(client, PATH, once).json()["id"] != first["id"]
    assert client.delete(first["links"]["self"]).status_code == 204
    assert post(client, PATH, once, Idempotency_Key="k").json()["id"] != first["id"]


def test_events_tell_how_it_went(client: httpx.Client, done: Json) -> None:
    events = events_of(client, done)
    states = [(data["replay"], data["status"]) for _, name, data in events if name == "state"]
    assert states[:2] == [(None, "queued"), (None, "running")]
    assert states[-1] == (None, "succeeded")
    assert {(0, "running"), (0, "succeeded"), (1, "running"), (1, "succeeded")} <= set(states)
    assert {data["replay"] for _, name, data in events if name == "progress"} == {0, 1}
    last = events[-1][0]
    later = events_of(client, done, **{"Last-Event-ID": str(last - 1)})
    assert [event[0] for event in later] == [last]
    assert client.get(done["links"]["events"], headers={"Last-Event-ID": str(last)}).status_code == 204


def test_pictures_of_every_policy(client: httpx.Client, done: Json) -> None:
    picture = client.get(done["links"]["figure"])
    assert picture.headers["content-type"].startswith("image/svg+xml")
    assert all(name in picture.text for name in (">gang<", ">gang, backfill none<"))
    png = client.get(done["links"]["figure_png"])
    assert (png.headers["content-type"], png.content[:4]) == ("image/png", b"\x89PNG")


def test_the_cluster_of_a_stored_snapshot(client: httpx.Client) -> None:
    snapshot = {"cluster": replay_request()["cluster"], "jobs": []}
    id_ = post(client, "/v1/snapshots", snapshot).json()["id"]
    document = replayed(client, replay_request(cluster={"snapshot_id": id_}))
    assert ends(report_of(client, document)[0]) == {"a": 100, "b": 150, "c": 50, "d": 350}


def test_jobs_that_are_left_out_are_counted(client: httpx.Client) -> None:
    document = replayed(client, changed(replay_request(), "/trace/jobs/0/num_gpus", 0))
    assert (document["num_jobs"], document["num_left_out"]) == (3, 1)
    assert [row["figures"]["num_left_out"] for row in document["replays"]] == [1, 1]


def test_a_horizon_before_all_jobs_leaves_nothing_to_draw(client: httpx.Client) -> None:
    document = replayed(client, changed(replay_request(horizon_s=5.0), "/trace/jobs", [LATE]))
    assert document["status"] == "succeeded"
    assert (document["links"]["figure"], document["links"]["figure_png"]) == (None, None)
    assert [replay["jobs"] for replay in report_of(client, document)] == [[], []]


def test_at_the_limit_what_was_done_is_kept(client: httpx.Client) -> None:
    """It is struck at the first instant, at which a starts."""
    request = replay_request(policies=[{"policy": "gang"}], time_limit_s=1e-6)
    document = replayed(client, request)
    (row,) = document["replays"]
    assert (document["status"], row["status"], row["figures"]["stopped_s"]) == ("timed_out", "timed_out", 0)
    assert row["failure"] is None
    (replay,) = report_of(client, document)
    assert [(job["id"], job["started_s"], job["ended_s"]) for job in replay["jobs"]] == [("a", 0, None)]
    assert client.get(document["links"]["figure"]).status_code == 200


def test_a_decision_that_takes_too_long_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    def patient(request: PlanRequest, monitor: SolveMonitor) -> PlanOutcome:
        assert monitor.canceled.wait(60.0)
        return plan(request)

    monkeypatch.setattr(replay_task, "_DECISION_S", 0.1)
    monkeypatch.setattr(replay_task, "plan", patient)
    task = ReplayTask(setup=setups_of(THREE_SEEDS)[0], parameters=GangParameters(), seed=0, limit_s=0.1)
    assert replay_task.replay_task(task, SolveMonitor()).figures.stopped_s == 0


def test_of_a_replay_that_is_killed_at_its_deadline_it_is_known_how_far_it_was(client: httpx.Client) -> None:
    """It listens no more in the middle of a decision."""
    known = ReplayDoc.model_validate_json(json.dumps(replayed(client, THREE_SEEDS)))
    running = RunningReplays(PackedReplays.of(setups_of(THREE_SEEDS)), 1.0, 1.0, num_processes=1)
    active = ActiveReplays(known, running, lambda *_: None)
    active.begun(0)
    active.advanced(0, ReplayProgress(elapsed_s=1.0, num_ended=2, now_s=160.0))
    active.ended(0, DeadlineError("killed"))
    row = active.document.replays[0]
    assert (row.status, row.num_ended, row.now_s) == (ReplayStatus.TIMED_OUT, 2, 160.0)
    assert row.failure is not None
    assert row.failure.code == "deadline"
    assert common_status(active.document.replays) is ReplayStatus.TIMED_OUT


def test_a_replay_that_fails_says_why_and_leaves_the_others(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.replays.run, "REPLAY_TASK", "tests.api.replay_tasks:no_such_task")
    document = replayed(client, replay_request())
    assert document["status"] == "failed"
    assert {row["status"] for row in document["replays"]} == {"failed"}
    assert all("no task" in row["failure"]["detail"] for row in document["replays"])
    assert client.get(document["links"]["self"] + "/figure.svg").json()["code"] == "no_outcome"
    assert report_of(client, document) == []


def test_one_is_followed_stopped_and_deleted(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    work_as(replay_tasks.patient_task, monkeypatch)
    settings = Settings(database=IN_MEMORY, replay_queue_size=1, replay_processes=1, heartbeat_s=0.2, shutdown_s=5.0)
    with serving(create_app(settings, pool=pool)) as client:
        running = post(client, PATH, THREE_SEEDS)
        assert running.status_code == 202
        assert int(running.headers["retry-after"]) > 0
        path = running.headers["location"]
        waiting = post(client, PATH, THREE_SEEDS).json()
        refused = post(client, PATH, THREE_SEEDS)
        assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
        assert waiting["status"] == "queued"
        # What has ended can be had while the rest runs, and how far that is is told.
        seen = eventually(lambda: client.get(path).json(), lambda now: now["replays"][1]["num_ended"] == 2)
        assert [row["status"] for row in seen["replays"]] == ["succeeded", "running", "queued"]
        assert (seen["replays"][1]["now_s"], seen["replays"][1]["elapsed_s"]) == (160.0, 1.0)
        assert seen["progress"] == {"num_jobs": 12, "num_ended": 6, "num_replays": 3, "num_done": 1}
        assert [replay["seed"] for replay in report_of(client, seen)] == [0]
        page = client.get(f"{PATH}?limit=1").json()
        assert [known["id"] for known in page["replays"]] == [waiting["id"]]
        (rest,) = client.get(page["next"]).json()["replays"]
        assert rest == {name: seen[name] for name in rest}
        events: list[tuple[int, str, Json]] = []
        follower = threading.Thread(target=lambda: events.extend(events_of(client, seen)))
        follower.start()
        assert client.delete(waiting["links"]["self"]).status_code == 202
        assert client.get(waiting["links"]["self"]).json()["status"] == "canceled"
        assert client.delete(path).status_code == 202
        final = client.get(path, headers={"Prefer": "wait=50"}).json()
        follower.join()
        assert final["status"] == "canceled"
        assert [row["status"] for row in final["replays"]] == ["succeeded", "canceled", "canceled"]
        # The one that ran came back with what it had; the last never began.
        assert final["replays"][1]["figures"]["stopped_s"] == 0
        assert final["replays"][2]["figures"] is None
        assert events[-1][2] == {"status": "canceled", "replay": None}
        assert (2, 160.0) in [(data["num_ended"], data["now_s"]) for _, name, data in events if name == "progress"]
        assert client.delete(path).status_code == 204
        assert client.get(path).status_code == client.delete(path).status_code == 404
        assert client.get(f"{path}/report").json()["code"] == client.get(f"{path}/events").json()["code"] == "not_found"


class Outcomes:
    """Watches, and stops when the last one is at work."""

    def __init__(self) -> None:
        self.running: RunningReplays | None = None
        self.outcomes: dict[int, Replayed | BaseException] = {}

    def begun(self, number: int) -> None:
        """Nothing is done about it."""

    def advanced(self, number: int, progress: ReplayProgress) -> None:  # noqa: ARG002 - the protocol
        if number == 2 and self.running is not None:
            self.running.stop()

    def ended(self, number: int, outcome: Replayed | BaseException) -> None:
        self.outcomes[number] = outcome


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of their own, that may die."""
    monkeypatch.setattr(api.replays.run, "WorkerPool", WorkerPool)
    work_as(replay_tasks.broken_task, monkeypatch)
    monkeypatch.setattr(run, "GRACE_S", 0.2)


@pytest.mark.usefixtures("cold")
def test_who_dies_has_failed_and_who_does_not_listen_is_killed() -> None:
    watcher = Outcomes()
    watcher.running = RunningReplays(PackedReplays.of(setups_of(THREE_SEEDS)), 60.0, 60.0, num_processes=1)
    watcher.running.run(watcher)
    first, dead, deaf = (watcher.outcomes[number] for number in range(3))
    assert isinstance(first, Replayed)
    assert "exit code 3" in str(dead)
    assert isinstance(dead, WorkerError)
    assert isinstance(deaf, WorkerError)
    assert not isinstance(deaf, DeadlineError)


def test_a_restart_keeps_what_has_ended(lasting: Path | str, pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    work_as(replay_tasks.patient_task, monkeypatch)
    settings = Settings(database=str(lasting), replay_processes=1, shutdown_s=5.0)
    with serving(create_app(settings, pool=pool)) as client:
        kept = replayed(client, replay_request())
        pictured, told, events = client.get(kept["links"]["figure"]), report_of(client, kept), events_of(client, kept)
        path = post(client, PATH, THREE_SEEDS, Idempotency_Key="k").headers["location"]
        waiting = post(client, PATH, THREE_SEEDS).headers["location"]
        eventually(lambda: client.get(path).json(), lambda now: now["progress"]["num_done"] == 1)
    key = left_by_a_crash(settings, kept)
    with serving(create_app(settings, pool=pool)) as client:
        assert client.get(kept["links"]["self"]).json() == kept
        assert report_of(client, kept) == told
        assert events_of(client, kept) == events
        assert client.get(kept["links"]["figure"]).content == pictured.content
        stopped = client.get(path).json()
        assert (stopped["status"], stopped["failure"]["code"]) == ("interrupted", "interrupted")
        assert [row["status"] for row in stopped["replays"]] == ["succeeded", "interrupted", "interrupted"]
        assert client.get(waiting).json()["status"] == "interrupted"
        crashed = client.get(f"{PATH}/left").json()
        assert crashed["status"] == ReplayStatus.INTERRUPTED
        assert [row["status"] for row in crashed["replays"]] == ["succeeded", "interrupted"]
        assert crashed["progress"]["num_done"] == 2
        assert report_of(client, crashed) == told[:1]
        assert [(name, data["status"]) for _, name, data in events_of(client, crashed)] == [("state", "interrupted")]
        again = post(client, PATH, THREE_SEEDS, Idempotency_Key="k")
        assert (again.status_code, again.headers["location"] != path) == (202, True)
    store = Store(settings.database_location)
    assert store.resource_of(key) is None
    store.close()


def left_by_a_crash(settings: Settings, kept: Json) -> RequestKey:
    """The same replays as a process leaves them that is killed when the first has ended; gives their key."""
    store = Store(settings.database_location)
    replays = ReplayStore(store)
    known = ReplayDoc.model_validate_json(json.dumps(kept))
    rows = tuple(row.model_copy(update={"status": ReplayStatus.QUEUED, "figures": None}) for row in known.replays)
    path = f"{PATH}/left"
    links = known.links.model_copy(update={"self": path, "report": f"{path}/report", "events": f"{path}/events"})
    left = known.model_copy(update={"id": "left", "status": ReplayStatus.QUEUED, "replays": rows, "links": links})
    key = RequestKey(collection=PATH, key="left", input_hash=known.input_hash)
    replays.add("left", left.model_dump_json(), replays.cluster(known.id) or "", key)
    result = replays.result(known.id, 0) or ""
    replays.add_result("left", 0, known.replays[0].model_dump_json(), result)
    store.close()
    return key
