"""The JobSet against what JobSet's controller asks of names, and against the published models of JobSet and Pod."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

from executor.deployment import Deployment
from executor.launch.kubernetes import jobset_manifest
from executor.training_options import Device
from models.parallel_plan import symmetric_plan
from tests.executor.test_bundle import DEPLOYMENT, MODEL

# Host a holds stages 0 and 2, host b stages 1 and 3.
INTERLEAVED = symmetric_plan(
    num_layers=(2, 1, 1, 1),
    pp=4,
    dp=2,
    tp=1,
    global_batch=8,
    num_micro_batches=2,
    gpu_type="h100",
    gpus=tuple((node, gpu) for gpus in ((0, 1), (2, 3)) for node in ("a", "b") for gpu in gpus),
)
# All stages of a replica on one host.
DEEP = symmetric_plan(
    num_layers=(1,) * 40,
    pp=40,
    dp=2,
    tp=1,
    global_batch=8,
    num_micro_batches=4,
    gpu_type="h100",
    gpus=tuple((node, gpu) for gpu in range(40) for node in ("a", "b")),
)
DEPLOYMENTS = [
    DEPLOYMENT,
    replace(DEPLOYMENT, name="7B-" + "x" * 60),
    replace(DEPLOYMENT, name="-"),
    replace(DEPLOYMENT, plan=INTERLEAVED, training=replace(DEPLOYMENT.training, device=Device.CPU)),
    replace(DEPLOYMENT, name="x" * 63, plan=DEEP, model=replace(MODEL, num_layers=40)),
]


def manifest(deployment: Deployment) -> dict[str, Any]:
    text = jobset_manifest(deployment, Path("/shared/job/runs/0001"), Path("/shared/job/checkpoints"))
    document: dict[str, Any] = yaml.safe_load(text)
    return document


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_names_of_pods_are_labels(deployment: Deployment) -> None:
    document = manifest(deployment)
    name, jobs = document["metadata"]["name"], document["spec"]["replicatedJobs"]
    assert len({job["name"] for job in jobs}) == len(jobs)
    for job in jobs:
        last = job["template"]["spec"]["completions"] - 1
        # As JobSet's own check builds it.
        pod = f"{name}-{job['name']}-0-{last}-abcde"
        assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", pod)
        assert len(pod) <= 63
        affinity = job["template"]["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["labelSelector"]["matchLabels"] == {"jobset.sigs.k8s.io/jobset-name": name}


def test_short_names_say_what_a_group_holds() -> None:
    def groups(deployment: Deployment) -> list[str]:
        return [job["name"] for job in manifest(deployment)["spec"]["replicatedJobs"]]

    assert groups(DEPLOYMENT) == ["stages-0-1", "stages-2-3"]
    assert manifest(DEPLOYMENT)["metadata"]["name"] == "gpt-1"
    assert groups(DEPLOYMENTS[-1]) == ["stages-0-39"]
    assert [re.sub("-[0-9a-f]{6}$", "", group) for group in groups(DEPLOYMENTS[3])] == ["stages-0-2", "stages-1-3"]


def test_checkpoints_outlive_the_pods() -> None:
    for job in manifest(DEPLOYMENT)["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        assert pod["volumes"][0] == {"name": "runs", "hostPath": {"path": "/shared/job", "type": "Directory"}}
        assert pod["containers"][0]["volumeMounts"][0] == {"name": "runs", "mountPath": "/shared/job"}


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_every_field_is_known_to_the_published_models(deployment: Deployment) -> None:
    document = manifest(deployment)
    # Types are checked on the way in; what the models do not know is lost on the way out.
    assert JobsetV1alpha2JobSet.from_dict(document).to_dict() == document
