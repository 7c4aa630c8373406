"""Runs without processes are a launch backend of these tests."""

import pytest

from executor.launch.backends import BACKENDS


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BACKENDS, "scripted", "tests.executor.deployed.scripted:ScriptedBackend")
