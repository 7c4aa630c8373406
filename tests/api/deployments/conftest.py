"""Ranks that only pretend to train."""

import sys
from functools import partial

import pytest

from executor.deployment import LaunchOptions
from tests.paths import PRETEND_TRAINER, ROOT


@pytest.fixture
def pretending(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks do not train."""
    options = partial(LaunchOptions, command=(sys.executable, str(PRETEND_TRAINER)))
    monkeypatch.setattr("api.deployments.choice.LaunchOptions", options)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
