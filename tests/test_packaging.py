"""What the distribution ships is written down by hand; nothing may be missing or too much."""

import tomllib
from pathlib import Path

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
