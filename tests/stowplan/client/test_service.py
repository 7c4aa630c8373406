"""The client against the running service: what it does, and what it survives."""

import asyncio
import inspect
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

import api.plans.run
from api.app import create_app
from api.common.settings import Settings
from api.openapi import PATH
from api.schemas.comparison import ComparisonStatus
from api.schemas.forecast_answer import ForecasterStatus
from api.schemas.plan import PlanStatus
from api.schemas.replay_answer import ReplayStatus
from solver.pool import WorkerPool
from stowplan.client import AsyncClient, Client, Event, NotFinalError, ProblemError, Retries, UnreachableError, records
from stowplan.client import documents as d
from stowplan.client.client import _Operations
from stowplan.client.group import UNFINISHED, Group
from stowplan.client.operation import Listing, Operation
from stowplan.client.steps import Listen, Request
from tests.api import tasks
from tests.api.replay_requests import replay_request
from tests.api.requests import arnold_request, sia_request, table_job
from tests.api.serving import NO_CERTIFICATES, serving
from tests.stowplan.client.conftest import QUICK
from tests.stowplan.client.lossy import Lossy

# Not for programs: pages to look at, and what monitors ask.
LEFT_OUT = {"GET /", "GET /healthz", "GET /metrics"}


def body(**fields: Any) -> d.PlanBody:
    return cast("d.PlanBody", sia_request(**fields))


def test_every_operation_of_the_api_is_there_and_no_other() -> None:
    def drawn(operation: str) -> str:
        """Pictures come in two formats; some operations have one of them."""
        return operation.replace("{picture}", "svg")

    described = {
        drawn(f"{method.upper()} {path}")
        for path, methods in json.loads(PATH.read_text())["paths"].items()
        for method in methods
    }
    groups = vars(_Operations(cast("Any", None), None)).values()
    asked = {drawn(first_request(group, found)) for group in groups for found in operations(group)}
    assert described - asked == LEFT_OUT
    assert asked <= described


def operations(group: Group[Any]) -> list[Any]:
    return [found for found in vars(type(group)).values() if isinstance(found, (Operation, Listing))]


def first_request(group: Group[Any], found: Any) -> str:
    """Method and path of the first request of an operation."""
    parameters = list(inspect.signature(found.steps).parameters.values())[1:]
    words = [{} if p.name == "body" else "x" for p in parameters if p.default is inspect.Parameter.empty]
    step = next(found.steps(group, *words))
    asked = step.request if isinstance(step, Listen) else step
    assert isinstance(asked, Request)
    return f"{asked.method} {asked.template}"


def test_what_is_final_is_known_of_every_status() -> None:
    kinds = (PlanStatus, ComparisonStatus, ReplayStatus, ForecasterStatus)
    statuses = [status for kind in kinds for status in kind]
    assert {status.value for status in statuses if not status.final} == UNFINISHED


def test_a_plan_from_request_to_records(client: Client) -> None:
    plan = client.plans.solve(body(jobs=[table_job(f"j{k}") for k in range(9)]), timeout_s=120)
    assert plan["status"] == "succeeded"
    assert client.plans.get(plan["id"]) == plan
    assert client.plans.input(plan["id"])["policy"] == "sia"
    assert "<svg" in client.plans.figure(plan["id"])
    assert client.plans.model(plan["id"]).startswith("NAME")
    rows = records.job_records(plan)
    assert sorted(row["job_id"] for row in rows) == [f"j{k}" for k in range(9)]
    assert all(not isinstance(value, (dict, list)) for row in rows for value in row.values())
    left = [row for row in rows if not row["placed"]]
    assert left
    assert all(row["reason"] and row["remedy"] for row in left)
    assert len(records.gpu_records(plan)) == sum(row["num_gpus"] for row in rows if row["placed"]) == 8
    assert sum(row["value"] for row in records.term_records(plan)) == pytest.approx(plan["objective"])
    events = list(client.plans.events(plan["id"]))
    assert events[-1].data["status"] == "succeeded"
    assert list(client.plans.events(plan["id"], after=events[0].id)) == events[1:]
    assert [row["id"] for row in records.event_records(events)] == [event.id for event in events]


