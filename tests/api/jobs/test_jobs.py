"""Measurements over HTTP: what is kept, what is refused, what comes of it."""

import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.jobs.checks import CLOCK_TOLERANCE_S
from api.schemas.metrics import MAX_RECORDS, StepRecordDoc
from executor.metrics import StepMetrics
from solver.pool import WorkerPool
from tests.api.asking import post
from tests.api.conftest import SETTINGS
from tests.api.measurements import LAUNCH, batch_of, record_of, run_of
from tests.api.requests import Json, changed
from tests.api.serving import serving

NUM_RECORDS = 20


@pytest.fixture
def jobs(pool: WorkerPool, lasting: Path | str) -> Iterator[httpx.Client]:
    """A service of one's own, with a database that lasts."""
    with serving(create_app(SETTINGS.model_copy(update={"database": str(lasting)}), pool=pool)) as client:
        yield client


def sent(client: httpx.Client, job: str, body: Json) -> tuple[int, int]:
    """Accepted and duplicate records of a batch."""
    answer = post(client, f"/v1/jobs/{job}/metrics", body)
    assert answer.status_code == 200, answer.text
    return answer.json()["accepted"], answer.json()["duplicates"]


def faults(client: httpx.Client, job: str, body: Json) -> list[tuple[str, str]]:
    """(code, pointer) of a batch that is refused."""
    answer = post(client, f"/v1/jobs/{job}/metrics", body)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return [(issue["code"], issue["pointer"]) for issue in answer.json()["errors"]]


def test_the_document_is_what_ranks_write() -> None:
    assert set(StepRecordDoc.model_fields) == {field.name for field in fields(StepMetrics)}


def test_every_step_is_kept_once(jobs: httpx.Client) -> None:
    body = batch_of()
    assert sent(jobs, "llm", body) == (NUM_RECORDS, 0)
    assert sent(jobs, "llm", body) == (0, NUM_RECORDS)
    # Once a launch is known, what it runs need not be said again; a batch may hold old and new, and one thing twice.
    more = [*body["records"][-2:], record_of(0, 11), record_of(0, 11), record_of(1, 11)]
    assert sent(jobs, "llm", {"records": more}) == (2, 3)
    # The same step of another launch, or of another job, is another step.
    assert sent(jobs, "llm", batch_of(launch=LAUNCH + 1)) == (NUM_RECORDS, 0)
    assert sent(jobs, "other", body) == (NUM_RECORDS, 0)
    performance = jobs.get("/v1/jobs/llm/performance").json()
    assert performance["num_records"] == 2 * NUM_RECORDS + 2


def test_steps_are_listed_from_the_newest_on(jobs: httpx.Client) -> None:
    sent(jobs, "team/llm", batch_of(3))
    sent(jobs, "team/llm", batch_of(2, pp=1, dp=2, launch=LAUNCH + 5000, first=4))
    path: str | None = "/v1/jobs/team%2Fllm/metrics?limit=2"
    pages = []
    while path is not None:
        page = jobs.get(path).json()
        pages.append([(step["launch"], step["step"]) for step in page["steps"]])
        path = page["next"]
    assert pages == [[(LAUNCH + 5000, 5), (LAUNCH + 5000, 4)], [(LAUNCH, 3), (LAUNCH, 2)], [(LAUNCH, 1)]]
    (step,) = jobs.get("/v1/jobs/team%2Fllm/metrics?limit=1").json()["steps"]
    assert step["num_ranks"] == 2
    assert step["loss"] == pytest.approx(6.5)
    assert step["reduction_s"] == pytest.approx(0.01)
    assert step["peak_memory_bytes"] == 700_000_001
    assert step["started_at"].startswith(time.strftime("%Y-%m-%dT%H:", time.gmtime(LAUNCH / 1e3)))


