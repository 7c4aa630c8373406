"""Variants as documents: what changes nothing is the same request, down to its hash."""

from typing import Any

import pytest
from pydantic_core import to_json

from api.common.examples import Example, examples
from api.common.settings import Settings
from api.convert.reading import read_document
from api.convert.request import check_request
from api.convert.snapshot import snapshot_from_document
from api.convert.what_if import CheckedVariant, check_variant
from api.schemas.request import PLAN_BODY
from api.schemas.snapshot import SNAPSHOT, SnapshotDoc
from api.schemas.what_if import VARIANT
from models.planning import plan
from models.workload import NodeGpus
from tests.api.requests import Json, sia_request, table_job
from tests.growth import work


def checked(request: Json, **variant: Any) -> CheckedVariant:
    body = read_document(PLAN_BODY, to_json(request))
    assert isinstance(body.snapshot, SnapshotDoc)
    base = check_request(body, snapshot_from_document(body.snapshot), Settings()).required()
    return check_variant(read_document(VARIANT, to_json({"name": "v", **variant})), body, base)


@pytest.mark.parametrize("known", examples(), ids=lambda known: known.id)
def test_what_changes_nothing_is_the_same_request(known: Example) -> None:
    body = read_document(PLAN_BODY, to_json(known.request))
    same = checked(known.request)
    assert same.body == body
    assert same.request is not None
    assert isinstance(body.snapshot, SnapshotDoc)
    snapshot = snapshot_from_document(body.snapshot)
    assert same.request.snapshot == snapshot
    # In its text models have their numbers, and GPUs in use their indices.
    assert snapshot_from_document(read_document(SNAPSHOT, same.snapshot_text.encode())) == snapshot


def test_parameters_change_one_by_one_or_with_the_policy() -> None:
    request = {**sia_request(), "parameters": {"queue_penalty": 0.5, "fairness_power": 1.0}}
    changed = checked(request, parameters={"queue_penalty": 2.0}).body.parameters
    assert (changed.values()["queue_penalty"], changed.values()["fairness_power"]) == (2.0, 1.0)
    other = checked(request, policy="gang", parameters={"order": "srtf"}).body
    assert (other.policy, other.parameters.values()["order"]) == ("gang", "srtf")
    # Those that both have are those of the other policy: its defaults.
    assert checked(request, policy="arena").body.parameters.values()["horizon_s"] == 3600.0
    # A heuristic and its program share theirs.
    gang = {**request, "policy": "gang", "parameters": {"order": "srtf"}}
    assert checked(gang, policy="gang-ilp").body.parameters.values()["order"] == "srtf"


def test_fields_of_jobs_are_read_as_those_of_jobs() -> None:
    running = table_job("j0", current={"n0": [0, 1]}, max_gpus=2)
    changes = {"j0": {"max_gpus": None, "weight": 2.0, "current": {"n1": [0]}}}
    found = checked(sia_request([running]), jobs=changes).request
    assert found is not None
    (job,) = found.snapshot.jobs
    assert (job.max_gpus, job.weight, [part.node for part in job.current or ()]) == (None, 2.0, ["n1"])
    assert job.performance is not None


def test_the_cost_grows_with_the_request() -> None:
    def cost(size: int) -> int:
        request = sia_request([table_job(f"j{k}") for k in range(size)])
        request["snapshot"]["cluster"]["nodes"] = [
            {"id": f"n{k}", "gpu_type": "a", "num_gpus": 4, "path": [f"pod{k // 4}"]} for k in range(size)
        ]
        body = read_document(PLAN_BODY, to_json(request))
        assert isinstance(body.snapshot, SnapshotDoc)
        base = check_request(body, snapshot_from_document(body.snapshot), Settings()).required()
        jobs = {f"j{k}": {"weight": 2.0} for k in range(size)}
        variant = read_document(VARIANT, to_json({"name": "v", "drain": ["pod1"], "jobs": jobs}))
        return work(lambda: check_variant(variant, body, base).snapshot_text)

    assert cost(200) <= 2.3 * cost(100)


@pytest.mark.parametrize(
    "policy", ["sia", "arena", "arena-ilp", "gang", "gang-ilp", "gavel", "gavel-ilp", "elasticflow"]
)
def test_every_policy_keeps_a_job_where_it_is_asked_for(policy: str) -> None:
    # One job waits, another runs on the GPUs asked for, and has to make room.
    jobs = [table_job("j0", min_gpus=2), table_job("j1", min_gpus=2, current={"n1": [0, 1]})]
    place = {"job": "j0", "nodes": {"n1": [0, 1]}}
    asked = checked({**sia_request(jobs), "policy": policy}, place=place)
    assert asked.request is not None, asked.forbidden
    found = plan(asked.request).plan
    assert found is not None
    gpus = {item.job_id: item.gpus for item in found.allocations}
    assert gpus["j0"] == (NodeGpus(node="n1", gpus=(0, 1)),)
    # There is room for both.
    assert "j1" in gpus
