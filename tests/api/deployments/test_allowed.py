"""What clients of a service may choose of a launch, on real processes. The command line does not ask."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.app import create_app
from api.common.setting_kinds import IN_MEMORY
from api.common.settings import Settings
from executor.deployment import LaunchOptions
from solver.pool import WorkerPool
from tests.api.deployments.test_checks import on, refusal
from tests.api.deployments.test_deployments import body, client, folder, wait
from tests.api.serving import serving
from tests.paths import PRETEND_TRAINER, ROOT
from tests.ports import free_port

pytestmark = pytest.mark.slow

# pytest finds fixtures by name in the module that uses them.
__all__ = ["client", "folder"]


@pytest.fixture
def trainer(folder: Path, pool: WorkerPool) -> Iterator[httpx.Client]:
    """A service as an operator starts it who has set nothing else, and whose ranks really are the trainer's."""
    with serving(create_app(Settings(database=IN_MEMORY, deployments=str(folder)), pool=pool)) as made:
        yield made


def launched(**launch: Any) -> dict[str, Any]:
    return body(launch={"master_port": free_port(), "grace_s": 1.0, **launch})


def test_a_refused_deployment_runs_nothing(trainer: httpx.Client, tmp_path: Path) -> None:
    script, proof = tmp_path / "script", tmp_path / "proof"
    script.write_text(f"touch {proof}\n")
    refused = trainer.post("/v1/deployments", json=launched(python="/bin/bash", environment={"BASH_ENV": str(script)}))
    assert not proof.exists()
    assert refusal(refused) == (
        422,
        [("not_allowed", "/launch/python"), ("not_allowed", "/launch/environment/BASH_ENV")],
    )
    assert "STOWPLAN_LAUNCH_PYTHONS" in refused.text
    assert "STOWPLAN_LAUNCH_VARIABLES" in refused.text
    assert trainer.get("/v1/deployments").json() == {"deployments": []}


@pytest.mark.parametrize(
    "variable",
    [
        "PATH",
        "LD_PRELOAD",
        "PYTHONPATH",
        "NCCL_NET_PLUGIN",
        "NCCL_DEBUG_FILE",
        "STOWPLAN_WAIT_FOR",
        "nccl_debug",
        "RANK",
    ],
)
def test_variables_that_name_programs_or_files_are_refused(trainer: httpx.Client, variable: str) -> None:
    refused = trainer.post("/v1/deployments", json=launched(environment={variable: "/x", "NCCL_DEBUG": "INFO"}))
    assert refusal(refused) == (422, [("not_allowed", f"/launch/environment/{variable}")])


@pytest.mark.parametrize("field", ["token_file", "initial_weights", "data/sources/0/path"])
@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "tokens.bin", "{folder}/../tokens.bin", "{folder}/away/tokens.bin", "{folder}-too/tokens.bin"],
)
def test_data_lie_in_folders_of_the_operator(trainer: httpx.Client, folder: Path, path: str, field: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "away").symlink_to(folder.parent)
    given = path.format(folder=folder)
    chosen: dict[str, Any] = {"data": {"sources": [{"path": given}]}} if field.startswith("data") else {field: given}
    training = {"device": "cpu", **chosen}
    refused = trainer.post("/v1/deployments", json=body(training=training))
    assert refusal(refused) == (422, [("not_allowed", f"/training/{field}")])
    assert "STOWPLAN_DATA_FOLDERS" in refused.text