def test_the_same_awaited(url: str) -> None:
    async def several() -> tuple[list[d.PlanDoc], list[Event], list[str]]:
        async with AsyncClient(url, retries=QUICK, verify=NO_CERTIFICATES) as client:
            bodies = [body(options={"seed": seed}) for seed in range(3)]
            plans = await asyncio.gather(*(client.plans.solve(each, timeout_s=120) for each in bodies))
            events = [event async for event in client.plans.events(plans[0]["id"])]
            listed = [plan["id"] async for plan in client.plans.list(status=["succeeded"])]
            with pytest.raises(ProblemError, match="plan-none"):
                await client.plans.get("plan-none")
            return plans, events, listed

    plans, events, listed = asyncio.run(several())
    assert [plan["status"] for plan in plans] == ["succeeded"] * 3
    assert events[-1].data["status"] == "succeeded"
    assert {plan["id"] for plan in plans} <= set(listed)


def test_problems_say_what_and_where(client: Client) -> None:
    wrong = sia_request()
    wrong["snapshot"]["cluster"]["nodes"][1]["gpu_type"] = "b"
    with pytest.raises(ProblemError) as found:
        client.plans.create(cast("d.PlanBody", wrong))
    problem = found.value
    assert (problem.status, problem.code) == (422, "invalid_input")
    assert problem.pointer == "/snapshot/cluster/nodes/1/gpu_type"
    assert problem.pointer in str(problem)
    assert problem.request_id
    assert not client.plans.validate(cast("d.PlanBody", wrong))["valid"]


def test_pages_are_asked_for_as_they_are_wanted(client: Client, url: str) -> None:
    transport = Lossy(url)
    names = [f"paged-{k:02}" for k in range(21)]
    for name in names:
        client.clusters.put(name, cast("d.ClusterDoc", sia_request()["snapshot"]["cluster"]))
    with Client(url, retries=QUICK, transport=transport) as other:
        listed = other.clusters.list()
        assert next(listed)["name"]
        assert len(transport.seen) == 1
        assert set(names) - {"paged-00"} <= {cluster["name"] for cluster in listed}
        assert len(transport.seen) > 1
    assert client.clusters.get("paged-03")["version"] == 1
    with pytest.raises(ProblemError) as found:
        client.clusters.put("paged-03", client.clusters.get("paged-03")["cluster"], version=7)
    assert found.value.status == 412
    for name in names:
        client.clusters.delete(name)


def test_what_if_waits_for_all_variants(client: Client) -> None:
    base = client.plans.solve(body(), timeout_s=120)
    asked: d.WhatIfBody = {"variants": [{"name": "n0 drained", "drain": ["n0"]}, {"name": "more", "jobs": {"j0": {}}}]}
    answer = client.plans.what_if(base["id"], asked, timeout_s=120)
    rows = records.variant_records(answer)
    assert [(row["variant"], row["status"]) for row in rows] == [("n0 drained", "succeeded"), ("more", "succeeded")]
    assert all("num_changed" in row for row in rows)
    changed = answer["variants"][0]["plan"]
    assert changed is not None
    assert not client.plans.difference(base["id"], changed["id"])["same"]


def test_comparisons_3d_plans_and_replays(client: Client) -> None:
    asked = cast("d.ComparisonBody", sia_request(solvers=["highs"]))
    comparison = client.comparisons.wait(client.comparisons.create(asked)["id"], timeout_s=120)
    assert [row["proven_optimal"] for row in records.solver_records(comparison)] == [True]
    wanted: Any = {"job": {"model": "opt-125m", "global_batch": 32}, "gpus": [{"gpu_type": "h100", "counts": [1, 2]}]}
    points = records.point_records(client.parallel_plans.create(wanted))
    assert {row["num_gpus"] for row in points} == {1, 2}
    replays = client.replays.create(cast("d.ReplayBody", replay_request()))
    assert [event.name for event in client.replays.events(replays["id"])][-1] == "state"
    rows = records.replay_records(client.replays.wait(replays["id"], timeout_s=120))
    assert all(row["figures.num_finished"] > 0 for row in rows)
    assert client.replays.report(replays["id"])["replays"]


