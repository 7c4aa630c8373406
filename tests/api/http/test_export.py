import httpx
import pytest

from api.common.examples import example
from tests.api.asking import planned
from tests.api.requests import Json


@pytest.fixture(scope="module")
def plan(client: httpx.Client) -> Json:
    return planned(client, example("arnold-fig12").request)


def test_a_placement_is_exported(client: httpx.Client, plan: Json) -> None:
    answer = client.get(f"{plan['links']['self']}/jobs/moe-24b/export", params={"to": ["megatron", "slurm"]})
    assert answer.status_code == 200, answer.text
    files = answer.json()["files"]
    assert files["slurm_hosts"].split()[::8] == list(plan["communication"]["hosts"])
    # The stored request says what the job trains.
    assert "--hidden-size" in files["megatron.sh"]


@pytest.mark.parametrize(
    ("job", "to", "status", "code"),
    [
        ("moe-24b", "jax", 422, "invalid_input"),
        ("nobody", "slurm", 404, "not_found"),
        ("moe-24b", "torchtitan", 422, "invalid_input"),
    ],
)
def test_what_cannot_be_exported(client: httpx.Client, plan: Json, job: str, to: str, status: int, code: str) -> None:
    answer = client.get(f"{plan['links']['self']}/jobs/{job}/export", params={"to": to})
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text


def test_a_format_has_to_be_named(client: httpx.Client, plan: Json) -> None:
    assert client.get(f"{plan['links']['self']}/jobs/moe-24b/export").status_code == 422