BODY = batch_of(4)
FUTURE_S = time.time() + 3600
CASES: list[tuple[str, str, Any, str, str]] = [
    # name, where the batch is changed, to what, expected code, expected pointer ("": where it was changed)
    ("unknown field", "/records/3/foward_s", 0.1, "unknown_field", ""),
    ("unknown field of the batch", "/record", [], "unknown_field", ""),
    ("missing field", "/records/0", {"launch": LAUNCH, "rank": 0}, "missing_field", "/records/0/step"),
    ("text for a number", "/records/1/step_s", "0.3", "wrong_type", ""),
    ("truth for a number", "/records/1/loss", True, "wrong_type", ""),
    ("fraction for a count", "/records/1/step", 1.5, "wrong_type", ""),
    ("negative time", "/records/3/forward_s", -0.1, "not_positive", ""),
    ("negative wait", "/records/3/receive_s", -1e-9, "negative", ""),
    ("step of no time", "/records/3/step_s", 0.0, "not_positive", ""),
    ("nan", "/records/2/backward_s", float("nan"), "not_finite", ""),
    ("infinity", "/records/2/large_gradient_square", float("inf"), "not_finite", ""),
    ("nan for the loss", "/records/2/loss", float("nan"), "not_finite", ""),
    ("step zero", "/records/2/step", 0, "not_positive", ""),
    ("rank outside the plan", "/records/5/rank", 2, "other_plan", ""),
    ("coordinate of another rank", "/records/5/pipe", 0, "other_plan", ""),
    ("micro-batches of another plan", "/records/5/num_micro_batches", 4, "other_plan", ""),
    ("batch of another plan", "/records/5/large_batch", 16, "other_plan", ""),
    ("replicas of another plan", "/records/5/small_batch", 4, "other_plan", ""),
    ("tokens of another model", "/records/5/tokens", 1, "other_plan", ""),
    ("launch that nobody announced", "/records/5/launch", LAUNCH - 1, "unknown_launch", ""),
    ("step in the future", "/records/5/started_at_s", FUTURE_S, "in_the_future", ""),
    ("step beyond the calendar", "/records/5/started_at_s", 1e12, "in_the_future", ""),
    ("clock that is none", "/records/5/started_at_s", 12.5, "before_launch", ""),
    ("parts that exceed the step", "/records/5/backward_s", 3.0, "parts_exceed_step", "/records/5/step_s"),
    ("host with a line break", "/records/5/host", "a\nb", "wrong_format", ""),
    ("launch before the epoch", "/run/launch", 0, "not_positive", ""),
    ("unknown device", "/run/device", "tpu", "unknown_value", ""),
    ("unknown field of the run", "/run/job", {}, "unknown_field", ""),
    ("unknown model", "/run/transformer/model", "gpt-9", "unknown_model", ""),
    ("heads that do not divide", "/run/transformer/num_heads", 7, "heads_not_divisible", ""),
    ("layers of another model", "/run/transformer/num_layers", 8, "layers", "/run/plan/stages"),
    ("batch of another model", "/run/transformer/global_batch", 16, "global_batch", "/run/plan/num_micro_batches"),
    ("stage without layers", "/run/plan/stages/0/num_layers", 0, "not_positive", ""),
    ("gpu used twice", "/run/plan/stages/1/replicas/0/gpus", [0], "gpu_taken_twice", ""),
    ("node that the cluster lacks", "/run/plan/stages/1/replicas/0/node", "n7", "unknown_node", ""),
    ("gpu that the node lacks", "/run/plan/stages/1/replicas/0/gpus", [5], "gpu_not_free", ""),
    ("type that the node is not of", "/run/plan/stages/1/replicas/0/gpu_type", "a100", "gpu_type", ""),
    ("node of no known type", "/run/cluster/nodes/0/gpu_type", "a100", "unknown_gpu_type", ""),
]


