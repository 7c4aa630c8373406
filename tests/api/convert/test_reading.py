"""What is said about a wrong document: where, what, and what would be right."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from api.cli.files import load_request
from api.common.errors import BodyTooLargeError
from api.convert.reading import MAX_ISSUES, MAX_VALUES, read_document
from api.schemas.base import MAX_NAME_LENGTH
from api.schemas.deployment import DeploymentBody, ReconfigureBody
from api.schemas.request import PLAN_BODY
from api.schemas.snapshot import SNAPSHOT
from models.policies import POLICIES
from stowplan.errors import InputError, Issue
from tests.api.requests import Json, changed, json_text, sia_request

SIA = sia_request()
ENTRIES = "/snapshot/jobs/0/performance/entries"


def issues_of(text: bytes) -> tuple[Issue, ...]:
    with pytest.raises(InputError) as caught:
        read_document(PLAN_BODY, text)
    return caught.value.issues


@pytest.mark.parametrize(
    ("pointer", "value", "words"),
    [
        ("/snapshot/jobs/0/gpu_types", [], "is empty; must have at least 1 item"),
        ("/snapshot/cluster/nodes/0/path", ["u"] * 17, "has 17 items; must have at most 16 items"),
        ("/snapshot/jobs/0/id", "", "is empty; must have at least 1 character"),
        ("/snapshot/jobs/0/id", "x" * 257, "has 257 characters; must have at most 256 characters"),
        ("/snapshot/jobs/0/id", "a\x9b31m", r'is "a\u009b31m"; must not hold control characters or line breaks'),
        ("/snapshot/jobs/0/weight", float("nan"), "is NaN; must be a finite number"),
        ("/snapshot/cluster/nodes/0/state", "UP", "is \"UP\"; must be 'up', 'drained' or 'down'"),
        (
            "/policy",
            None,
            f"is null; must be one of {', '.join(map(repr, POLICIES))}",
        ),
        (
            "/policy",
            ["sia"],
            f"is a list; must be one of {', '.join(map(repr, POLICIES))}",
        ),
        ("/options/seed", 10**300, f"is 1{'0' * 60}...; must be below 2147483648"),
    ],
)
def test_words_say_what_would_be_right(pointer: str, value: Any, words: str) -> None:
    document = changed({**SIA, "options": {}}, pointer, value)
    assert [(issue.pointer, issue.detail) for issue in issues_of(json_text(document))] == [(pointer, words)]


@pytest.mark.parametrize(
    ("pointer", "hint"),
    [
        ("/optoins", "did you mean 'options'?"),
        ("/colour", "the fields here are ['options', 'parameters', 'policy', 'snapshot']"),
        ("/parameters/alpha", "the fields here are ['double_at_most', 'epsilon', "),
        ("/snapshot/jobs/0/max_gpu", "did you mean 'max_gpus'?"),
        ("/snapshot/cluster/tiers/0/gpu_type", "the fields here are ['bandwidth_fraction', 'name']"),
        ("/snapshot/jobs/0/performance/batch", "did you mean 'batch_size'?"),
        (f"{ENTRIES}/0/gpu_typ", "did you mean 'gpu_type'?"),
    ],
)
def test_unknown_fields_are_compared_with_those_of_the_place(pointer: str, hint: str) -> None:
    (issue,) = issues_of(json_text(changed({**SIA, "parameters": {}}, pointer, 1)))
    assert issue.pointer == pointer
    assert issue.detail.startswith(f"there is no field '{pointer.rpartition('/')[2]}' here; {hint}")


def test_fields_of_a_reference_are_not_those_of_a_snapshot() -> None:
    document = changed(SIA, "/snapshot/snapshot_id", "snapshot-0")
    assert {issue.detail for issue in issues_of(json_text(document))} == {
        f"there is no field '{name}' here; the fields here are ['calendar', 'forecaster', 'snapshot_id']"
        for name in ("cluster", "jobs")
    }


def test_an_unknown_field_of_a_bare_snapshot() -> None:
    with pytest.raises(
        InputError, match=r"/mood: there is no field 'mood' here; the fields here are \['calendar', 'cl"
    ):
        read_document(SNAPSHOT, json_text({**SIA["snapshot"], "mood": 1}))
    with pytest.raises(InputError, match="/snapshot: there is no field 'snapshot' here; the fields here are"):
        read_document(SNAPSHOT, json_text({**SIA["snapshot"], "snapshot": {}}))


DEPLOYMENT: Json = {"job_id": "llm", "job": {"model": "llama2-7b", "global_batch": 8}, "plan_id": "plan-7"}


@pytest.mark.parametrize(
    ("pointer", "value", "words"),
    [
        ("/launch", {"stage_bounds": [0]}, "there is no field 'stage_bounds' here; the fields here are ['addresses', "),
        ("/launch", {"pythn": "python3"}, "there is no field 'pythn' here; did you mean 'python'?"),
        ("/best", {}, "there is no field 'best' here; the fields here are ['cluster', "),
        ("/launch", {"python": "a\tb"}, 'is "a\\tb"; must not hold control characters'),
        ("/launch", {"environment": {"A": "\0"}}, 'is "***"; must not hold null characters'),
        ("/launch", {"environment": {"A": 4711}}, 'is "***"; must be a valid string'),
        ("/launch", {"environment": {"\n": "x"}}, 'is "\\n"; must not hold control characters or line breaks'),
        ("/launch", {"secrets": ["../A"]}, 'is "../A"; must be the name of a variable'),
    ],
)
def test_words_about_a_deployment_are_of_the_place(pointer: str, value: Any, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read_document(TypeAdapter(DeploymentBody), json_text(changed(DEPLOYMENT, pointer, value)))
    (issue,) = caught.value.issues
    assert issue.pointer.startswith(pointer)
    assert issue.detail.startswith(words)


ANSWER: Json = {"planner": "grid", "job": {"name": "x"}, "best": {"plan": {}}, "points": [], "launch": {"ranks": []}}


@pytest.mark.parametrize(
    ("kind", "document", "pointer", "words"),
    [
        (DeploymentBody, ANSWER, "", "give its `best.plan` as `plan`, beside job_id and job"),
        (ReconfigureBody, ANSWER, "", "give its `best.plan` as `plan`"),
        (DeploymentBody, {**DEPLOYMENT, "plan": ANSWER}, "/plan", "the plan in it is `best.plan`"),
        (DeploymentBody, {"plan": {"plan": {}, "iteration_s": 1.0}}, "/plan", "the plan in it is `plan`"),
    ],
)
def test_an_answer_with_plans_is_no_plan(kind: type[Any], document: Json, pointer: str, words: str) -> None:
    with pytest.raises(InputError, match="is another document") as caught:
        read_document(TypeAdapter(kind), json_text(document))
    (issue,) = caught.value.issues
    assert (issue.code, issue.pointer) == ("other_document", pointer)
    assert "answer of /v1/parallel-plans" in issue.detail
    assert issue.detail.endswith(words)


@pytest.mark.parametrize(
    ("old", "new", "pointer"),
    [
        ('"id": "j0"', '"id": "j0", "current": {"n0": [0], "n0": [1]}', "/snapshot/jobs/0/current/n0"),
        ('"policy": "sia"', '"policy": "sia", "policy": "sia"', "/policy"),
        ('"num_gpus": 1,', '"num_gpus": 1, "num_gpus": 2,', f"{ENTRIES}/0/num_gpus"),
    ],
)
def test_a_key_that_occurs_twice_is_refused(old: str, new: str, pointer: str, tmp_path: Path) -> None:
    text = json_text(SIA).decode().replace(old, new, 1)
    (issue,) = issues_of(text.encode())
    assert (issue.code, issue.pointer) == ("repeated_key", pointer)
    path = tmp_path / "request.json"
    path.write_text(text)
    with pytest.raises(InputError, match="repeats a key"):
        load_request(path)


def test_what_is_quoted_of_a_body_is_bounded() -> None:
    """Each fault names its place; a long key must not be repeated in full for every one."""
    long_key: Json = changed(SIA, "/snapshot/jobs/0/current", {"x" * 100_000: [-1] * 300})
    issues = issues_of(json_text(long_key))
    assert len(issues) == MAX_ISSUES
    assert max(len(issue.pointer) for issue in issues) < MAX_NAME_LENGTH + 64
    (unknown,) = issues_of(json_text({**SIA, "y" * 100_000: 1}))
    assert len(unknown.pointer) + len(unknown.detail) < 1000


def test_a_text_of_very_many_values_is_refused_before_it_is_read() -> None:
    text = b"[" + b"[]," * MAX_VALUES + b"[]]"
    with pytest.raises(BodyTooLargeError, match="at most 4000000 are read"):
        read_document(PLAN_BODY, text)
