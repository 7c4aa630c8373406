"""Compose file, unit of systemd and image: settings that there are, no rights, and what the tools say of them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from api.common.environment import setting_variables
from api.common.settings import Settings
from tests.paths import ROOT

FOLDER = ROOT / "deploy"
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
UNIT = (FOLDER / "systemd" / "stowplan.service").read_text()
# Variables of the compose file and the chart that are no settings of the service.
_OTHERS = {"STOWPLAN_DB_PASSWORD"}
_LIMIT_S = 60


def test_every_variable_is_a_setting() -> None:
    known = set(setting_variables())
    for path in FOLDER.rglob("*"):
        if path.is_file():
            named = set(re.findall(r"STOWPLAN_[A-Z_]*[A-Z]", path.read_text()))
            assert named <= known | _OTHERS, path


def test_compose_has_the_service_without_rights_and_a_database() -> None:
    service, database = COMPOSE["services"]["stowplan"], COMPOSE["services"]["database"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert (FOLDER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    given = {name.removeprefix("STOWPLAN_").lower(): value for name, value in service["environment"].items()}
    filled = {name: re.sub(r"\$\{[^}]*\}", "secret", value) for name, value in given.items()}
    settings = Settings.model_validate({**filled, "host": "0.0.0.0"})  # noqa: S104 - as the image has it
    assert settings.database_location == "postgresql://stowplan:secret@database/stowplan"
    assert "stowplan" in settings.host_names
    assert database["environment"]["POSTGRES_DB"] == "stowplan"
    assert service["depends_on"]["database"]["condition"] == "service_healthy"
    assert "healthcheck" in database
    # Anybody who reaches this machine could try tokens otherwise.
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])


def test_services_have_time_to_stop() -> None:
    assert Settings.model_fields["shutdown_s"].default < 30
    assert COMPOSE["services"]["stowplan"]["stop_grace_period"] == "30s"
    assert "\nTimeoutStopSec=30\n" in UNIT


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """But for the program, which is not installed there."""
    unit = tmp_path / "stowplan.service"
    unit.write_text(UNIT.replace("/opt/stowplan/bin/stowplan", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=_LIMIT_S
    )
    if "Failed to" in done.stderr:
        pytest.skip(f"systemd-analyze cannot look at units here: {done.stderr.strip()}")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_image_runs_as_a_user_without_rights() -> None:
    image = (FOLDER / "Dockerfile").read_text()
    assert re.search(r"^USER 10001:10001$", image, re.MULTILINE)
    assert image.index("USER 10001") < image.index("ENTRYPOINT")
    for name, value in re.findall(r"(STOWPLAN_[A-Z]+)=(\S+)", image.partition("ENV ")[2]):
        Settings.model_validate({name.removeprefix("STOWPLAN_").lower(): value, "token": "secret"})
