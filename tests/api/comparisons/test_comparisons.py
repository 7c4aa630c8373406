"""Several solvers on one instance over HTTP. Every solver has a fresh worker, so few tests run many, and several look
at one comparison.
"""

import logging
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

import api.comparisons.race
from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.comparisons.race import SolverComparison
from api.convert.comparison import run_document
from api.convert.request import check_request
from api.convert.snapshot import snapshot_from_document
from api.figures.comparison import render
from api.figures.picture_format import PictureFormat
from api.figures.request import ComparisonFigure
from api.schemas.comparison import ComparisonDoc, ComparisonStatus
from api.schemas.plan import OutcomeDoc
from api.schemas.request import PLAN_BODY
from api.schemas.snapshot import SnapshotDoc
from api.store.database import Store
from api.store.keys import RequestKey
from api.store.leases import live
from models.comparison import RunFailure, SolverRun
from solver.pool import WorkerPool
from solver.registry import SOLVER_NAMES
from solver.result import Limit
from solver.ticket import Ticket
from tests.api import comparison_tasks
from tests.api.asking import PNG, planned, post, refused, until, waited
from tests.api.conftest import SETTINGS
from tests.api.postgresql import Server
from tests.api.requests import Json, arnold_request, changed, sia_request
from tests.api.serving import serving
from tests.api.warm import WarmPool

pytestmark = pytest.mark.slow

PATH = "/v1/solver-comparisons"
WAIT_S = 120.0
WorksAs = Callable[[Callable[..., Any]], None]


def work_as(task: Callable[..., Any], patched: pytest.MonkeyPatch) -> None:
    patched.setattr(api.comparisons.race, "RUN_TASK", f"{comparison_tasks.__name__}:{task.__name__}")