@pytest.mark.parametrize(
    ("pointer", "value", "code", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_wrong_batches_are_refused_as_a_whole(
    client: httpx.Client, pointer: str, value: Any, code: str, expected: str
) -> None:
    job = f"refused {pointer} {value}".replace("\n", "")[:200]
    wrong = changed(BODY, pointer, value)
    assert (code, expected or pointer) in faults(client, job, wrong)
    assert client.get(f"/v1/jobs/{job}/performance").status_code == 404
    assert client.get(f"/v1/jobs/{job}/metrics").status_code == 404


def test_one_fault_keeps_the_whole_batch_out(jobs: httpx.Client) -> None:
    sent(jobs, "llm", batch_of(2))
    wrong = {"records": [record_of(0, 3), record_of(1, 3, forward_s=-1.0), record_of(0, 4)]}
    assert faults(jobs, "llm", wrong) == [("not_positive", "/records/1/forward_s")]
    late = {"records": [record_of(0, 3), record_of(1, 3, started_at_s=time.time() + 2 * CLOCK_TOLERANCE_S)]}
    answer = post(jobs, "/v1/jobs/llm/metrics", late)
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == "/records/1/started_at_s"
    # Whoever has a wrong clock learns what the right one says.
    assert f"the service's clock says {time.strftime('%Y-%m-%dT%H:', time.gmtime())}" in fault["detail"]
    assert jobs.get("/v1/jobs/llm/performance").json()["num_records"] == 4


def test_a_launch_keeps_its_plan(jobs: httpx.Client) -> None:
    sent(jobs, "llm", batch_of(2))
    assert faults(jobs, "llm", {**batch_of(1, pp=1, dp=2), "run": run_of(1, 2)}) == [("other_run", "/run")]
    assert faults(jobs, "llm", {"records": [record_of(0, 1, launch=LAUNCH + 7)]}) == [
        ("unknown_launch", "/records/0/launch")
    ]
    assert sent(jobs, "llm", batch_of(3)) == (2, 4)


def test_steps_of_replicas_that_share_are_refused(client: httpx.Client) -> None:
    body = changed(batch_of(2, pp=1, dp=2), "/run/plan/context_parallel", 2)
    assert ("context_parallel", "/run/plan/context_parallel") in faults(client, "shared", body)


def test_what_is_no_batch_is_refused(client: httpx.Client) -> None:
    path = "/v1/jobs/llm/metrics"
    assert client.post(path, content=b"{", headers={"Content-Type": "application/json"}).status_code == 400
    assert client.post(path, content=b"{}").status_code == 415
    assert client.put(path, content=b"{}", headers={"Content-Type": "application/json"}).status_code == 405
    assert post(client, "/v1/jobs/llm/metrics", {"records": []}).status_code == 422
    assert faults(client, "llm", {"records": [record_of(0, 1)] * (MAX_RECORDS + 1)}) == [("wrong_length", "/records")]
    assert post(client, f"/v1/jobs/{'x' * 300}/metrics", BODY).status_code == 422
    assert client.get("/v1/jobs/llm/metrics?before=7").status_code == 422
    assert client.get("/v1/jobs/nobody/performance").json()["code"] == "not_found"


def test_performance_compares_measured_and_predicted(jobs: httpx.Client) -> None:
    sent(jobs, "llm", batch_of(10))
    found = jobs.get("/v1/jobs/llm/performance").json()
    (run,) = found["runs"]
    assert (run["launch"], run["notation"], run["device"]) == (LAUNCH, "PP2 DP1 TP1 (2+2 layers, 2 x 4)", "cpu")
    assert (run["num_steps"], run["used"], run["measured_s"]) == (7, True, pytest.approx(0.3))
    # Two stages of 0.12 s per micro-batch: 0.24 s to fill, 0.12 s for the second one, 0.02 s for the optimiser. The
    # middle of the stages stands for both, as the last one holds the head.
    assert run["calibrated_s"] == pytest.approx(0.38, rel=0.2)
    assert run["white_box_s"] < 0.1
    assert found["calibrated_error"] < found["white_box_error"]
    coefficients = found["calibration"]["gpus"]["cpu"]
    # That of large layers: of these small ones it is 2.
    assert coefficients["backward_ratio"] == pytest.approx(2.0, rel=0.15)
    assert (found["num_steps"], found["performance"]) == (7, None)
    assert found["measured_since"] < found["measured_until"]
    assert found["calibration"]["measured_at_s"] == pytest.approx(LAUNCH / 1e3 + 10.3)


def test_data_parallel_launches_tell_sia_and_noise(jobs: httpx.Client) -> None:
    sent(jobs, "llm", batch_of(10, pp=1, dp=2))
    found = jobs.get("/v1/jobs/llm/performance").json()["performance"]
    assert found["batch"] == {"initial": 8, "maximum": 8}
    # |G|^2 = (8 x 2 - 4 x 3) / 4 = 1, S = (3 - 2) / (1/4 - 1/8) = 8, and over 8 sequences 1.
    assert found["gradient"] == {"squared_norm": pytest.approx(1.0), "variance": pytest.approx(1.0)}
    (point,) = found["observations"]
    # (0.3 - 0.01) / 2 micro-batches, and 0.01 of synchronisation.
    assert point["step_time_s"] == pytest.approx(0.155)
    assert point["sync_time_s"] == pytest.approx(0.01)
    assert (point["num_replicas"], point["num_nodes"], point["local_batch"]) == (2, 1, 2)


def test_too_few_steps_are_said(jobs: httpx.Client) -> None:
    sent(jobs, "llm", batch_of(4))
    found = jobs.get("/v1/jobs/llm/performance").json()
    assert found["calibration"] is found["calibrated_error"] is None
    assert found["runs"][0]["detail"] == "has fewer than 3 steps of all ranks behind the first 3"
    sent(jobs, "llm", batch_of(10))
    assert jobs.get("/v1/jobs/llm/performance").json()["calibration"] is not None


def test_a_restart_keeps_everything(pool: WorkerPool, lasting: Path | str) -> None:
    settings = SETTINGS.model_copy(update={"database": str(lasting)})
    with serving(create_app(settings, pool=pool)) as client:
        sent(client, "llm", batch_of(10))
        before = client.get("/v1/jobs/llm/performance").json(), client.get("/v1/jobs/llm/metrics").json()
    with serving(create_app(settings, pool=pool)) as client:
        assert (client.get("/v1/jobs/llm/performance").json(), client.get("/v1/jobs/llm/metrics").json()) == before
        assert sent(client, "llm", {"records": [record_of(0, 10), record_of(0, 11)]}) == (1, 1)