@pytest.mark.parametrize(
    ("launch", "pointer"),
    [
        ({"backend": "ssh"}, "/plan"),
        ({"backend": "ssh", "addresses": {"a": "root@elsewhere"}}, "/launch/addresses/a"),
        # Where the ranks meet.
        ({"backend": "slurm", "addresses": {"a": "elsewhere"}}, "/launch/addresses/a"),
        ({"backend": "slurm", "addresses": {"b": "elsewhere"}, "spares": ["b"]}, "/launch/addresses/b"),
    ],
)
def test_no_host_is_reached_that_the_operator_has_not_named(
    trainer: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launch: dict[str, Any], pointer: str
) -> None:
    ssh, proof = tmp_path / "ssh", tmp_path / "proof"
    ssh.write_text(f"#!/bin/sh\ntouch {proof}\nexit 255\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    refused = trainer.post("/v1/deployments", json=launched(**launch))
    assert not proof.exists()
    assert refusal(refused) == (422, [("not_allowed", pointer)])
    assert "STOWPLAN_LAUNCH_HOSTS" in refused.text


def test_a_change_of_plan_reaches_no_other_hosts(
    folder: Path, pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh, asked = tmp_path / "ssh", tmp_path / "asked"
    ssh.write_text(f'#!/bin/sh\nwhile [ "$1" != "--" ]; do shift; done\necho "$2" >> {asked}\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    settings = Settings(
        database=IN_MEMORY, deployments=str(folder), launch_hosts="gpu-*, train@10.0.0.*", launch_pythons="/opt/python"
    )
    with serving(create_app(settings, pool=pool)) as service:
        launch = {"backend": "ssh", "addresses": {"gpu-2": "train@10.0.0.2"}, "python": "/opt/python"}
        made = service.post("/v1/deployments", json=body(plan=on(("gpu-1", 0), ("gpu-2", 0)), launch=launch))
        assert made.status_code == 201, made.text
        path = made.headers["Location"]
        for host in ("gpu-1.elsewhere", "elsewhere"):
            refused = service.post(f"{path}:reconfigure", json={"plan": on((host, 0))})
            assert refusal(refused) == (422, [("not_allowed", "/plan")])
        service.post(f"{path}:stop")
    assert set(asked.read_text().split()) == {"gpu-1", "train@10.0.0.2"}


def test_secrets_reach_ranks_and_stand_in_no_file_and_no_answer(
    folder: Path, pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "WANDB_API_KEY").write_text("s3cr3t\n")
    trains = f"exec {sys.executable} {PRETEND_TRAINER} $0"
    script = f'test "$WANDB_API_KEY" = "$(cat {secrets / "WANDB_API_KEY"})" && {trains}'
    monkeypatch.setattr("api.deployments.choice.LaunchOptions", partial(LaunchOptions, command=("sh", "-c", script)))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    settings = Settings(database=IN_MEMORY, deployments=str(folder), secrets=str(secrets), launch_variables="WANDB_*")
    with serving(create_app(settings, pool=pool)) as service:
        plain = service.post("/v1/deployments", json=launched(environment={"WANDB_API_KEY": "s3cr3t"}))
        assert refusal(plain) == (422, [("not_allowed", "/launch/environment/WANDB_API_KEY")])
        unknown = service.post("/v1/deployments", json=launched(secrets=["WANDB_API_KEY", "OTHER"]))
        assert refusal(unknown) == (422, [("unknown_secret", "/launch/secrets/1")])
        made = service.post("/v1/deployments", json=launched(secrets=["WANDB_API_KEY"]))
        assert made.status_code == 201, made.text
        done = wait(service, made.headers["Location"], lambda document: document["phase"] == "finished")
        answers = "".join((plain.text, unknown.text, made.text, str(done)))
    assert "s3cr3t" not in answers
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]
    # They were there to be found.
    assert [path for path in files if b"WANDB_API_KEY" in path.read_bytes()]


def test_a_service_without_secrets_says_how_it_gets_some(trainer: httpx.Client) -> None:
    refused = trainer.post("/v1/deployments", json=launched(secrets=["WANDB_API_KEY"]))
    assert refusal(refused) == (422, [("unknown_secret", "/launch/secrets/0")])
    assert "STOWPLAN_SECRETS" in refused.text


def test_what_the_operator_names_is_deployed(client: httpx.Client, folder: Path) -> None:
    tokens = folder / "tokens.bin"
    tokens.parent.mkdir(exist_ok=True)
    tokens.write_bytes(bytes(2**12))
    request = launched(environment={"NCCL_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PRETEND_ANYTHING": "x"})
    training = {"device": "cpu", "num_steps": 2, "token_file": str(tokens)}
    made = client.post("/v1/deployments", json=request | {"training": training})
    assert made.status_code == 201, made.text
    wait(client, made.headers["Location"], lambda document: document["phase"] == "finished")


def test_both_files_of_a_dataset_lie_in_folders_of_the_operator(trainer: httpx.Client, folder: Path) -> None:
    """Its name alone leads nowhere."""
    folder.mkdir(exist_ok=True)
    (folder / "corpus.idx").touch()
    (folder / "corpus.bin").symlink_to("/etc/passwd")
    training = {"device": "cpu", "data": {"sources": [{"path": str(folder / "corpus")}]}}
    refused = trainer.post("/v1/deployments", json=body(training=training))
    assert refusal(refused) == (422, [("not_allowed", "/training/data/sources/0/path")])
