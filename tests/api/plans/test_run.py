"""The life of plans: queue, events, cancel, deadline, crash, restart. Workers run stand-ins that take their time."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import api.plans.run
from api.app import create_app
from api.common.events import MAX_EVENTS, EventLog
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.plans import planning
from api.plans.reading import ReadPlan
from api.plans.service import Plans
from solver.pool import WorkerPool
from solver.process import WorkerProcess
from tests.api import tasks
from tests.api.asking import events_of, planned, post, until
from tests.api.conftest import SETTINGS
from tests.api.measurements import CLUSTER, batch_of
from tests.api.requests import Json, arnold_request, changed, hard_request, sia_request
from tests.api.serving import serving

# A worker may have to load what solves before, on a busy machine.
WAIT_S = 60.0
WorksAs = Callable[[Callable[..., Any]], None]


@pytest.fixture
def works_as(monkeypatch: pytest.MonkeyPatch) -> WorksAs:
    """Have workers run a stand-in instead of planning."""

    def patch(task: Callable[..., Any]) -> None:
        monkeypatch.setattr(api.plans.run, "PLAN_TASK", f"{task.__module__}:{task.__name__}")

    return patch


def started(client: httpx.Client, request: Json, status: str = "solving") -> Json:
    """A plan that has come as far as `status`."""
    path = post(client, "/v1/plans", request).headers["location"]
    return until(client, path, lambda plan: plan["status"] == status)


def canceled(client: httpx.Client, plan: Json) -> Json:
    answer = client.post(plan["links"]["cancel"], headers={"Prefer": "wait=50"})
    assert answer.status_code == 200
    final: Json = answer.json()
    return final


def test_the_same_key_gives_the_same_plan(client: httpx.Client) -> None:
    request = sia_request()
    first = post(client, "/v1/plans", request, Idempotency_Key="k-1", Prefer="wait=50").json()
    again = post(client, "/v1/plans", request, Idempotency_Key="k-1")
    assert again.status_code == 200
    assert again.json() == first
    other = post(client, "/v1/plans", changed(request, "/options", {"seed": 5}), Idempotency_Key="k-1")
    assert other.status_code == 409
    assert other.json()["code"] == "idempotency_conflict"
    assert post(client, "/v1/plans", request).json()["id"] != first["id"]


def test_the_same_key_at_the_same_time(client: httpx.Client) -> None:
    request = sia_request()

    def ask(_: int) -> str:
        return str(post(client, "/v1/plans", request, Idempotency_Key="k-2").json()["id"])

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(ask, range(16)))) == 1


def test_events_tell_the_whole_life(client: httpx.Client) -> None:
    plan = planned(client, sia_request())
    events = events_of(client, plan)
    states = [data["status"] for _, name, data in events if name == "state"]
    assert states[0] == "queued"
    assert states[-1] == "succeeded"
    assert [id_ for id_, _, _ in events] == sorted({id_ for id_, _, _ in events})
    incumbents = [data["objective"] for _, name, data in events if name == "incumbent"]
    assert incumbents[-1] == pytest.approx(plan["objective"])
    last = events[-1][0]
    assert events_of(client, plan, **{"Last-Event-ID": str(last - 1)}) == events[-1:]
    # Browsers connect again after the end of a stream, until they are answered 204.
    assert client.get(plan["links"]["events"], headers={"Last-Event-ID": str(last)}).status_code == 204


def test_events_are_followed_while_it_solves(client: httpx.Client, works_as: WorksAs) -> None:
    works_as(tasks.improving_task)
    plan = started(client, sia_request())
    with ThreadPoolExecutor(1) as threads:
        following = threads.submit(events_of, client, plan)
        # Longer than the heartbeat, so that silence is bridged at least once.
        time.sleep(0.5)
        assert not following.done()
        canceled(client, plan)
        events = following.result(WAIT_S)
    assert events[-1][1:] == ("state", {"status": "canceled"})


def test_cancel_keeps_the_best_plan(client: httpx.Client, works_as: WorksAs) -> None:
    works_as(tasks.improving_task)
    plan = started(client, sia_request())
    assert client.delete(plan["links"]["self"]).json()["code"] == "plan_not_finished"
    final = canceled(client, plan)
    assert final["status"] == "canceled"
    assert final["termination"] == {"reason": "feasible", "limit": "interrupted"}
    assert final["verified"]
    assert len(final["allocations"]) == 2
    assert client.get(final["links"]["figure"]).status_code == 200


def test_cancel_of_a_real_solve_keeps_its_best_plan(client: httpx.Client) -> None:
    plan = started(client, hard_request())
    final = canceled(client, plan)
    assert final["status"] == "canceled"
    assert final["termination"] == {"reason": "feasible", "limit": "interrupted"}
    assert final["verified"]
    assert final["bound"] is None or final["bound"] <= final["objective"]
    assert len(final["communication"]["hosts"]) == 240


def test_cancel_before_anything_is_found(client: httpx.Client, works_as: WorksAs) -> None:
    works_as(tasks.hanging_task)
    final = canceled(client, started(client, sia_request()))
    assert final["status"] == "canceled"
    assert final["allocations"] == []
    assert final["links"]["figure"] is None
    assert final["links"]["figure_png"] is None
    for name in ("figure.svg", "figure.png"):
        assert client.get(f"{final['links']['self']}/{name}").json()["code"] == "no_outcome"


def test_a_full_queue_answers_429(pool: WorkerPool, works_as: WorksAs) -> None:
    works_as(tasks.hanging_task)
    with serving(create_app(Settings(database=IN_MEMORY, queue_size=1, shutdown_s=2.0), pool=pool)) as client:
        running = [started(client, sia_request()) for _ in range(2)]
        waiting = started(client, sia_request(), status="queued")
        refused = post(client, "/v1/plans", sia_request(), Idempotency_Key="later")
        assert refused.status_code == 429
        assert refused.json()["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) > 0
        # What was refused leaves nothing behind: its key is free.
        assert len(client.get("/v1/plans").json()["plans"]) == 3
        assert [plan["id"] for plan in client.get("/v1/plans?status=queued").json()["plans"]] == [waiting["id"]]
        assert client.post(waiting["links"]["cancel"], headers={"Prefer": "wait=5"}).json()["status"] == "canceled"
        assert post(client, "/v1/plans", sia_request(), Idempotency_Key="later").status_code == 202
        for plan in running:
            canceled(client, plan)


def test_variants_are_queued_together_or_not_at_all(pool: WorkerPool, works_as: WorksAs) -> None:
    with serving(create_app(Settings(database=IN_MEMORY, queue_size=1, shutdown_s=2.0), pool=pool)) as client:
        plan = planned(client, sia_request())
        works_as(tasks.hanging_task)
        path = f"{plan['links']['self']}:what-if"
        variants = [{"name": f"v{k}", "drain": [f"n{k % 2}"]} for k in range(4)]
        # Two run and one waits; four are too many.
        refused = post(client, path, {"variants": variants}, Idempotency_Key="many")
        assert (refused.status_code, refused.json()["code"]) == (429, "queue_full")
        assert len(client.get("/v1/plans").json()["plans"]) == 1
        answer = post(client, path, {"variants": variants[:3]}, Idempotency_Key="many")
        assert answer.status_code == 202
        rows = answer.json()["variants"]
        assert [(row["difference"], row["figure"]) for row in rows] == [(None, None)] * 3
        assert post(client, f"{rows[0]['plan']['links']['self']}:what-if", {"variants": variants}).status_code == 409
        for row in rows:
            canceled(client, row["plan"])


def kill_workers(pool: WorkerPool) -> None:
    for worker in list(pool._workers):
        assert isinstance(worker, WorkerProcess)
        assert worker._process is not None
        worker._process.kill()


def begun_again(client: httpx.Client, plan: Json) -> Json:
    """The plan, once another worker solves it."""
    before = plan["times"]["building"]
    again = lambda plan: plan["status"] == "solving" and plan["times"]["building"] != before  # noqa: E731
    return until(client, plan["links"]["self"], again)


@pytest.fixture
def lean_pool() -> Iterator[WorkerPool]:
    """A pool as the service has it, but for how many workers there are and what they load ahead: for tests that kill
    them."""
    with WorkerPool(1, 10, gives_up=False, attempts=3) as pool:
        yield pool


def test_a_killed_worker_costs_its_plan_nothing_and_several_cost_it_alone(
    lean_pool: WorkerPool, works_as: WorksAs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(create_app(SETTINGS, pool=lean_pool)) as client:
        works_as(tasks.hanging_task)
        plan = started(client, sia_request())
        kill_workers(lean_pool)
        final = canceled(client, begun_again(client, plan))
        assert final["status"] == "canceled"
        plan = started(client, sia_request())
        for _ in range(2):
            kill_workers(lean_pool)
            plan = begun_again(client, plan)
        kill_workers(lean_pool)
        final = until(client, plan["links"]["self"], lambda plan: plan["status"] == "failed")
        assert final["failure"]["code"] == "worker_died"
        assert final["failure"]["detail"].endswith("(signal 9), 3 times in a row")
        monkeypatch.undo()
        assert planned(client, sia_request())["status"] == "succeeded"


@pytest.mark.slow
def test_the_deadline_keeps_the_last_incumbent_if_there_is_one(pool: WorkerPool, works_as: WorksAs) -> None:
    settings = Settings(database=IN_MEMORY, deadline_slack_s=3.0)
    request = sia_request(options={"time_limit_s": 0.2})
    with serving(create_app(settings, pool=pool)) as client:
        works_as(tasks.stuck_task)
        with_incumbent = started(client, request)
        works_as(tasks.deaf_task)
        without = started(client, request, status="building")
        # The second worker that finishes from the incumbent must know what to do.
        works_as(tasks.stuck_task)
        final = client.get(with_incumbent["links"]["self"], headers={"Prefer": "wait=50"}).json()
        assert final["status"] == "succeeded"
        assert final["termination"] == {"reason": "feasible", "limit": "deadline"}
        assert final["verified"]
        assert len(final["allocations"]) == 2
        final = client.get(without["links"]["self"], headers={"Prefer": "wait=50"}).json()
        assert final["status"] == "timed_out"
        assert final["failure"]["code"] == "deadline"
        assert final["allocations"] == []


def test_an_answer_that_takes_longer_than_the_wait_is_a_promise(client: httpx.Client, works_as: WorksAs) -> None:
    works_as(tasks.hanging_task)
    answer = post(client, "/v1/plans", sia_request(), Prefer="wait=1")
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "wait=1"
    assert answer.json()["status"] in {"queued", "building", "solving"}
    canceled(client, answer.json())


def test_a_bug_in_a_worker_is_a_failed_plan(client: httpx.Client, works_as: WorksAs) -> None:
    works_as(tasks.broken_task)
    final = planned(client, sia_request())
    assert final["status"] == "failed"
    assert final["failure"]["code"] == "internal_error"
    assert final["termination"] is None


def test_a_client_that_leaves_does_not_stop_its_plan(client: httpx.Client) -> None:
    with suppress(httpx.ReadTimeout):
        client.post(
            "/v1/plans",
            json=arnold_request(),
            headers={"Prefer": "wait=50", "Idempotency-Key": "left"},
            timeout=httpx.Timeout(5.0, read=0.005),
        )
    final = post(client, "/v1/plans", arnold_request(), Idempotency_Key="left", Prefer="wait=50")
    assert final.json()["status"] == "succeeded"


def test_a_restart_keeps_what_is_final_and_marks_the_rest(
    lasting: Path | str, pool: WorkerPool, works_as: WorksAs
) -> None:
    settings = Settings(database=str(lasting), shutdown_s=2.0)
    with serving(create_app(settings, pool=pool)) as client:
        kept = planned(client, sia_request())
        works_as(tasks.improving_task)
        stopped = started(client, sia_request())
    with serving(create_app(settings, pool=pool)) as client:
        assert client.get(kept["links"]["self"]).json() == kept
        assert events_of(client, kept)[-1][1:] == ("state", {"status": "succeeded"})
        final = client.get(stopped["links"]["self"]).json()
        assert final["status"] == "interrupted"
        assert final["failure"]["code"] == "interrupted"
        # It came back with what it had.
        assert final["verified"]


def test_a_service_whose_database_goes_away_says_so(tmp_path: Path, pool: WorkerPool, works_as: WorksAs) -> None:
    settings = Settings(database=str(tmp_path / "plans.sqlite"), shutdown_s=2.0)
    with serving(create_app(settings, pool=pool)) as client:
        kept = planned(client, sia_request())
        works_as(tasks.improving_task)
        running = started(client, sia_request())
        (tmp_path / "plans.sqlite").unlink()
        asked = [client.get(path) for path in ("/healthz", "/readyz", kept["links"]["self"], "/v1/plans")]
        for answer in (*asked, post(client, "/v1/plans", sia_request())):
            assert answer.status_code == 503
            assert "plans.sqlite was removed or replaced while the service used it" in answer.text
        # What runs goes on, and is found as long as the service lives.
        assert canceled(client, running)["verified"]


def crashed(database: Path, folder: Path) -> Path:
    """The database as a process that dies now leaves it."""
    folder.mkdir()
    for path in database.parent.glob(f"{database.name}*"):
        shutil.copy(path, folder)
    return folder / database.name


@pytest.mark.slow
def test_plans_go_on_after_a_crash(tmp_path: Path, pool: WorkerPool, works_as: WorksAs) -> None:
    settings = Settings(database=str(tmp_path / "plans.sqlite"), workers=1)
    requests = [sia_request(options={"seed": seed}) for seed in range(3)]
    with serving(create_app(settings, pool=pool)) as client:
        works_as(tasks.hanging_task)
        key = {"Idempotency-Key": "once"}
        # One runs, two wait.
        plans = [
            post(client, "/v1/plans", request, **(key if k == 0 else {})).json() for k, request in enumerate(requests)
        ]
        until(client, plans[0]["links"]["self"], lambda plan: plan["status"] == "solving")
        last_seen = 1_000
        left = crashed(tmp_path / "plans.sqlite", tmp_path / "crashed")
        for plan in plans:
            canceled(client, plan)
    works_as(planning.planned)
    with serving(create_app(settings.model_copy(update={"database": str(left)}), pool=pool)) as client:
        again = post(client, "/v1/plans", requests[0], **key, Prefer="wait=50")
        assert (again.status_code, again.json()["id"]) == (200, plans[0]["id"])
        for plan in plans:
            final = client.get(plan["links"]["self"], headers={"Prefer": "wait=50"}).json()
            final = until(client, plan["links"]["self"], lambda known: known["status"] == "succeeded")
            assert final["verified"]
            assert final["input_hash"] == plan["input_hash"]
            # Who had seen events of the first try sees those of the second.
            assert events_of(client, plan, **{"Last-Event-ID": f"{last_seen}"})[-1][2] == {"status": "succeeded"}


@pytest.mark.slow
def test_a_plan_can_be_waited_for_and_canceled_before_it_is_taken_up(
    tmp_path: Path, pool: WorkerPool, works_as: WorksAs, monkeypatch: pytest.MonkeyPatch
) -> None:
    works_as(tasks.hanging_task)
    with serving(create_app(Settings(database=str(tmp_path / "plans.sqlite")), pool=pool)) as client:
        plans = [started(client, sia_request()), post(client, "/v1/plans", sia_request(options={"seed": 1})).json()]
        left = crashed(tmp_path / "plans.sqlite", tmp_path / "crashed")
        for plan in plans:
            canceled(client, plan)
    works_as(planning.planned)
    read, may_read = Plans.reread, threading.Event()

    async def read_late(self: Plans, plan_id: str) -> ReadPlan:
        may_read.wait(30)
        return await read(self, plan_id)

    monkeypatch.setattr(Plans, "reread", read_late)
    with serving(create_app(Settings(database=str(left)), pool=pool)) as client, ThreadPoolExecutor(2) as others:
        goes_on, unwanted = (plan["links"]["self"] for plan in plans)
        answer = client.post(plans[1]["links"]["cancel"])
        assert (answer.status_code, answer.json()["status"]) == (202, "queued")
        waiting = others.submit(client.get, goes_on, headers={"Prefer": "wait=50"})
        watching = others.submit(events_of, client, plans[0])
        may_read.set()
        assert waiting.result().json()["status"] == "succeeded"
        assert [data["status"] for _, name, data in watching.result() if name == "state"][-1] == "succeeded"
        until(client, unwanted, lambda plan: plan["status"] == "canceled")


@pytest.mark.slow
def test_what_was_filled_in_is_told_after_a_crash_as_well(tmp_path: Path, pool: WorkerPool, works_as: WorksAs) -> None:
    request = {"policy": "sia", "snapshot": {"cluster": CLUSTER, "jobs": [{"id": "llm", "max_gpus": 2}]}}
    works_as(tasks.hanging_task)
    with serving(create_app(Settings(database=str(tmp_path / "plans.sqlite")), pool=pool)) as client:
        post(client, "/v1/jobs/llm/metrics", batch_of(10, pp=1, dp=2))
        plan = started(client, request)
        left = crashed(tmp_path / "plans.sqlite", tmp_path / "crashed")
        canceled(client, plan)
    works_as(planning.planned)
    with serving(create_app(Settings(database=str(left)), pool=pool)) as client:
        final = until(client, plan["links"]["self"], lambda known: known["status"] == "succeeded")
        assert [(warning["code"], warning["pointer"]) for warning in final["warnings"]] == [
            ("measured", "/snapshot/jobs/0/performance")
        ]


@pytest.mark.slow
def test_a_plan_with_which_the_service_goes_down_is_given_up(
    tmp_path: Path, pool: WorkerPool, works_as: WorksAs
) -> None:
    works_as(tasks.hanging_task)
    database = tmp_path / "0" / "plans.sqlite"
    database.parent.mkdir()
    with serving(create_app(Settings(database=str(database)), pool=pool)) as client:
        plan = started(client, sia_request())
        database = crashed(database, tmp_path / "1")
        canceled(client, plan)
    for times in range(2, 5):
        with serving(create_app(Settings(database=str(database)), pool=pool)) as client:
            until(client, plan["links"]["self"], lambda known: known["status"] == "solving")
            database = crashed(database, tmp_path / f"{times}")
            canceled(client, plan)
    with serving(create_app(Settings(database=str(database)), pool=pool)) as client:
        final = until(client, plan["links"]["self"], lambda known: known["status"] == "interrupted")
        assert final["failure"]["detail"].startswith("the service crashed 4 times before the plan was final")
        assert events_of(client, plan, **{"Last-Event-ID": "1000"})[-1][2] == {"status": "interrupted"}


@pytest.mark.slow
def test_what_waits_when_the_service_stops_goes_on_in_the_next(
    tmp_path: Path, pool: WorkerPool, works_as: WorksAs
) -> None:
    settings = Settings(database=str(tmp_path / "plans.sqlite"), workers=1, shutdown_s=30.0)
    with serving(create_app(settings, pool=pool)) as client:
        works_as(tasks.hanging_task)
        hanging = started(client, sia_request())
        waiting = post(client, "/v1/plans", sia_request()).json()
    works_as(planning.planned)
    with serving(create_app(settings, pool=pool)) as client:
        for plan in (hanging, waiting):
            until(client, plan["links"]["self"], lambda known: known["status"] == "succeeded")


@pytest.mark.slow
def test_concurrent_clients_get_right_answers(client: httpx.Client) -> None:
    requests = [sia_request(options={"seed": seed}) for seed in range(4)]
    expected = [planned(client, request)["allocations"] for request in requests]

    def ask(k: int) -> tuple[int, bool]:
        answer = post(client, "/v1/plans", requests[k % 4], Prefer="wait=50")
        return answer.status_code, answer.json()["allocations"] == expected[k % 4]

    with ThreadPoolExecutor(16) as threads:
        assert set(threads.map(ask, range(64))) == {(200, True)}


def test_an_event_log_is_bounded_and_keeps_states() -> None:
    log = EventLog()
    log.publish("state", {"status": "queued"})
    for k in range(2 * MAX_EVENTS):
        log.publish("bound", {"bound": k})
    events = log.after(0)
    assert len(events) == MAX_EVENTS
    assert events[0].name == "state"
    assert events[-1].data == {"bound": 2 * MAX_EVENTS - 1}
