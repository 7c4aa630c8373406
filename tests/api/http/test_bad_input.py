"""Every way to be wrong gets a code and a pointer."""

from typing import Any

import httpx
import pytest

from tests.api.asking import post, refused
from tests.api.requests import Json, arnold_request, changed, sia_request, table_job

SIA, ARNOLD = sia_request(), arnold_request()
GANG = sia_request([{"id": "j0"}, {"id": "j1"}], policy="gang")
SUIKA = sia_request([], policy="suika")
GOODPUT = {
    "kind": "goodput",
    "batch": {"initial": 8, "maximum": 64},
    "gradient": {"squared_norm": 1.0, "variance": 2.0},
    "observations": [],
}
CASES: list[tuple[str, Json, str, Any, str, str]] = [
    # name, request, where it is changed, to what, expected code, expected pointer ("": where it was changed)
    ("unknown policy", SIA, "/policy", "best", "unknown_value", ""),
    ("unknown field", SIA, "/snapshot/jobs/0/max_gpu", 3, "unknown_field", ""),
    ("unknown gpu type of a node", SIA, "/snapshot/cluster/nodes/1/gpu_type", "h100", "unknown_gpu_type", ""),
    (
        "unknown gpu type of a job",
        SIA,
        "/snapshot/jobs/0/gpu_types",
        ["h"],
        "unknown_gpu_type",
        "/snapshot/jobs/0/gpu_types/0",
    ),
    ("unknown tier", SIA, "/snapshot/cluster/minipod_tier", "leaf", "unknown_tier", ""),
    ("unknown tier as parameter", ARNOLD, "/parameters/minipod_tier", "leaf", "unknown_tier", ""),
    ("duplicate job", SIA, "/snapshot/jobs/1/id", "j0", "duplicate_id", ""),
    ("duplicate node", SIA, "/snapshot/cluster/nodes/1/id", "n0", "duplicate_id", "/snapshot/cluster/nodes/1"),
    ("no gpus in a node", SIA, "/snapshot/cluster/nodes/0/num_gpus", 0, "not_positive", ""),
    ("negative count", SIA, "/snapshot/jobs/1/min_gpus", -1, "not_positive", ""),
    ("negative age", SIA, "/snapshot/jobs/1/age_s", -0.5, "negative", ""),
    (
        "minimum above maximum",
        SIA,
        "/snapshot/jobs/0",
        table_job("j0", min_gpus=4, max_gpus=2),
        "min_above_max",
        "/snapshot/jobs/0/max_gpus",
    ),
    ("nan", SIA, "/snapshot/jobs/0/weight", float("nan"), "not_finite", ""),
    ("infinity", SIA, "/options", {"time_limit_s": float("inf")}, "not_finite", "/options/time_limit_s"),
    ("nan in a table", SIA, "/snapshot/jobs/0/performance/entries/1/value", float("nan"), "not_finite", ""),
    ("bool for a number", SIA, "/snapshot/jobs/0/min_gpus", True, "wrong_type", ""),
    ("text for a number", SIA, "/snapshot/jobs/0/weight", "1", "wrong_type", ""),
    ("float for a count", SIA, "/snapshot/cluster/nodes/0/num_gpus", 4.0, "wrong_type", ""),
    ("path depth", SIA, "/snapshot/cluster/nodes/1/path", ["pod1", "leaf"], "path_depth", ""),
    (
        "gpu that does not exist",
        SIA,
        "/snapshot/jobs/0/current",
        {"n0": [7]},
        "unknown_gpu",
        "/snapshot/jobs/0/current/n0",
    ),
    (
        "node that does not exist",
        SIA,
        "/snapshot/jobs/0/current",
        {"n/9": [0]},
        "unknown_node",
        "/snapshot/jobs/0/current/n~19",
    ),
    (
        "gpu taken by outside work",
        changed(SIA, "/snapshot/cluster/nodes/0/gpus_in_use", [0]),
        "/snapshot/jobs/0/current",
        {"n0": [0]},
        "gpu_taken_twice",
        "/snapshot/jobs/0/current/n0",
    ),
    (
        "gpu taken by another job",
        changed(SIA, "/snapshot/jobs/0/current", {"n0": [1]}),
        "/snapshot/jobs/1/current",
        {"n0": [1]},
        "gpu_taken_twice",
        "/snapshot/jobs/1/current/n0",
    ),
    (
        "gpu listed twice",
        SIA,
        "/snapshot/jobs/0/current",
        {"n0": [1, 1]},
        "bad_gpu_list",
        "/snapshot/jobs/0/current/n0",
    ),
    (
        "tp that does not divide",
        ARNOLD,
        "/snapshot/jobs/0/parallelism",
        {"tp": 3, "pp": 2, "dp": 2},
        "tp_does_not_divide_node",
        "/snapshot/jobs/0/parallelism/tp",
    ),
    ("empty cluster", SIA, "/snapshot/cluster/nodes", [], "empty_cluster", ""),
    ("unknown kind", SIA, "/snapshot/jobs/0/performance/kind", "guess", "unknown_value", ""),
    (
        "kind missing",
        SIA,
        "/snapshot/jobs/0/performance",
        {"entries": []},
        "missing_field",
        "/snapshot/jobs/0/performance/kind",
    ),
    ("empty table", SIA, "/snapshot/jobs/0/performance/entries", [], "wrong_length", ""),
    ("nothing observed", SIA, "/snapshot/jobs/0/performance", GOODPUT, "empty", ""),
    (
        "nobody observed",
        SIA,
        "/snapshot/jobs/0/performance",
        {**GOODPUT, "shared_with": "m"},
        "nothing_observed",
        "/snapshot/jobs/0/performance/observations",
    ),
    (
        "profiles that are shared",
        SIA,
        "/snapshot/jobs/0/performance",
        {
            **{name: value for name, value in GOODPUT.items() if name != "observations"},
            "shared_with": "m",
            "profiles": {
                "a": {
                    "parameters": {"alpha_c": 1, "beta_c": 0, "alpha_r": 0, "beta_r": 0, "alpha_n": 0, "beta_n": 0}
                    | {"gamma": 1},
                    "max_local_batch": 8,
                }
            },
        },
        "one_of",
        "",
    ),
    ("negative restart price", SIA, "/parameters/restart_price", -1, "negative", ""),
    ("negative service", SIA, "/snapshot/jobs/0/attained_gpu_s", -1, "negative", ""),
    (
        "thresholds that do not ascend",
        GANG,
        "/parameters",
        {"order": "las", "service_thresholds": [2, 1]},
        "invalid_input",
        "/parameters",
    ),
    ("no such order", GANG, "/parameters", {"order": "shortest"}, "unknown_value", "/parameters/order"),
    (
        "no such scaling",
        SUIKA,
        "/parameters",
        {"planning": {"scaling": "pp"}},
        "unknown_value",
        "/parameters/planning/scaling",
    ),
    ("no performance", SIA, "/snapshot/jobs/0", {"id": "j0"}, "missing_performance", "/snapshot/jobs/0/performance"),
    ("zero fairness", SIA, "/parameters", {"fairness_power": 0}, "out_of_range", "/parameters/fairness_power"),
    ("alpha above one", ARNOLD, "/parameters/alpha", 1.5, "out_of_range", ""),
    ("parameters of another policy", SIA, "/parameters", {"alpha": 0.5}, "unknown_field", "/parameters/alpha"),
    ("limit above the service's", SIA, "/options", {"time_limit_s": 86400.0}, "out_of_range", "/options/time_limit_s"),
    ("unknown solver", SIA, "/options", {"solver": "abacus"}, "unknown_value", "/options/solver"),
    ("unknown snapshot", SIA, "/snapshot", {"snapshot_id": "snapshot-0"}, "unknown_snapshot", "/snapshot/snapshot_id"),
    ("snapshot and reference", SIA, "/snapshot/snapshot_id", "snapshot-0", "unknown_field", "/snapshot/cluster"),
]


@pytest.mark.parametrize(
    ("request_", "pointer", "value", "code", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_is_refused(client: httpx.Client, request_: Json, pointer: str, value: Any, code: str, expected: str) -> None:
    wrong = changed(request_, pointer, value)
    status, issues = refused(client, wrong)
    assert status == 422
    assert (code, expected or pointer) in issues
    # Validation says the same, as an answer.
    answer = post(client, "/v1/plans:validate", wrong)
    assert answer.status_code == 200
    assert answer.json()["valid"] is False
    assert [(issue["code"], issue["pointer"]) for issue in answer.json()["issues"]] == issues
