"""Calibrations over HTTP: fitted, looked at, named in requests, deleted; and what is refused with which words."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from api.calibrations.service import Calibrations
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from api.schemas.calibration import CALIBRATION_EXAMPLE, CalibratedSystemDoc, CalibrationList
from api.schemas.model import AdjustmentDoc, CalibrationDoc
from api.store.calibrations import CalibrationStore
from api.store.database import Store
from solver.pool import WorkerPool
from tests.api.asking import planned, post, refused
from tests.api.measurements import CLUSTER, TRANSFORMER
from tests.api.requests import Json, changed
from tests.models.measured.samples import IB, NCCL, megatron

PATH = "/v1/calibrations"
SHIPPED = "dgx-a100-80gb-megatron-lm"
PLAN: Json = CALIBRATION_EXAMPLE["measurements"][0]["degrees"]
PARALLEL: Json = {
    "job": CALIBRATION_EXAMPLE["job"],
    "gpus": [{"gpu_type": "h100", "counts": [8]}],
    "options": {"num_operators": 8},
}
JOB: Json = {"id": "llm", "min_gpus": 2, "max_gpus": 2, "transformer": TRANSFORMER, "remaining_iterations": 10.0}


@pytest.fixture(scope="module")
def site(client: httpx.Client) -> Iterator[Json]:
    """A calibration that tests share."""
    answer = post(client, PATH, CALIBRATION_EXAMPLE, Idempotency_Key="site")
    assert answer.status_code == 201, answer.text
    document: Json = answer.json()
    assert answer.headers["location"] == document["links"]["self"]
    yield document
    client.delete(document["links"]["self"])


def issues(client: httpx.Client, request: Json, path: str = PATH) -> list[tuple[str, str, str]]:
    answer = post(client, path, request)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    assert answer.status_code == 422
    return [(issue["code"], issue["pointer"], issue["detail"]) for issue in answer.json()["errors"]]


def fastest_s(client: httpx.Client, **fields: Any) -> float:
    answer = post(client, "/v1/parallel-plans", {**PARALLEL, **fields})
    assert answer.status_code == 200, answer.text
    return float(answer.json()["best"]["iteration_s"])


def test_it_is_fitted_and_says_what_to_measure_next(client: httpx.Client, site: Json) -> None:
    found = CalibratedSystemDoc.model_validate(site, strict=False)
    assert [found.name, found.gpu_type, found.num_points] == ["site", "h100", 2]
    assert found.factors[0].name == "computation"
    # Two times say more of computation than the priors do.
    untold = CalibratedSystemDoc.model_validate(
        post(
            client,
            PATH,
            {**CALIBRATION_EXAMPLE, "name": "one", "measurements": CALIBRATION_EXAMPLE["measurements"][:1]},
        ).json(),
        strict=False,
    )
    assert client.delete(untold.links.self).status_code == 204
    assert found.factors[0].deviation < untold.factors[0].deviation < 1.0
    assert found.source is not None
    assert "measurement 2: 4.4 s an iteration of PP2 DP4 TP1" in found.source
    assert found.measure_next is not None
    assert found.measure_next.gpu_type == "h100"
    assert client.get(site["links"]["self"]).json() == site
    listed = CalibrationList.model_validate_json(client.get(PATH).text)
    assert "site" in [one.name for one in listed.calibrations]
    assert SHIPPED in [one.name for one in listed.shipped]


def test_the_same_key_gives_the_same_one(client: httpx.Client, site: Json) -> None:
    again = post(client, PATH, CALIBRATION_EXAMPLE, Idempotency_Key="site")
    assert (again.status_code, again.json()) == (201, site)
    other = changed(CALIBRATION_EXAMPLE, "/gpus_per_node", 4)
    assert post(client, PATH, other, Idempotency_Key="site").json()["code"] == "idempotency_conflict"
    for request in (CALIBRATION_EXAMPLE, {**CALIBRATION_EXAMPLE, "name": SHIPPED}):
        answer = post(client, PATH, request)
        assert (answer.status_code, answer.json()["code"]) == (409, "calibration_exists")


def test_plans_of_one_job_name_it(client: httpx.Client, site: Json) -> None:
    by_name = fastest_s(client, calibration="site")
    assert by_name == fastest_s(client, calibration=site["calibration"]) != fastest_s(client)
    shipped = client.get(f"{PATH}/{SHIPPED}").json()["calibration"]
    assert fastest_s(client, calibration=SHIPPED) == fastest_s(client, calibration=shipped)
    [(code, pointer, detail)] = issues(client, {**PARALLEL, "calibration": "nowhere"}, "/v1/parallel-plans")
    assert (code, pointer) == ("unknown_calibration", "/calibration")
    assert SHIPPED in detail


@pytest.mark.slow
def test_jobs_of_snapshots_name_it(client: httpx.Client, site: Json) -> None:
    request = {"policy": "arena", "snapshot": {"cluster": CLUSTER, "jobs": [{**JOB, "calibration": "site"}]}}
    inline = planned(client, changed(request, "/snapshot/jobs/0/calibration", site["calibration"]))
    named = planned(client, request)
    assert named["allocations"] == inline["allocations"]
    assert named["objective"] == inline["objective"]
    assert refused(client, changed(request, "/snapshot/jobs/0/calibration", "nowhere")) == (
        422,
        [("unknown_calibration", "/snapshot/jobs/0/calibration")],
    )


def test_logs_and_bandwidth_tests_are_told_apart(client: httpx.Client) -> None:
    measurements = [
        {"name": "links", "text": NCCL},
        {"name": "network", "text": IB, "num_ports": 8},
        {"name": "log", "text": megatron([9000.0, *[4000.0] * 9]), "degrees": PLAN},
    ]
    answer = post(client, PATH, {**CALIBRATION_EXAMPLE, "name": "told", "measurements": measurements})
    assert answer.status_code == 201, answer.text
    lines = answer.json()["source"].splitlines()
    assert [line.partition(":")[0] for line in lines] == ["links", "network", "log"]
    # Bandwidth tests alone need no model, and say nothing of plans.
    bare = {"name": "bare", "gpu_type": "h100", "measurements": measurements[:1], "calibration": "told"}
    answer = post(client, PATH, bare)
    assert answer.status_code == 201, answer.text
    assert (answer.json()["measure_next"], answer.json()["num_points"]) == (None, 1)
    for name in ("told", "bare"):
        assert client.delete(f"{PATH}/{name}").status_code == 204
        assert client.get(f"{PATH}/{name}").status_code == 404
        assert client.delete(f"{PATH}/{name}").status_code == 404
    assert client.delete(f"{PATH}/{SHIPPED}").json()["code"] == "calibration_exists"


@pytest.mark.parametrize(
    ("pointer", "value", "code", "where", "words"),
    [
        ("/gpu_type", "h101", "unknown_gpu_type", "/gpu_type", "h100"),
        ("/job", None, "missing_field", "/job", "which model"),
        ("/calibration", "nowhere", "unknown_calibration", "/calibration", SHIPPED),
        ("/measurements/0/text", "loss 3.1", "one_of", "/measurements/0", "exactly one"),
        ("/measurements/0", {"text": "loss 3.1"}, "invalid_file", "/measurements/0/text", "none of: nccl-tests"),
        (
            "/measurements/0",
            {"text": megatron([1e3] * 4), "degrees": PLAN},
            "invalid_file",
            "/measurements/0/text",
            "1",
        ),
        ("/measurements/0", {"text": megatron([1e3] * 9)}, "missing_field", "/measurements/0/degrees", "which plan"),
        ("/measurements/0", {"text": NCCL, "degrees": PLAN}, "one_of", "/measurements/0/degrees", "bandwidth test"),
        ("/measurements/0/num_ports", 8, "one_of", "/measurements/0/num_ports", "training"),
        ("/measurements/0/degrees/pp", 64, "layers", "/measurements/0/degrees/pp", "measurement 1: is 64"),
        ("/measurements/0/iteration_s", 4000.0, "other_model", "/measurements/0/iteration_s", "in seconds"),
        ("/measurements/2", {"iteration_s": 8.0, "degrees": PLAN}, "contradiction", "/measurements/2", "measurement 1"),
    ],
)
def test_measurements_of_something_else(
    client: httpx.Client, pointer: str, value: Any, code: str, where: str, words: str
) -> None:
    found = issues(client, changed({**CALIBRATION_EXAMPLE, "name": "wrong"}, pointer, value))
    assert [(issue[0], issue[1]) for issue in found] == [(code, where)]
    assert words in found[0][2]
    assert client.get(f"{PATH}/wrong").status_code == 404


def test_what_was_posted_before_another_one_of_its_name_came_along_stays(pool: WorkerPool) -> None:
    store = Store(None)
    service = Calibrations(Settings(database=IN_MEMORY), store, pool)
    shipped = service.calibration(SHIPPED)
    own = shipped.model_copy(update={"source": "ours", "calibration": CalibrationDoc(adjustment=AdjustmentDoc())})
    CalibrationStore(store).add(SHIPPED, own.model_dump_json())
    assert service.calibration(SHIPPED) == own
    assert service.find(SHIPPED) == own.calibration
    service.remove(SHIPPED)
    assert service.calibration(SHIPPED) == shipped
    store.close()
