"""What programs of users tell of their steps, over HTTP."""

from typing import Any

import httpx
import pytest

from tests.api.asking import post
from tests.api.jobs.test_jobs import faults, sent
from tests.api.measurements import LAUNCH, record_of, run_of
from tests.api.requests import Json

STEP_S = 0.02


def told(num_steps: int = 10, first: int = 1, step_s: float = STEP_S, **run: Any) -> Json:
    """Steps of a launch, with what ran."""
    steps = [step_of(step, step_s=step_s) for step in range(first, first + num_steps)]
    return {"run": run_of(own_program=True, **run), "steps": steps}


def step_of(step: int, **fields: Any) -> Json:
    line = {
        "launch": LAUNCH,
        "step": step,
        "started_at_s": LAUNCH / 1e3 + step,
        "step_s": STEP_S,
        "loss": 1 / max(step, 1),
    }
    return line | fields


def test_every_step_is_kept_once_and_listed(client: httpx.Client) -> None:
    assert sent(client, "own", told()) == (10, 0)
    more = [step_of(10), step_of(11, loss=None), step_of(11)]
    assert sent(client, "own", {"steps": more}) == (1, 2)
    page = client.get("/v1/jobs/own/metrics", params={"limit": 2}).json()
    assert [(step["step"], step["loss"], step["step_s"]) for step in page["steps"]] == [
        (11, None, STEP_S),
        (10, 0.1, STEP_S),
    ]
    assert page["steps"][0]["forward_s"] is None
    rest = client.get(page["next"]).json()["steps"]
    assert [step["step"] for step in rest] == [9, 8]


def test_they_correct_what_is_predicted(client: httpx.Client) -> None:
    post(client, "/v1/jobs/probe/metrics", told(step_s=1.0))
    (probe,) = client.get("/v1/jobs/probe/performance").json()["runs"]
    step_s = 1.7 * probe["white_box_s"]
    sent(client, "corrected", told(step_s=step_s))
    found = client.get("/v1/jobs/corrected/performance").json()
    (run,) = found["runs"]
    assert (run["used"], run["num_steps"], run["measured_s"]) == (True, 7, pytest.approx(step_s))
    assert run["calibrated_s"] == pytest.approx(step_s, rel=0.15)
    assert found["calibrated_error"] < found["white_box_error"]
    assert found["calibration"]["gpus"] == {}
    assert found["calibration"]["adjustment"]["num_points"] == 1
    # Times that no such plan can take are of another model, or in another unit.
    assert not probe["used"]
    assert "too far for a calibration" in probe["detail"]


def test_plans_whose_replicas_share_are_measured_too(client: httpx.Client) -> None:
    body = told(pp=1, dp=2)
    body["run"]["plan"]["context_parallel"] = 2
    for replica in body["run"]["plan"]["stages"][0]["replicas"]:
        replica["local_batch"] = 4
    body["run"]["transformer"] = {**body["run"]["transformer"], "software": "megatron-core"}
    assert sent(client, "shared", body) == (10, 0)
    assert client.get("/v1/jobs/shared/performance").json()["runs"][0]["num_steps"] == 7


@pytest.mark.parametrize(
    ("body", "code", "pointer"),
    [
        ({"steps": [step_of(1)]}, "unknown_launch", "/steps/0/launch"),
        ({**told(), "records": [record_of(0, 1)]}, "other_program", "/records/0/launch"),
        ({"run": run_of(), "steps": [step_of(1)]}, "other_program", "/steps/0/launch"),
        ({"run": run_of()}, "missing_field", ""),
        ({**told(1), "steps": [step_of(1, step_s=0.0)]}, "not_positive", "/steps/0/step_s"),
        ({**told(1), "steps": [step_of(1, started_at_s=9e9)]}, "in_the_future", "/steps/0/started_at_s"),
        ({**told(1), "steps": [step_of(1, started_at_s=1.0)]}, "before_launch", "/steps/0/started_at_s"),
        ({**told(1), "steps": [step_of(0)]}, "not_positive", "/steps/0/step"),
    ],
)
def test_what_is_wrong_is_said(client: httpx.Client, body: Json, code: str, pointer: str) -> None:
    assert (code, pointer) in faults(client, "wrong whole steps", body)
    assert client.get("/v1/jobs/wrong%20whole%20steps/performance").status_code == 404
