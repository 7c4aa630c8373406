"""Requests that start from weights, or say what the model computes with."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from api.deployments.choice import PlannedJob, choose, deployment_of, given_model
from api.schemas.deployment import DeploymentBody
from executor.deployment import Deployment
from executor.routing import Routing
from executor.weights.families import family_of
from models.numerics import Activation, Numerics, RotaryScaling
from models.transformer import Precision, Transformer
from stowplan.errors import InputError
from tests.api.deployments.test_deployments import JOB, body

_GPT = Transformer(**JOB, precision=Precision.FP32)
_BODY = TypeAdapter(DeploymentBody)


def asked(**training: Any) -> Deployment:
    request = _BODY.validate_json(json.dumps(body(training={"device": "cpu", **training})))

    def no_service(plan_id: str, job_id: str) -> PlannedJob:
        raise AssertionError((plan_id, job_id))

    choice = choose(request, "tiny", given_model(request), no_service, engine=request.training.engine)
    return deployment_of(request, choice)


def _folder(path: Path, **changes: Any) -> Path:
    numerics = Numerics(norm_epsilon=1e-3, activation=Activation.GELU_TANH)
    family = family_of(_GPT, numerics)
    assert family is not None
    (path / "config.json").write_text(json.dumps(family.config(_GPT, numerics) | changes))
    return path


def test_the_job_computes_as_its_weights_do_and_writes_beside_its_checkpoints(tmp_path: Path) -> None:
    made = asked(initial_weights=str(_folder(tmp_path)), final_weights=True, tensorboard=True, wandb_project="trials")
    job = made.training_job(tmp_path / "runs" / "1", tmp_path / "checkpoints")
    assert job.numerics == Numerics(norm_epsilon=1e-3, activation=Activation.GELU_TANH)
    assert job.initial_weights == str(tmp_path)
    assert job.final_weights == str(tmp_path / "weights")
    assert job.tensorboard_folder == str(tmp_path / "tensorboard")
    assert (job.wandb_folder, job.wandb_project) == (str(tmp_path), "trials")


def test_what_the_request_says_itself_counts(tmp_path: Path) -> None:
    scaling = {"factor": 8, "original_length": 16}
    given = {"rotary_base": 5e5, "rotary_scaling": scaling}
    expected = RotaryScaling(factor=8, low_factor=1, high_factor=4, original_length=16)
    assert asked(numerics=given).training.numerics == Numerics(rotary_base=5e5, rotary_scaling=expected)
    assert asked(initial_weights=str(_folder(tmp_path)), numerics={}).training.numerics == Numerics()


def test_experts_are_chosen_as_the_request_says(tmp_path: Path) -> None:
    made = asked(routing={"balance_loss": 0.02, "capacity": 1.25}, numerics={"normalised_routing": False})
    job = made.training_job(tmp_path / "runs" / "1", tmp_path / "checkpoints")
    assert job.routing == Routing(balance_loss=0.02, capacity=1.25)
    assert not job.numerics.normalised_routing
    assert asked().training.routing == Routing()


@pytest.mark.parametrize(
    ("training", "config", "pointer"),
    [
        ({}, {"n_head": 4}, "/job/num_heads"),
        ({}, {"activation_function": "relu"}, "/training/initial_weights"),
        ({"initial_weights": "/nowhere"}, {}, "/training/initial_weights"),
        (
            {"numerics": {"rotary_scaling": {"factor": 8, "original_length": 1, "low_factor": 9}}},
            {},
            "/training/numerics/rotary_scaling",
        ),
    ],
)
def test_faults_are_where_the_request_says_it(
    training: dict[str, Any], config: dict[str, Any], pointer: str, tmp_path: Path
) -> None:
    given = {"initial_weights": str(_folder(tmp_path, **config)), **training}
    with pytest.raises(InputError) as refused:
        asked(**given)
    assert pointer in [issue.pointer for issue in refused.value.issues]