def test_a_wait_has_a_limit_and_says_how_far_it_is(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.plans.run, "PLAN_TASK", f"{tasks.__name__}:hanging_task")
    plan = client.plans.create(body())
    with pytest.raises(NotFinalError) as found:
        client.plans.wait(plan["id"], timeout_s=0.0)
    assert found.value.document["id"] == plan["id"]
    assert client.plans.cancel(plan["id"], wait_s=50)["status"] == "canceled"


def test_a_lost_answer_is_asked_for_again_with_the_same_key_and_nothing_is_done_twice(url: str) -> None:
    transport = Lossy(url)
    with Client(url, retries=QUICK, transport=transport) as client:
        transport.lose_answers = 2
        plan = client.plans.create(body())
        keys = [request.headers["Idempotency-Key"] for request in transport.seen]
        assert len(keys) == 3
        assert len(set(keys)) == 1
        assert len({request.content for request in transport.seen}) == 1
        # Each of the three has reached the service.
        newest = [found["id"] for _, found in zip(range(2), client.plans.list(), strict=False)]
        assert newest[0] == plan["id"]
        client.plans.wait(plan["id"], timeout_s=120)
        transport.lose_answers = 1
        client.plans.delete(plan["id"])
        transport.lose_answers = QUICK.attempts
        with pytest.raises(UnreachableError, match="tried 5 times") as found:
            client.plans.create(body())
        again = client.plans.create(body(), key=found.value.idempotency_key)
        assert again["id"] not in newest


def test_streams_that_break_go_on_behind_the_last_event(url: str) -> None:
    transport = Lossy(url)
    with Client(url, retries=QUICK, transport=transport) as client:
        plan = client.plans.solve(cast("d.PlanBody", arnold_request()), timeout_s=120)
        whole = list(client.plans.events(plan["id"]))
        assert len(whole) >= 3
        transport.seen.clear()
        transport.cut_streams = 2
        assert list(client.plans.events(plan["id"])) == whole
        last_ids = [int(request.headers["Last-Event-ID"]) for request in transport.seen]
        assert last_ids[0] == 0
        assert last_ids == sorted(last_ids)
        assert last_ids[-1] == whole[-1].id


def test_a_service_that_is_restarted_between_attempts_is_the_same_service(tmp_path: Path, pool: WorkerPool) -> None:
    """It goes down behind the first attempt, whose answer is lost; the next finds nobody, the third its successor."""
    settings = Settings(database=str(tmp_path / "plans.sqlite"), shutdown_s=2.0, heartbeat_s=0.2)
    nobody = "http://127.0.0.1:9"
    with ExitStack() as services:
        first = services.enter_context(serving(create_app(settings, pool=pool)))
        transport = Lossy(str(first.base_url))

        def stop() -> None:
            services.close()
            transport.url = httpx.URL(nobody)

        def start() -> None:
            if len(transport.seen) == 3:
                transport.url = services.enter_context(serving(create_app(settings, pool=pool))).base_url

        transport.lose_answers, transport.when_lost, transport.before = 1, stop, start
        with Client(str(first.base_url), retries=QUICK, transport=transport) as client:
            plan = client.plans.solve(body(), key="mine", timeout_s=120)
            assert [str(request.url.port) for request in transport.seen[:2]] != ["9", "9"]
            assert transport.seen[1].url.port == 9
            assert plan["status"] in {"succeeded", "interrupted"}
            assert [found["id"] for found in client.plans.list()] == [plan["id"]]
            assert client.plans.create(body(), key="mine")["id"] == plan["id"]
            with pytest.raises(ProblemError) as found:
                client.plans.create(body(options={"seed": 9}), key="mine")
            assert found.value.status == 409


def test_nobody_there_is_said(url: str) -> None:
    with (
        Client("http://127.0.0.1:9", retries=Retries(attempts=1), verify=NO_CERTIFICATES) as client,
        pytest.raises(UnreachableError, match=r"GET /v1/plans/x: tried once: ConnectError"),
    ):
        client.plans.get("x")
    with Client(url, verify=NO_CERTIFICATES) as client:
        assert client.service.policies()["policies"]
