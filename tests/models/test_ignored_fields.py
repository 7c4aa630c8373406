"""A policy that says that it ignores a field of jobs plans the same whatever the field says."""

import json
from dataclasses import replace
from typing import Any

import pytest

from api.common.settings import Settings
from api.convert.reading import read_document
from api.convert.request import check_request
from api.reading.texts import RequestText, snapshot_of
from api.schemas.request import PLAN_BODY
from models.forecast.lasting import Lasting
from models.planning import plan
from models.policies import POLICIES
from models.workload import Adaptivity, Expansion, Job, Parallelism
from tests.paths import ROOT

EXAMPLES = {
    "sia": "quickstart",
    "arena": "arena-two-types",
    "arena-ilp": "arena-two-types",
    "suika": "suika-growing",
    "suika-ilp": "suika-growing",
    "arnold": "arnold-fig12",
    "ahead": "ahead-two-weeks",
    "gang": "gang-queue",
    "gang-ilp": "gang-queue",
    "gavel": "gavel-paper",
    "gavel-ilp": "gavel-paper",
    "elasticflow": "elasticflow-deadlines",
    "elasticflow-ilp": "elasticflow-deadlines",
    "horizon": "quickstart",
}
# They exclude what the examples say instead, or need more beside them.
_FOR_FORECASTERS = {"user", "application", "time_limit_s", "running_s"}
_LEFT_OUT = {"performance", "transformer", "operators", "parallel_plan", "calibration"}


def _said(job: Job, k: int, gpu_type: str) -> dict[str, Any]:
    """Something for every field that some policy ignores, other in every job."""
    return {
        "max_gpus": job.min_gpus + k,
        "adaptivity": Adaptivity.RIGID,
        "weight": 1.0 + k,
        "age_s": 1e5 / (k + 1),
        "num_restarts": 7 * k + 1,
        "restart_cost_s": 60.0 * (k + 1),
        "priority": k % 3 + 2,
        "deadline_s": 60.0 * (k + 1),
        "remaining_iterations": 10.0 ** (k + 1),
        "parallelism": Parallelism(tp=k + 1, pp=2, dp=3),
        "expansions": (Expansion(gpus=job.current, benefit=2.0),) if job.current else (),
        "remaining_s": 60.0 * (k + 1),
        "queue": f"queue {k % 2}",
        "attained_gpu_s": 1e4 * k,
        "attained_s": {gpu_type: 1e4 * k},
        "lasting": Lasting(probabilities=(0.5, 1.0), seconds=(60.0 * k, 120.0 * k)),
        "calendar_entry": f"reservation {k % 2}",
        "earliest_start_s": 60.0 * k,
        "latest_start_s": 7200.0 * (k + 1),
        "user": f"user {k % 2}",
        "application": f"model {k % 2}",
        "time_limit_s": 60.0 * (k + 1),
        "running_s": 60.0 * k,
        "min_gpus": job.min_gpus,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_what_is_ignored_changes_nothing(name: str) -> None:
    policy = POLICIES[name]
    document = json.loads((ROOT / f"api/examples/{EXAMPLES[name]}.json").read_text())
    body = {key: document[key] for key in ("snapshot", "parameters") if key in document}
    read = read_document(PLAN_BODY, json.dumps({**body, "policy": name}).encode())
    text = RequestText(body=b"", settings=Settings())
    asked = check_request(read, snapshot_of(read.snapshot, text).snapshot, text.settings).required()
    said = (set(policy.ignores) | _FOR_FORECASTERS) - _LEFT_OUT
    gpu_type = asked.snapshot.cluster.nodes[0].gpu_type
    jobs = tuple(
        replace(job, **{field: value for field, value in _said(job, k, gpu_type).items() if field in said})
        for k, job in enumerate(asked.snapshot.jobs)
    )
    found, wanted = plan(replace(asked, snapshot=replace(asked.snapshot, jobs=jobs))), plan(asked)
    assert wanted.plan is not None
    assert found.plan == wanted.plan
    assert said <= _said(jobs[0], 0, gpu_type).keys()
