"""Rounds of changes that one worker reads and plans: stored with their end where that is soon, as any other else."""

from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

import httpx
import pytest
from sqlalchemy import func, select

from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.plans import near
from api.plans.near import READ_AND_PLAN
from api.plans.outcome import PLAN_TASK
from api.plans.reading import READ_PLAN
from api.plans.run import RunningPlan
from api.store.database import Store
from api.store.tables import LEASES
from models.plan import PlanRequest
from solver.monitor import Progress
from solver.pool import QueueFullError, WorkerPool
from solver.ticket import Ticket
from tests.api import near_tasks
from tests.api.asking import events_of, planned, post, until
from tests.api.conftest import SETTINGS
from tests.api.plans.test_run import canceled
from tests.api.requests import Json, json_text, sia_request
from tests.api.serving import serving
from tests.api.store.test_database import RECORD

pytestmark = pytest.mark.slow


@pytest.fixture
def submitted(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tasks that the pool is given."""
    tasks: list[str] = []
    submit = pool.submit

    def watched(task: str, *arguments: Any, **options: Any) -> Ticket:
        tasks.append(task)
        return submit(task, *arguments, **options)

    monkeypatch.setattr(pool, "submit", watched)
    return tasks


def name_of(task: Callable[..., Any]) -> str:
    return f"{task.__module__}:{task.__name__}"


def stands_in(task: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "READ_AND_PLAN", name_of(task))


def change(base: Json, age_s: float, **more: Any) -> Json:
    """A round after the plan `base`, in which a job is older."""
    return {**sia_request(), "snapshot": {"base": base["id"], "jobs": {"j0": {"age_s": age_s}}}, **more}


def base_of(client: httpx.Client, age_s: float = 1.0) -> Json:
    """A plan whose snapshot a worker keeps."""
    return planned(client, sia_request([{**job, "age_s": age_s} for job in sia_request()["snapshot"]["jobs"]]))


def as_ever(client: httpx.Client, plan: Json) -> Json:
    """The same request planned in the ordinary way."""
    return planned(client, client.get(plan["links"]["input"]).json())


def alike(plan: Json) -> Json:
    return {name: plan[name] for name in ("status", "input_hash", "allocations", "objective", "score", "warnings")}


def test_a_round_is_read_and_planned_in_one_task_and_stored_once(
    client: httpx.Client, submitted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(store: Store, *asked: Any) -> list[bool]:
        ended.append(True)
        return finish(store, *asked)

    def quick(age_s: float) -> Json | None:
        """A plan that was stored with its end: a machine may be so busy that a worker tells before, or is not there."""
        ended.clear()
        submitted.clear()
        plan = planned(client, change(base, age_s))
        return None if ended or submitted != [READ_AND_PLAN] else plan

    ended: list[bool] = []
    base, finish = base_of(client, 21.0), Store.finish_plans
    monkeypatch.setattr(Store, "finish_plans", counted)
    plan = next(plan for k in range(100) if (plan := quick(30.0 + k)) is not None)
    assert (plan["status"], plan["verified"]) == ("succeeded", True)
    assert client.get(plan["links"]["self"]).json() == plan
    assert plan["id"] in [each["id"] for each in client.get("/v1/plans").json()["plans"]]
    timings, times = plan["timings"], plan["times"]
    assert 0 <= timings["accept_ms"] + timings["queue_ms"] <= timings["total_ms"]
    assert times["queued"] <= times["building"] <= times["finished"]
    same = as_ever(client, plan)
    assert alike(same) == alike(plan)
    names = [(name, data.get("status")) for _, name, data in events_of(client, plan)]
    assert names == [(name, data.get("status")) for _, name, data in events_of(client, same)]
    assert names[:2] == [("state", "queued"), ("state", "building")]
    assert names[-1] == ("state", "succeeded")
    # What comes next may change it.
    assert planned(client, change(plan, 5.0))["status"] == "succeeded"


def test_nobody_owns_what_has_ended(pool: WorkerPool) -> None:
    settings = Settings(database=IN_MEMORY, shutdown_s=1.0)
    with closing(Store(None)) as store, serving(create_app(settings, pool=pool, store=store)) as client:
        base = base_of(client, 22.0)
        plan = planned(client, change(base, 30.0))
        with store.reading() as connection:
            assert connection.scalar(select(func.count()).select_from(LEASES)) == 0
        assert events_of(client, plan)[-1][1:] == ("state", {"status": "succeeded"})
        assert client.delete(plan["links"]["self"]).status_code == 204


def test_what_takes_longer_is_stored_as_any_other_and_goes_on(
    client: httpx.Client, submitted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stands_in(near_tasks.slow_task, monkeypatch)
    base = base_of(client, 23.0)
    submitted.clear()
    answer = post(client, "/v1/plans", change(base, 31.0), Prefer="wait=50")
    plan = answer.json()
    assert (answer.status_code, plan["status"], submitted) == (200, "succeeded", [name_of(near_tasks.slow_task)])
    assert alike(as_ever(client, plan)) == alike(plan)
    assert plan["timings"]["total_ms"] >= 1000


def test_it_can_be_seen_and_canceled_meanwhile(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(near_tasks.hanging_task, monkeypatch)
    base = base_of(client, 24.0)
    answer = post(client, "/v1/plans", change(base, 32.0), Prefer="wait=1")
    assert answer.status_code == 202
    plan = answer.json()
    assert plan["status"] == "building"
    assert client.get("/v1/plans?status=building").json()["plans"][0]["id"] == plan["id"]
    assert canceled(client, plan)["status"] == "canceled"


def test_who_does_not_wait_is_answered_before_it_is_planned(client: httpx.Client, submitted: list[str]) -> None:
    base = base_of(client, 25.0)
    submitted.clear()
    answer = post(client, "/v1/plans", change(base, 33.0))
    assert answer.status_code == 202
    until(client, answer.headers["location"], lambda plan: plan["status"] == "succeeded")
    assert submitted == [READ_PLAN, PLAN_TASK]


@pytest.mark.parametrize("task", [near_tasks.deaf_task, near_tasks.dying_task])
def test_a_worker_that_does_not_come_to_read_it_leaves_it_to_others(
    client: httpx.Client, submitted: list[str], monkeypatch: pytest.MonkeyPatch, task: Callable[..., Any]
) -> None:
    stands_in(task, monkeypatch)
    if task is near_tasks.deaf_task:
        monkeypatch.setattr(near, "NEAR_S", 0.05)
    base = base_of(client, 26.0)
    submitted.clear()
    plan = planned(client, change(base, 34.0))
    assert plan["status"] == "succeeded"
    assert submitted[0] == name_of(task)
    assert submitted[-1] == PLAN_TASK


def test_a_worker_that_dies_behind_the_word_that_it_is_read_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(near_tasks.dying_once_task, monkeypatch)
    settings = SETTINGS.model_copy(update={"workers": 1})
    with serving(create_app(settings)) as client:
        base = base_of(client)
        request = change(base, 35.0)
        plan = planned(client, request)
        near_tasks.mark_of(json_text(request)).unlink()
        assert alike(as_ever(client, plan)) == alike(plan)
        assert len(client.get("/v1/plans").json()["plans"]) == 3


def test_a_bug_behind_reading_fails_the_plan(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(near_tasks.broken_task, monkeypatch)
    base = base_of(client, 27.0)
    plan = planned(client, change(base, 36.0))
    assert (plan["status"], plan["failure"]["code"]) == ("failed", "internal_error")
    assert "a bug" in plan["failure"]["detail"]
    assert client.get(plan["links"]["self"]).json() == plan


def test_an_end_that_cannot_be_made_is_told_to_its_client_alone(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    base = base_of(client, 20.0)
    monkeypatch.setattr(RunningPlan, "ended_by", broken)
    # Not those of which the worker has told before, on a busy machine.
    answers = (
        post(client, "/v1/plans", change(base, 40.0 + k), Prefer="wait=50", Connection="close") for k in range(100)
    )
    failed = next(answer for answer in answers if answer.status_code != 200)
    assert (failed.status_code, failed.json()["code"]) == (500, "internal_error")
    monkeypatch.undo()
    assert planned(client, change(base, 41.0))["status"] == "succeeded"


def test_what_is_heard_while_a_plan_is_taken_over_comes_behind_its_beginning() -> None:
    class Telling(Ticket):
        """Whose worker has told of progress before, and tells again as soon as somebody listens."""

        def done_callback(self, function: Callable[[Ticket], None]) -> None:
            del function
            self._advance(Progress(elapsed_s=0.2, objective=4.0, bound=1.0))

    def unwanted(*_: Any) -> None:
        raise AssertionError("it has not ended")

    plan = RunningPlan(RECORD, cast("PlanRequest", None), cast("WorkerPool", None), 1.0, unwanted)
    ticket = Telling(1, READ_AND_PLAN, b"", 5.0, None, None)
    ticket._begin()
    ticket._advance(Progress(elapsed_s=0.1, objective=5.0, bound=1.0))
    plan.go_on(ticket)
    told = [event.data.get("status", event.data.get("objective")) for event in plan.events.after(0)]
    assert told == ["queued", "building", "solving", 5.0, 4.0]


def test_faults_and_keys_are_those_of_other_requests(client: httpx.Client, submitted: list[str]) -> None:
    base = base_of(client, 28.0)
    submitted.clear()
    wrong = change(base, -1.0)
    near_, other = (post(client, "/v1/plans", wrong, **how).json() for how in ({"Prefer": "wait=50"}, {}))
    assert (submitted[0], READ_AND_PLAN in submitted[1:]) == (READ_AND_PLAN, False)
    assert near_["errors"] == other["errors"] != []
    request = change(base, 37.0)
    first = post(client, "/v1/plans", request, Idempotency_Key="near-1", Prefer="wait=50").json()
    again = post(client, "/v1/plans", request, Idempotency_Key="near-1", Prefer="wait=50").json()
    assert again == first
    odd = post(client, "/v1/plans", change(base, 38.0), Idempotency_Key="near-1", Prefer="wait=50")
    assert (odd.status_code, odd.json()["code"]) == (409, "idempotency_conflict")
    assert sum(each["id"] == first["id"] for each in client.get("/v1/plans").json()["plans"]) == 1


def test_what_is_refused_is_not_stored(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise QueueFullError("as many wait as may")

    with serving(create_app(SETTINGS, pool=pool)) as client:
        base = base_of(client, 29.0)
        monkeypatch.setattr("api.plans.service.refuse_too_many", refuse)
        answer = post(client, "/v1/plans", change(base, 39.0), Prefer="wait=50")
        assert (answer.status_code, answer.json()["code"]) == (429, "queue_full")
        assert [plan["id"] for plan in client.get("/v1/plans").json()["plans"]] == [base["id"]]
