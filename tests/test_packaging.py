"""What the distribution ships is written down by hand; nothing may be missing or too much."""

import re
import tomllib
from pathlib import Path

from executor.deployment import LaunchOptions
from tests.paths import ROOT

ROOMS = ("stowplan", "topology", "workloads", "solver", "models", "executor", "api")


def test_every_package_of_the_rooms_is_shipped() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {
        ".".join(path.parent.relative_to(ROOT).parts) for room in ROOMS for path in (ROOT / room).rglob("__init__.py")
    }
    assert sorted(listed) == sorted(there)


def test_the_catalogues_are_shipped() -> None:
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    there = {path.parent.relative_to(ROOT) for room in ROOMS for path in (ROOT / room).rglob("*.toml")}
    assert there == {Path("models"), Path("models/performance/iteration"), Path("topology")}
    assert all("*.toml" in data[".".join(folder.parts)] for folder in there)


def test_what_programs_of_users_import_is_shipped() -> None:
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert {*(f"{name}.py" for name in tables["py-modules"]), "setup.py"} == {path.name for path in ROOT.glob("*.py")}


def test_the_image_has_all_that_the_distribution_ships() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (\w+) \1$", text, re.MULTILINE)
    assert tuple(copied) == ("shipping", *ROOMS)
    assert all(path.name in text for path in ROOT.glob("*.py"))
    # The image that manifests name is the one that is built here.
    assert f"docker build --tag {LaunchOptions().image} ." in text