@pytest.fixture
def warm(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Solvers that are compared share the workers of plans."""
    monkeypatch.setattr(api.comparisons.race, "WorkerPool", lambda **_: WarmPool(pool))


@pytest.fixture
def works_as(warm: None, monkeypatch: pytest.MonkeyPatch) -> WorksAs:  # noqa: ARG001 - no stand-in here dies
    """Have warm workers run a stand-in for a solver."""
    return lambda task: work_as(task, monkeypatch)


def body(*solvers: str, **fields: Any) -> Json:
    return {**sia_request(), "solvers": list(solvers), **fields}


def compared(client: httpx.Client, request: Json) -> Json:
    answer = waited(client, post(client, PATH, request, Prefer="wait=50"))
    document: Json = answer.json()
    ComparisonDoc.model_validate_json(answer.text)
    return document


@pytest.fixture(scope="module")
def survived(pool: WorkerPool, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, Json]:
    """A comparison in which SCIP dies and HiGHS hangs, and the settings of the service that held it."""
    database = tmp_path_factory.mktemp("survived") / "plans.sqlite"
    settings = Settings(database=str(database), deadline_slack_s=2.0)
    with pytest.MonkeyPatch.context() as patched:
        work_as(comparison_tasks.dying_task, patched)
        # The deadline is short, so what they need is loaded before, and nothing else.
        reads = "api.reading.packed"
        loaded = (comparison_tasks.__name__, reads, "models.allocation.sia.formulation", "solver.backends.scip")
        patched.setattr(api.comparisons.race, "_preload", lambda _: loaded)
        with serving(create_app(settings, pool=pool)) as client:
            result = compared(client, body("scip", "highs", "auto", options={"time_limit_s": 0.5}))
    return settings, result


def test_solvers_agree_on_the_running_example(client: httpx.Client) -> None:
    # Sia Table 1: the optimum is 8.
    request = client.get("/v1/examples/sia-paper-table1").json()
    result = compared(client, {**request, "solvers": ["auto", "highs", "scip"]})
    assert result["status"] == "succeeded"
    assert result["agreement"] == {
        "agree": True,
        "num_proven": 3,
        "statement": "all 3 proven answers agree (auto, highs, scip)",
        "errors": [],
    }
    assert [run["solver"] for run in result["runs"]] == ["auto", "highs", "scip"]
    for run in result["runs"]:
        assert run["objective"] == pytest.approx(8.0)
        assert run["bound"] == pytest.approx(8.0)
        assert run["verified"]
        assert run["proven_optimal"]
        assert "proven optimal" in run["certificate"]
        assert set(run["phases_ms"]) == {"validate", "performance", "build", "solve", "place", "verify"}
        assert set(run["phases_cpu_ms"]) == set(run["phases_ms"])
        assert run["total_ms"] == pytest.approx(sum(run["phases_ms"].values()))
        assert 10**7 < run["peak_memory_bytes"] < 10**10
        assert run["size"]["num_columns"] > 0
        assert run["first_incumbent_ms"] > 0
        elapsed = [point["elapsed_ms"] for point in run["history"]]
        assert elapsed == sorted(elapsed)
        assert run["history"][-1]["objective"] == pytest.approx(8.0)
        assert run["history"][-1]["bound"] == pytest.approx(8.0)
    assert result["runs"][2]["solver_used"]["name"] == "scip"
    assert result["times"]["queued"] <= result["times"]["running"] <= result["times"]["finished"]
    assert client.get(result["links"]["self"]).json() == result
    figure = client.get(result["links"]["figure"])
    assert figure.headers["content-type"].startswith("image/svg+xml")
    assert "all 3 proven answers agree" in figure.text
    assert client.get(result["links"]["figure_png"]).content.startswith(PNG)
    first, *_ = client.get(PATH).json()["comparisons"]
    assert first == {name: result[name] for name in ("id", "status", "policy", "solvers", "times", "links")}


@pytest.mark.usefixtures("warm")
def test_a_solver_of_another_policy_has_a_row_that_says_so(client: httpx.Client) -> None:
    result = compared(client, body("exact", "highs"))
    assert result["status"] == "succeeded"
    exact, highs = result["runs"]
    assert exact["failure"]["code"] == "invalid_input"
    assert "an algorithm of arnold" in exact["failure"]["detail"]
    assert exact["objective"] is None
    assert not exact["verified"]
    assert highs["proven_optimal"]
    assert result["agreement"]["agree"] is None
    assert result["agreement"]["num_proven"] == 1


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        (("/solvers", ["highs", "gurobi"]), "unknown_value", "/solvers/1"),
        (("/solvers", ["highs", "scip", "highs"]), "listed_twice", "/solvers/2"),
        (("/solvers", []), "wrong_length", "/solvers"),
        (("/options", {"solver": "highs"}), "unknown_field", "/options/solver"),
        (("/options", {"time_limit_s": 0}), "not_positive", "/options/time_limit_s"),
        (("/options", {"time_limit_s": 10_000.0}), "out_of_range", "/options/time_limit_s"),
        (("/parameters", {"fairness_power": 0}), "out_of_range", "/parameters/fairness_power"),
        (("/parameters", {"fairness_powr": 1}), "unknown_field", "/parameters/fairness_powr"),
        (("/parameters", {"fairness_power": float("nan")}), "not_finite", "/parameters/fairness_power"),
        (("/parameters", {"alpha": 0.3}), "unknown_field", "/parameters/alpha"),
        (("/policy", "random"), "unknown_value", "/policy"),
        (("/snapshot/jobs/0/min_gpus", 0), "not_positive", "/snapshot/jobs/0/min_gpus"),
        (("/snapshot/cluster/nodes/0/gpu_type", "b"), "unknown_gpu_type", "/snapshot/cluster/nodes/0/gpu_type"),
    ],
)
def test_wrong_requests_are_refused(client: httpx.Client, change: tuple[str, Any], code: str, pointer: str) -> None:
    answer = post(client, PATH, changed(body("highs", "scip"), *change))
    assert answer.status_code == 422, answer.text
    assert (code, pointer) in [(issue["code"], issue["pointer"]) for issue in answer.json()["errors"]]


def test_the_same_request_under_a_key_is_compared_once(client: httpx.Client) -> None:
    once = body("highs")
    first = waited(client, post(client, PATH, once, Idempotency_Key="k", Prefer="wait=50")).json()
    again = post(client, PATH, once, Idempotency_Key="k")
    assert (again.status_code, again.json()) == (200, first)
    other = post(client, PATH, body("scip"), Idempotency_Key="k")
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_conflict")
    assert client.delete(first["links"]["self"]).status_code == 204
    assert post(client, PATH, once, Idempotency_Key="k").json()["id"] != first["id"]


def test_unknown_solvers_are_answered_with_the_known_ones(client: httpx.Client) -> None:
    (issue,) = post(client, PATH, body("gurobi")).json()["errors"]
    assert all(repr(name) in issue["detail"] for name in SOLVER_NAMES)
    assert "did you mean 'solvers'" in post(client, PATH, {**sia_request(), "solver": ["highs"]}).text


def test_a_solver_that_dies_or_hangs_has_a_row_that_says_so(survived: tuple[Settings, Json]) -> None:
    _, result = survived
    scip, highs, auto = result["runs"]
    assert scip["failure"]["code"] == "worker_died"
    assert "exit code 3" in scip["failure"]["detail"]
    # What it had found is seen, but does not count: nobody checked it.
    assert scip["history"][-1]["objective"] is not None
    assert scip["objective"] is None
    assert highs["failure"]["code"] == "deadline"
    assert auto["proven_optimal"]
    assert result["status"] == "succeeded"


def test_answers_that_contradict_each_other_are_an_error_of_ours(
    client: httpx.Client, works_as: WorksAs, caplog: pytest.LogCaptureFixture
) -> None:
    works_as(comparison_tasks.lying_task)
    with caplog.at_level(logging.ERROR, logger="stowplan.api.comparisons"):
        result = compared(client, body("highs", "scip"))
    assert result["status"] == "failed"
    assert result["failure"]["code"] == "solvers_disagree"
    assert result["agreement"]["agree"] is False
    assert any("scip proved the bound 99" in error for error in result["agreement"]["errors"])
    assert "please report it" in caplog.text
    assert "NOT ALL ANSWERS" in client.get(result["links"]["figure"]).text
    assert client.delete(result["links"]["self"]).status_code == 204
    assert client.get(result["links"]["self"]).status_code == 404
    assert client.delete(result["links"]["self"]).status_code == 404


def test_one_runs_at_a_time_and_few_wait(pool: WorkerPool, works_as: WorksAs) -> None:
    works_as(comparison_tasks.patient_task)
    settings = Settings(database=IN_MEMORY, comparison_queue_size=1, shutdown_s=5.0)
    with serving(create_app(settings, pool=pool)) as client:
        running = post(client, PATH, body("highs", "scip", "auto"))
        assert running.status_code == 202
        assert int(running.headers["retry-after"]) > 0
        waiting = post(client, PATH, body("highs"))
        refused_ = post(client, PATH, body("highs"))
        assert (refused_.status_code, refused_.json()["code"]) == (429, "queue_full")
        assert waiting.json()["status"] == "queued"
        page = client.get(f"{PATH}?limit=1").json()
        assert [known["id"] for known in page["comparisons"]] == [waiting.json()["id"]]
        rest = client.get(page["next"]).json()
        assert [known["id"] for known in rest["comparisons"]] == [running.json()["id"]]
        assert rest["next"] is None
        # A comparison does not keep plans waiting.
        assert planned(client, sia_request())["status"] == "succeeded"
        # Rows are seen as soon as they are there; the second solver runs until it is stopped.
        until(client, running.headers["location"], lambda document: len(document["runs"]) == 1)
        assert client.get(waiting.headers["location"] + "/figure.svg").json()["code"] == "no_outcome"
        assert client.delete(waiting.headers["location"]).status_code == 202
        assert client.get(waiting.headers["location"]).json()["status"] == "canceled"
        assert client.delete(running.headers["location"]).status_code == 202
        final = client.get(running.headers["location"], headers={"Prefer": "wait=50"}).json()
        assert final["status"] == "canceled"
        highs, _, auto = final["runs"]
        assert highs["proven_optimal"]
        assert auto["failure"]["code"] == "canceled"


def test_any_service_reads_and_ends_what_another_one_runs(
    postgresql: Server, pool: WorkerPool, works_as: WorksAs
) -> None:
    works_as(comparison_tasks.patient_task)
    settings = Settings(database=postgresql.database(), shutdown_s=1.0)
    with serving(create_app(settings, pool=pool)) as one, serving(create_app(settings, pool=pool)) as other:
        running = post(one, PATH, body("highs", "scip"), Idempotency_Key="k")
        path = running.headers["location"]
        again = post(other, PATH, body("highs", "scip"), Idempotency_Key="k")
        assert (again.status_code, again.json()["id"]) == (202, running.json()["id"])
        assert other.delete(path).status_code == 202
        final = other.get(path, headers={"Prefer": "wait=50"}).json()
        assert final["status"] == "canceled"
        assert one.get(path).json() == final
        # Where it is over, it goes.
        assert other.delete(path).status_code == 204
        assert one.get(path).status_code == 404


def test_what_a_service_had_that_lives_no_more_is_interrupted_and_what_one_has_that_lives_is_not(
    postgresql: Server,
) -> None:
    url = postgresql.database()
    with closing(Store(url)) as one, closing(Store(url)) as other:
        with one.writing() as connection:
            live(connection, one, 1)
        one.add_comparison("comparison-1", '{"by":"one"}')
        assert other.take_up_comparisons() == []
        other.finish_comparison("comparison-1", "{}", is_interrupted=True)
        assert one.comparison("comparison-1") == '{"by":"one"}'
        with one.writing() as connection:
            connection.execute(text("UPDATE instances SET seen_at_s = seen_at_s - 11"))
        assert other.take_up_comparisons() == ['{"by":"one"}']
        other.finish_comparison("comparison-1", '{"by":"other"}', is_interrupted=True)
        # It was only slow, and comes too late.
        one.finish_comparison("comparison-1", '{"by":"one, late"}', is_interrupted=False)
        assert one.comparison("comparison-1") == '{"by":"other"}'


def test_a_solver_that_is_stopped_keeps_its_best_plan(works_as: WorksAs) -> None:
    works_as(comparison_tasks.patient_task)

    def stop_when_it_has_a_plan(ticket: Ticket) -> Any:
        end_s = time.monotonic() + WAIT_S
        while ticket.last_incumbent is None and time.monotonic() < end_s:
            time.sleep(0.01)
        comparison.stop()
        return ticket.result(WAIT_S)

    read = PLAN_BODY.validate_python(sia_request(), strict=False)
    assert isinstance(read.snapshot, SnapshotDoc)
    request = check_request(read, snapshot_from_document(read.snapshot), SETTINGS).required()
    comparison = SolverComparison(request, 30.0, stop_when_it_has_a_plan)
    scip = comparison.run("scip")
    assert scip.outcome is not None
    assert scip.outcome.limit is Limit.INTERRUPTED
    assert scip.outcome.plan is not None
    late = comparison.run("highs")
    assert late.failure is not None
    assert late.failure.code == "canceled"


def test_a_stop_of_the_service_interrupts_and_keeps(lasting: Path | str, pool: WorkerPool, works_as: WorksAs) -> None:
    works_as(comparison_tasks.patient_task)
    settings = Settings(database=str(lasting), shutdown_s=5.0)
    with serving(create_app(settings, pool=pool)) as client:
        path = post(client, PATH, body("highs", "scip"), Idempotency_Key="k").headers["location"]
        waiting = post(client, PATH, body("highs")).headers["location"]
        until(client, path, lambda document: len(document["runs"]) == 1)
    with serving(create_app(settings, pool=pool)) as client:
        final = client.get(path).json()
        assert final["status"] == "interrupted"
        assert final["failure"]["code"] == "interrupted"
        assert final["runs"][0]["proven_optimal"]
        assert client.get(waiting).json()["status"] == "interrupted"
        again = post(client, PATH, body("highs", "scip"), Idempotency_Key="k")
        assert (again.status_code, again.headers["location"] != path) == (202, True)
        # Whoever asks once more gets that one.
        assert post(client, PATH, body("highs", "scip"), Idempotency_Key="k").json()["id"] == again.json()["id"]


def test_what_a_crash_left_behind_is_interrupted(pool: WorkerPool, survived: tuple[Settings, Json]) -> None:
    settings, known = survived
    store = Store(settings.database_location)
    left = {**known, "id": "comparison-left", "status": "running", "agreement": None}
    key = RequestKey(collection=PATH, key="left", input_hash=known["input_hash"])
    store.add_comparison("comparison-left", ComparisonDoc.model_validate(left, strict=False).model_dump_json(), key)
    store.close()
    with serving(create_app(settings, pool=pool)) as client:
        assert client.get(known["links"]["self"]).json() == known
        assert client.get(f"{PATH}/comparison-left").json()["status"] == ComparisonStatus.INTERRUPTED
    store = Store(settings.database_location)
    assert store.resource_of(key) is None
    store.close()


@pytest.mark.usefixtures("warm")
def test_figures_of_odd_comparisons(client: httpx.Client) -> None:
    """All failed; nothing known of a gap; a name that is not ours."""
    result = ComparisonDoc.model_validate_json(
        client.get(compared(client, body("highs", options={"time_limit_s": 1e-3}))["links"]["self"]).text
    )
    failure = RunFailure(code="worker_died", detail="died <of> & \x07 something " * 20)
    dead = run_document(SolverRun(solver="scip", outcome=None, failure=failure, history=()))
    formats: tuple[tuple[PictureFormat, bytes], ...] = (("svg", b"<?xml"), ("png", b"\x89PNG"))
    for runs in ((dead,), (*result.runs, dead), ()):
        for format_, begin in formats:
            picture = render(ComparisonFigure(result=result.model_copy(update={"runs": runs}), format=format_))
            assert picture.startswith(begin)


def test_plans_take_the_exact_algorithm_where_there_is_one(client: httpx.Client) -> None:
    plan = planned(client, sia_request())
    assert plan["options"]["solver"] == "auto"
    assert plan["solver"]["name"] in ("highs", "decomposition")
    assert plan["certificate"].startswith("proven optimal by ")
    status, issues = refused(client, sia_request(options={"solver": "exact"}))
    assert (status, issues) == (422, [("unknown_value", "/options/solver")])
    assert refused(client, sia_request(options={"solver": "cplex"}))[1] == [("unknown_value", "/options/solver")]
    no_jobs: list[Json] = []
    for solver in ("auto", "exact"):
        for jobs in (arnold_request()["snapshot"]["jobs"], no_jobs):
            arnold = planned(client, changed(arnold_request(options={"solver": solver}), "/snapshot/jobs", jobs))
            assert arnold["proven_optimal"]
            assert arnold["solver"]["name"] == "exact" or not jobs
    # A problem that is not of the decomposition's shape goes to HiGHS.
    other = planned(client, arnold_request(options={"solver": "decomposition"}))
    assert other["solver"]["name"] == "highs"
    assert planned(client, arnold_request(options={"solver": "portfolio"}))["proven_optimal"]


def test_prices_of_an_earlier_plan_are_a_start(client: httpx.Client) -> None:
    request = sia_request()
    first = planned(client, request)
    again = planned(client, changed(request, "/parameters", {"prices": {**first["prices"], "capacity[a]": 0.5}}))
    assert again["objective"] == pytest.approx(first["objective"])
    assert again["proven_optimal"]
    wrong = changed(request, "/parameters", {"prices": {"capacity[a]": -1.0}})
    assert refused(client, wrong) == (422, [("negative", "/parameters/prices/capacity[a]")])


def test_plans_of_earlier_versions_have_no_certificate() -> None:
    earlier = OutcomeDoc.model_validate_json('{"objective": 1.0}')
    assert earlier.certificate is None
    assert earlier.prices == {}
